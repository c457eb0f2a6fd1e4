"""The actions of minicode's plugins as commands of the chat."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from codesdk import __version__
from codesdk.cli.view.safe import one_line
from codesdk.contract.errors import CodeSDKError

if TYPE_CHECKING:
    from codesdk.cli.chat.conversation import Conversation
    from codesdk.minicode.plugins import Composition


class Actions:
    """Loaded when they are first needed: plugins are code, and most people have none."""

    def __init__(self, chat: "Conversation") -> None:
        self._chat = chat
        self._loaded: Composition | None = None

    async def load(self, taken: Iterable[str]) -> None:
        """Load the plugins of the global configuration, once. One that cannot be used is named, and left out."""
        if self._loaded is not None:
            return
        from codesdk.minicode.config import load_config
        from codesdk.minicode.plugins import PluginError, load_plugins

        problems: list[PluginError] = []
        try:
            config = load_config(self._chat.workspace)
            if not config.plugins:
                return
            self._loaded = await load_plugins(
                config, sdk_version=__version__, taken_actions=taken, problems=problems
            )
        except CodeSDKError as error:
            self._chat.say(f"minicode's configuration cannot be used: {error.message}", "yellow")
        for problem in problems:
            self._chat.say(problem.message, "yellow")

    def summaries(self) -> dict[str, str]:
        """Return the actions and what they are."""
        if self._loaded is None:
            return {}
        return {action.id: one_line(action.title, 100) for action in self._loaded.actions}

    async def run(self, name: str, words: str) -> bool:
        """Run an action by its id or an alias, and show what it returns. Return whether there is one."""
        loaded = self._loaded
        if loaded is None or not any(name in (one.id, *one.aliases) for one in loaded.actions):
            return False
        from codesdk.minicode.plugins import ActionContext

        session = self._chat.session
        context = ActionContext(
            arguments=words, cwd=self._chat.workspace, session_id=None if session is None else session.id
        )
        said = await loaded.run_action(name, context)
        if said:
            self._chat.show(self._chat.paint.others(said))
        return True
