"""`codesdk chat`: a terminal for any runtime, over the same handles as every other front end.

Light modules draw the prompt (`screen`, `keyboard`); the rest is loaded behind it. Events become lines (`story`), what
waits for an answer a panel (`waiting`), what is typed messages and commands (`conversation`, `commands`).
"""
