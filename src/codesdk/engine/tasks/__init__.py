"""One run of a task: its input compiled, its runtime driven, its end written."""
