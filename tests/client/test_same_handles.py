"""The client's handles are the library's own; the synchronous ones are generated from them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_synchronous_client_is_what_the_generator_makes():
    argv = [sys.executable, str(ROOT / "scripts" / "generate-sync"), "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_the_client_loads_no_http_library_no_engine_and_no_database():
    heavy = ("httpx2", "sqlite3", "rich", "click", "codesdk.engine", "codesdk.store", "codesdk.handles")
    code = f"import codesdk.client, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
