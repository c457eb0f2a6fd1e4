"""A task's end → commands that a person may want to type next."""

from collections.abc import Sequence

from rich.text import Text

from codesdk.cli.view.screen import Screen
from codesdk.contract.events import Event

Step = tuple[str, str]
"""A command, and its purpose."""


async def show_next(ending: Event, hint: str, name: str) -> None:
    """Print the session's id and the commands that fit how the task ended."""
    command = f"codesdk{hint}"
    steps = [
        (f"{command} transcript {name}", "the messages"),
        (f"{command} events {name}", "everything that happened"),
    ]
    if ending.type == "task.completed":
        steps.append((f"{command} verify {name}", "check the log"))
    else:
        steps.append((f"{command} run --session {name} …", "continue from here"))
    async with Screen() as screen:
        screen.console.print(Text(f"  session {ending.trace.session_id}", "dim"))
        for line in step_lines(steps, screen.console.width):
            screen.console.print(line, soft_wrap=True)


def step_lines(steps: Sequence[Step], width: int) -> list[Text]:
    """Return commands with their purpose beside them, or above them where there is no room."""
    longest = max(len(command) for command, _ in steps)
    beside = all(longest + len(purpose) + 5 <= width for _, purpose in steps)
    lines: list[Text] = []
    for command, purpose in steps:
        if beside:
            lines.append(Text.assemble(f"  {command:<{longest}}", (f"   {purpose}", "dim")))
        else:
            lines += [Text(f"  {purpose}", "dim"), Text(f"    {command}")]
    return lines
