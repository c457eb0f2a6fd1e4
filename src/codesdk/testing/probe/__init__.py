"""An unknown agent of the Agent Client Protocol → its row: what it is asked and told, against a scripted model.

`world` is what is around the agent, `talk` speaks with it, `way`, `experiments` and `restarts` try one thing each, `deduce` says what that
means for the row (pure), and `probing` puts them in order.
"""
