import pytest
from tests.cli.shell import Shell

EDIT = """
name: Fix a typo
loop: true
turns:
  - steps:
      - reasoning: I should look first.
      - text: ["Let me ", "read it."]
      - call: {tool: workspace.read, input: {path: hello.txt}}
    usage: {input: 120, output: 18, cost_usd: 0.0005}
  - steps:
      - text: There is a typo.
      - call: {tool: workspace.edit, input: {path: hello.txt, old: Helo, new: Hello}}
    usage: {input: 150, output: 22, cost_usd: 0.0007}
  - steps:
      - text: Done.
"""


@pytest.fixture
def shell(tmp_path) -> Shell:
    shell = Shell(tmp_path)
    (shell.workspace / "hello.txt").write_text("Helo, world\n")
    return shell


@pytest.fixture(scope="session")
def stored(tmp_path_factory) -> Shell:
    """A directory with one completed session. Only to be looked at."""
    shell = Shell(tmp_path_factory.mktemp("stored"))
    (shell.workspace / "hello.txt").write_text("Helo, world\n")
    done = shell.run(EDIT, "--title", "A typo")
    assert done.code == 0, done.err
    return shell
