"""Named policies: a word → `RulePolicy`. The library is the table `PRESETS`; each entry is written like a policy file.

A preset decides about every call by itself, so it means the same in every permission mode. Only owned tools are
allowed: they cannot leave the workspace, whatever path a call names. A runtime's own tools cannot be confined.
"""

import functools
from pathlib import Path
from typing import NamedTuple

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.obeyed import OBEYED_ROOTS
from codesdk.policy.load import load_policy, parse_policy
from codesdk.policy.rules import RulePolicy

PRESET_PREFIX = "preset:"
"""Before a name, it says that the preset is meant, whatever files there are."""

_READING = """
[[rules]]
id = "{name}.reading-runs"
result = "allow"
tool = ["workspace.read", "workspace.list", "workspace.glob", "workspace.search", "user.ask"]
match = [{{ tool = "workspace.read", path = "src/main.py" }}]
not_match = [{{ tool = "http.fetch", host = "example.com" }}]
"""

# At any depth: somebody may work in a folder of the workspace as if it were one.
_MACHINERY = "\n    ".join(f'"**/{root}/**",' for root in OBEYED_ROOTS)
_EDITS = f"""
# What others run or obey later is asked about, although it lies in the workspace.
[[rules]]
id = "edits.machinery-asks"
result = "ask"
tool = ["workspace.write", "workspace.edit", "patch.apply"]
path = [
    {_MACHINERY}
]
reason = "This file is run or obeyed by other programs, such as git or an editor."
match = [
    {{ tool = "workspace.write", path = ".git/hooks/pre-commit" }},
    {{ tool = "workspace.write", path = ".git" }},
    {{ tool = "patch.apply", path = ["README.md", "lib/.git/config"] }},
]
not_match = [{{ tool = "workspace.write", path = ".gitignore" }}]

[[rules]]
id = "edits.edits-run"
result = "allow"
tool = ["workspace.write", "workspace.edit", "patch.apply"]
match = [
    {{ tool = "workspace.edit", path = "src/main.py" }},
    {{ tool = "patch.apply", path = ["README.md", "docs/guide.md"] }},
]
not_match = [{{ tool = "workspace.exec", argv = ["rm", "README.md"] }}]
{_READING.format(name="edits")}
[[rules]]
id = "edits.the-rest-asks"
result = "ask"
reason = "Only edits of the workspace and reading in it run without a question."
match = [
    {{ tool = "workspace.exec", argv = ["make"] }},
    {{ tool = "http.fetch", host = "example.com" }},
    {{ tool = "Write", path = "README.md" }},
]
"""

_READ_ONLY = f"""{_READING.format(name="read-only")}
[[rules]]
id = "read-only.the-rest-is-denied"
result = "deny"
reason = "This session may only read in the workspace. Say what you would change."
match = [{{ tool = "workspace.edit", path = "README.md" }}, {{ tool = "workspace.exec", argv = ["ls"] }}]
"""


class Preset(NamedTuple):
    """A policy of the library."""

    summary: str
    text: str
    """Its rules, as a policy file has them."""


PRESETS: dict[str, Preset] = {
    "edits": Preset("Edits inside the workspace run, everything else asks.", _EDITS),
    "read-only": Preset("Reading in the workspace runs, everything else is denied.", _READ_ONLY),
}


@functools.cache
def preset_policy(name: str) -> RulePolicy:
    """Return the policy of a preset. Raise `InvalidRequest` if there is none of this name."""
    return parse_policy(preset_of(name).text, f"{PRESET_PREFIX}{name}")


def preset_of(name: str) -> Preset:
    """Return a preset, by its name or with the prefix. Raise `InvalidRequest` if there is none of this name."""
    found = PRESETS.get(name.removeprefix(PRESET_PREFIX))
    if found is None:
        raise InvalidRequest(
            f"There is no policy {name[:100]!r}. Presets: {', '.join(PRESETS)}."
            " A policy in a file is read by load_policy."
        )
    return found


def choose_policy(given: str) -> RulePolicy:
    """Return the policy that an operator names: a preset, or a file.

    A preset's name never means a file. Where a file has the same name, it is refused: someone who wrote that file
    would otherwise be given rules that are not theirs.
    """
    if given.startswith(PRESET_PREFIX):
        return preset_policy(given.removeprefix(PRESET_PREFIX))
    if given not in PRESETS:
        return load_policy(given)
    if Path(given).is_file():
        raise InvalidRequest(
            f"{given} is the name of a preset, and there is a file of that name here."
            f" Write ./{given} for the file, or {PRESET_PREFIX}{given} for the preset."
        )
    return preset_policy(given)
