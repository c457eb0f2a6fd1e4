"""A registry of npm on loopback with packages of our own, for the real npm: what it serves, and how it misbehaves."""

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from codesdk.contract.entry import NpmPackage, ProgramEntry

NAME = "little-agent"
SOURCE = NpmPackage(name=NAME, lock=NAME, program=f"{NAME}/agent.js", node=18)
PROGRAM = ProgramEntry(command=NAME, version="1.2.3", source=SOURCE)


def tarball(name: str, version: str, **said: Any) -> bytes:
    """Return a package as npm publishes it."""
    files = {
        "package.json": json.dumps({"name": name, "version": version, **said}),
        "agent.js": f"#!/usr/bin/env node\nconsole.log({json.dumps(name)}, process.argv.length)\n",
        "script.js": "require('fs').writeFileSync('ran-by-a-script', '')\n",
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


def integrity(data: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


class Registry:
    """What is published, what was asked for, and whether answers wait."""

    def __init__(self) -> None:
        helper = tarball("little-helper", "2.0.0", scripts={"install": "node script.js"})
        agent = tarball(NAME, "1.2.3", dependencies={"little-helper": "^2.0.0"}, engines={"node": ">=18"})
        self.packages = {("little-helper", "2.0.0"): helper, (NAME, "1.2.3"): agent}
        self.served = dict(self.packages)
        self.taken: list[str] = []
        self.asked = threading.Event()
        """Set when the first tarball is asked for."""
        self.go_on = threading.Event()
        """Tarballs wait for it."""
        self.go_on.set()
        self.url = ""

    def write_lock(self, folder: Path) -> None:
        """Write the lock of the agent, as `make lock` would."""
        folder.mkdir(parents=True, exist_ok=True)
        root = {"name": "codesdk-little", "dependencies": {NAME: "1.2.3"}}
        packages: dict[str, Any] = {"": root}
        for (name, version), data in self.packages.items():
            packages[f"node_modules/{name}"] = {"version": version, "integrity": integrity(data)}
        packages[f"node_modules/{NAME}"]["dependencies"] = {"little-helper": "^2.0.0"}
        packages["node_modules/little-helper"]["hasInstallScript"] = True
        lock = {"name": "codesdk-little", "lockfileVersion": 3, "requires": True, "packages": packages}
        (folder / "package.json").write_text(json.dumps({**root, "private": True}))
        (folder / "package-lock.json").write_text(json.dumps(lock))

    @contextmanager
    def serving(self) -> Iterator[None]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry._answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            self.go_on.set()
            server.shutdown()
            thread.join()
            server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        name, _, file = request.path.lstrip("/").partition("/-/")
        if file:
            self.taken.append(name)
            self.asked.set()
            self.go_on.wait(60)
            body = self.served.get((name, file.removesuffix(".tgz")))
        else:
            body = self._described(name)
        request.send_response(200 if body is not None else 404)
        request.send_header("content-length", str(len(body or b"")))
        request.end_headers()
        try:
            request.wfile.write(body or b"")
        except OSError:
            pass  # whoever asked was killed meanwhile

    def _described(self, name: str) -> bytes | None:
        versions = {
            version: {
                "name": name,
                "version": version,
                "dist": {
                    "tarball": f"{self.url}/{name}/-/{version}.tgz",
                    "integrity": integrity(self.served[name, version]),
                },
            }
            for package, version in self.packages
            if package == name
        }
        newest = max(versions, default="")
        found = {"name": name, "dist-tags": {"latest": newest}, "versions": versions}
        return json.dumps(found).encode() if versions else None
