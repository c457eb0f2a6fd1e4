"""Keys → what they do. A key that answers does so only while the host says that it may; all others edit the line."""

from typing import NamedTuple, Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys


class Host(Protocol):
    """Is told what is typed and pressed."""

    def enter(self, text: str) -> bool:
        """Take a line. Return whether it was taken; if not, it stays where it is."""
        ...

    def answers(self, key: str) -> bool:
        """Return whether a key would answer what is asked."""
        ...

    def answer(self, key: str) -> None:
        """Take such a key."""
        ...

    def paste(self, text: str) -> str:
        """Return what goes into the line for a text that was pasted."""
        ...

    def interrupt(self, typed: bool) -> bool:
        """Take a Ctrl-C. Return whether it clears the line."""
        ...

    def leave(self) -> None:
        """Take a Ctrl-D on an empty line."""
        ...

    def pressed(self) -> None:
        """Note that a key was pressed, whatever it did."""
        ...


class Key(NamedTuple):
    """A line of the table of keys."""

    keys: str
    meaning: str


TABLE = (
    Key("Enter", "send; while a task runs, steer it where the runtime can, else queue"),
    Key("Alt-Enter, Ctrl-J", "a new line"),
    Key("y n a r s", "answer what is asked, while the line is empty"),
    Key("Tab", "complete a command or an @file"),
    Key("Up, Down", "earlier lines"),
    Key("Ctrl-R", "search earlier lines"),
    Key("Ctrl-C", "stop the task; again: leave. Without a task: clear the line; again: leave"),
    Key("Ctrl-D", "leave, on an empty line"),
    Key("Ctrl-L", "draw the screen again"),
)
ANSWERING = "ynars"


def bindings(host: Host, buffer: Buffer) -> KeyBindings:
    """Return what the keys do, beside those that edit the line."""
    keys = KeyBindings()
    typing = ~is_searching

    @keys.add("enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.complete_state = None
        elif host.enter(buffer.text):
            buffer.reset(append_to_history=True)

    @keys.add("escape", "enter", filter=typing)
    @keys.add("c-j", filter=typing)
    def _(event: KeyPressEvent) -> None:
        buffer.newline(copy_margin=False)

    for key in ANSWERING:
        _add_answer(keys, host, key)

    @keys.add(Keys.BracketedPaste, filter=typing)
    def _(event: KeyPressEvent) -> None:
        buffer.insert_text(host.paste(event.data))

    @keys.add("c-c", filter=typing)
    def _(event: KeyPressEvent) -> None:
        if host.interrupt(bool(buffer.text)):
            buffer.reset(append_to_history=True)  # cleared, but not lost: it is one key up

    @keys.add("c-d", filter=typing & Condition(lambda: not buffer.text))
    def _(event: KeyPressEvent) -> None:
        host.leave()

    return keys


def _add_answer(keys: KeyBindings, host: Host, key: str) -> None:
    @keys.add(key, filter=Condition(lambda: host.answers(key)) & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        host.answer(key)
