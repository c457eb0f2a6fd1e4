"""docs/configuration.md's tables, from the table of settings. `python -m tests.docs.settings_page` writes them."""

import re
from pathlib import Path

from codesdk.cli.settings.flags import shown_default
from codesdk.cli.settings.kinds import is_list, is_switch
from codesdk.cli.settings.table import DAEMON, Setting

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
GROUPS = {"general": "", "commands": "commands.", "fetch": "fetch.", "limits": "limits."}


def fill(text: str) -> str:
    """Return the page with its tables as they should be."""
    for name in GROUPS:
        pattern = rf"(<!-- settings: {name} -->\n).*?(<!-- end -->)"
        table = "\n".join(["| key | flag | default | |", "|---|---|---|---|", *rows(name)])
        text = re.sub(
            pattern, lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text, flags=re.DOTALL
        )
    return text


def rows(group: str) -> list[str]:
    """Return the lines of one table."""
    prefixes = tuple(prefix for prefix in GROUPS.values() if prefix)
    chosen = [
        each
        for each in DAEMON
        if (each.key.startswith(GROUPS[group]) if GROUPS[group] else not each.key.startswith(prefixes))
    ]
    return [_row(each) for each in chosen]


def _row(setting: Setting) -> str:
    flag = f"{setting.flag} {setting.member}=N" if setting.member else setting.flag
    default = "off" if is_switch(setting.kind) and not setting.default else shown_default(setting)
    several = " A list." if is_list(setting.kind) else ""
    variable = f" `{setting.env}` sets it, too." if setting.env else ""
    return f"| `{setting.key}` | `{flag}` | {f'`{default}`' if default else ''} | {setting.help}{several}{variable} |"


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text()))
