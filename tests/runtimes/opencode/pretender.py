"""A program that stands in for `opencode serve`, to do what the real one never should. Run as a script of its own.

`MODE` says what it does; all else is as the real one does it, as far as a task looks at it.
"""

import base64
import http.server
import json
import os
import socket
import sys
import threading
import time
from typing import Any

MODE = "MODE"
VERSION = "VERSION"
SESSION = "ses_000000000001aaaaaaaaaaaaaa"
RULES = [
    {"permission": "*", "pattern": "*", "action": "deny"},
    {"permission": "doom_loop", "pattern": "*", "action": "allow"},
    {"permission": "codesdk_*", "pattern": "*", "action": "allow"},
]
PASSWORD = os.environ.get("OPENCODE_SERVER_PASSWORD", "")
LOGIN = "Basic " + base64.b64encode(f"opencode:{PASSWORD}".encode()).decode()
streams: list[Any] = []
connections: list[socket.socket] = []
waiting: list[Any] = []
title = "CodeSDK"
answered = threading.Event()


def event(kind: str, **properties: Any) -> bytes:
    told = {"id": "evt_1", "type": kind, "properties": {"sessionID": SESSION, **properties}}
    return b"data: " + json.dumps(told).encode() + b"\n\n"


def send(data: bytes) -> None:
    for stream in streams:
        stream.write(data)
        stream.flush()


def answer(text: str = "Hello.") -> dict[str, Any]:
    """Say something as the model, and return the answer that ends a task."""
    info = {"id": "msg_2", "role": "assistant", "sessionID": SESSION}
    part = {"id": "prt_2", "messageID": "msg_2", "sessionID": SESSION, "type": "text", "text": text}
    ended = {**part, "time": {"start": 1, "end": 2}}
    send(event("message.updated", info=info))
    send(event("message.part.updated", part={**part, "text": "", "time": {"start": 1}}))
    send(event("message.part.delta", messageID="msg_2", partID="prt_2", field="text", delta=text))
    send(event("message.part.updated", part=ended))
    done = {
        "id": "prt_3",
        "messageID": "msg_2",
        "sessionID": SESSION,
        "type": "step-finish",
        "reason": "stop",
    }
    send(event("message.part.updated", part=done))
    return {"info": {**info, "finish": "stop"}, "parts": [ended]}


def native(status: str, **more: Any) -> bytes:
    """Return the event of a call of opencode's own tool."""
    state = {"status": status, "input": {"command": "id"}, **more}
    part = {"id": "prt_9", "messageID": "msg_2", "sessionID": SESSION, "type": "tool", "tool": "bash"}
    info = {"id": "msg_2", "role": "assistant", "sessionID": SESSION}
    return event("message.updated", info=info) + event("message.part.updated", part={**part, "state": state})


def misbehave() -> dict[str, Any]:
    """Do what the mode asks for when something is said."""
    if MODE == "dies in a task":
        os._exit(3)
    if MODE == "hangs up on its events":
        for connection in connections:
            connection.shutdown(socket.SHUT_RDWR)
        time.sleep(600)
    if MODE == "floods":
        send(event("nobody.knows", text="x" * 1_000) * 20_000)
    if MODE == "sends a large event":
        send(event("message.part.updated", part={"type": "text", "text": "x" * 100_000_000}))
    if MODE == "sends garbage events":
        send(b"data: {nonsense\n\ndata: []\n\nfoo\xff\n\n: a comment\n\n")
    if MODE == "runs a tool":
        send(native("running", metadata={"output": ""}))
        time.sleep(600)
    if MODE == "asks for a tool":
        send(event("permission.asked", id="per_1", permission="bash", patterns=["id"]))
        answered.wait(60)
    if MODE == "leaves a question":
        waiting.append({"id": "per_1", "sessionID": SESSION})
        answer()
        answered.wait(60)
        info = {"id": "msg_2", "role": "assistant", "error": {"name": "MessageAbortedError", "data": {}}}
        return {"info": info, "parts": []}
    if MODE == "asks for ours":
        send(event("permission.asked", id="per_1", permission="codesdk_workspace_read", patterns=["*"]))
        answered.wait(60)
    return answer()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def reply(self, told: Any, status: int = 200) -> None:
        data = told if isinstance(told, bytes) else json.dumps(told).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_one(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        if self.headers.get("authorization") != LOGIN:
            self.reply({"name": "Unauthorized"}, 401)
            return
        self.route(self.path.split("?")[0], body)

    do_GET = do_POST = do_PATCH = handle_one  # noqa: N815 - as the base class has them

    def route(self, path: str, body: Any) -> None:
        global title
        if MODE == "dies when it is greeted":
            os._exit(4)
        if MODE == "answers garbage":
            self.reply(b"<html>It works!</html>")
        elif path == "/global/health":
            self.reply({"healthy": True, "version": VERSION})
        elif path == "/agent":
            rules = RULES[:1] if MODE == "ignores its rules" else RULES
            self.reply([{"name": "codesdk", "permission": rules}])
        elif path == "/mcp":
            state = {"status": "failed", "error": "no"} if MODE == "has no tools" else {"status": "connected"}
            self.reply({"codesdk": state})
        elif path == "/event":
            self.stream()
        elif path == "/permission":
            self.reply(waiting)
        elif path.startswith("/permission/"):
            waiting.clear()
            answered.set()
            self.reply(True)
            send(event("permission.replied", reply=body["reply"]))
        elif path == "/session":
            self.reply({"id": SESSION})
        elif path.endswith("/message"):
            self.reply(b"x" * 70_000_000 if MODE == "answers at length" else misbehave())
        elif path.endswith("/abort"):
            self.reply(True)
        else:
            title = body["title"]
            self.reply({"id": SESSION})
            send(event("session.updated", info={"id": SESSION, "title": title}))

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        streams.append(self.wfile)
        connections.append(self.connection)
        send(b'data: {"type": "server.connected", "properties": {}}\n\n')
        time.sleep(600)


if __name__ == "__main__":
    if MODE == "never says its port":
        print("Warning: something is odd.", flush=True)
        time.sleep(600)
    if MODE == "dies at once":
        print("no space left", file=sys.stderr, flush=True)
        sys.exit(5)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"opencode server listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
