"""Foreign JSON Schemas → checks whose work is bounded in steps, whatever schema and input say.

`compiler` reads a schema once and refuses what it cannot check; `keywords` are the checks; `patterns` the
regular expressions, in linear time; `work` counts. Nothing here fetches anything.
"""
