"""A program that speaks the Agent Client Protocol, well or badly: `pretender.py DEED [PHASE]`. Run by tests, not imported."""

import json
import os
import subprocess
import sys

DEED, PHASE = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
SESSION = "s-1"
GOES_ON = ("loads", "loads-unanswered", "resumes", "only-resumes", "goes-on-with-nothing")
"""Deeds of an agent that says by which requests it came to its session."""
asked = []
tools = []
ALLOW = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "once", "name": "Once", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


def send(**frame):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
    sys.stdout.flush()


def update(what, **fields):
    params = {"sessionId": SESSION, "update": {"sessionUpdate": what, **fields}}
    send(method="session/update", params=params)


def say(text):
    update("agent_message_chunk", content={"type": "text", "text": text})


def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def ask(method, params):
    """Ask the client, and return its answer, whatever it says in between."""
    send(id=77, method=method, params=params)
    while True:
        frame = read()
        if frame.get("id") == 77:
            return frame


def flood():
    """Say something that nobody asked for, until nobody listens any more."""
    while True:
        say("x" * 10_000)


def initialize(number):
    if DEED == "v2-only":
        send(id=number, error={"code": -32602, "message": "info and capabilities are missing"})
        return
    version = 2 if DEED == "v2" else 1
    info = {} if DEED == "nameless" else {"agentInfo": {"name": "pretender", "version": "9.9.9-nobody"}}
    can = {}
    if DEED in ("dies", "mute", "flood-in", "forgets", *GOES_ON) and DEED != "only-resumes":
        can["loadSession"] = True
    if DEED in GOES_ON:
        can["sessionCapabilities"] = {"resume": {}}
    send(id=number, result={"protocolVersion": version, "agentCapabilities": can, **info})


def begin(number):
    if DEED == "wants-login":
        send(id=number, error={"code": -32000, "message": "Authentication required"})
        return
    send(id=number, result={"sessionId": SESSION, "something": "new"})


def go_on(number, method):
    """Load a session, which is told again, or resume it; refuse what the deed does not have."""
    if DEED.startswith("loads") and method == "session/load":
        update("user_message_chunk", content={"type": "text", "text": "Hello."})
        say("Done.")
        if DEED == "loads-unanswered":
            update("user_message_chunk", content={"type": "text", "text": "Go on."})
        send(id=number, result={})
    elif DEED in ("resumes", "only-resumes") and method == "session/resume":
        send(id=number, result={})
    else:
        send(id=number, error={"code": -32602, "message": "no such session"})


class Tools:
    """A client of the MCP server that a session is begun with, which is a program."""

    def __init__(self, server):
        given = {each["name"]: each["value"] for each in server["env"]}
        self.child = subprocess.Popen(
            [server["command"], *server["args"]],
            env={**os.environ, **given},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.number = 0
        client = {"name": "pretender", "version": "1"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        self.write(method="notifications/initialized")
        self.names = [tool["name"] for tool in self.ask("tools/list")["tools"]]

    def write(self, **frame):
        print(json.dumps({"jsonrpc": "2.0", **frame}), file=self.child.stdin, flush=True)

    def ask(self, method, **params):
        self.number += 1
        self.write(id=self.number, method=method, params=params)
        while True:
            frame = json.loads(next(iter(self.child.stdout or [])))
            if frame.get("id") == self.number:
                return frame["result"]


def call_tool():
    """Call a tool of ours through the program, and say what came of it."""
    [client] = tools
    name = next(name for name in client.names if name.endswith("workspace_read"))
    given = {"path": "notes.txt"}
    update("tool_call", toolCallId="c1", title="workspace_read", status="in_progress", rawInput=given)
    result = client.ask("tools/call", name=name, arguments=given)
    update("tool_call_update", toolCallId="c1", status="completed")
    say("".join(part["text"] for part in result["content"]))


def call(status, **more):
    update("tool_call", toolCallId="c1", title="run_shell", status=status, kind="execute", **more)


def prompt(number, params):  # noqa: C901 - one case for each deed
    match DEED:
        case _ if DEED in GOES_ON:
            words = "".join(block.get("text", "") for block in params["prompt"])
            # The first process only answers, so that the next one has something to load.
            begun = asked == ["initialize", "session/new", "session/prompt"]
            if DEED == "loads-unanswered" and "session/new" in asked and not begun:
                send(id=number, error={"code": -32603, "message": "Something broke"})
                return
            say("Done." if begun else f"{' '.join(asked)}: {words}")
        case "shows":
            say(os.environ["SHOWN"])
        case "endless":
            flood()
        case "calls-by-program":
            call_tool()
        case "flood":
            for n in range(20_000):
                update("dream_update", number=n)
            say("Done.")
        case "huge":
            sys.stdout.write("x" * (100 << 20) + "\n")
            say("Done.")
        case "huge-frame":
            say("x" * (100 << 20))
            say("Done.")
        case "dies-in-call":
            update(
                "tool_call",
                toolCallId="c1",
                title="workspace_read",
                status="in_progress",
                rawInput={"path": "a"},
            )
            sys.exit(3)
        case "dies-asking":
            question = {"toolCallId": "c1", "title": "workspace_read", "rawInput": {"path": "a"}}
            send(
                id=77,
                method="session/request_permission",
                params={"sessionId": SESSION, "toolCall": question, "options": ALLOW},
            )
            sys.exit(3)
        case "native":
            call("in_progress", rawInput={"command": "id"})
            read()  # until it is ended
        case "native-pending":
            call("pending", rawInput={"command": "id"})
            read()
        case "native-asks":
            question = {"toolCallId": "c1", "title": "run_shell", "rawInput": {"command": "id"}}
            ask("session/request_permission", {"sessionId": SESSION, "toolCall": question, "options": ALLOW})
            read()
        case "own-asks":
            question = {"toolCallId": "c1", "title": "workspace_read", "rawInput": {"path": "notes.txt"}}
            answer = ask(
                "session/request_permission", {"sessionId": SESSION, "toolCall": question, "options": ALLOW}
            )
            update("tool_call_update", toolCallId="c1", status="failed")
            say(json.dumps(answer["result"]["outcome"]))
        case "asks-more":
            answers = [
                ask(method, {}) for method in ("fs/read_text_file", "terminal/create", "no/such/thing")
            ]
            say(json.dumps([answer["error"]["code"] for answer in answers]))
        case "deaf":
            say("Once upon ")
            while True:
                read()
        case "asks-when-stopped":
            say("Once upon ")
            read()  # session/cancel
            question = {"toolCallId": "c1", "title": "workspace_read", "rawInput": {"path": "notes.txt"}}
            answer = ask(
                "session/request_permission", {"sessionId": SESSION, "toolCall": question, "options": ALLOW}
            )
            say(answer["result"]["outcome"]["outcome"])
            send(id=number, result={"stopReason": "cancelled"})
            return
        case "acknowledges":
            send(id=number, result={"messageId": "m1"})
            update("state_update", state="running")
            say("Done.")
            update("state_update", state="idle", stopReason="end_turn")
            return
        case "refuses":
            send(
                id=number, error={"code": -32603, "message": "Something broke", "data": {"details": "inside"}}
            )
            return
        case "told":
            say("".join(block.get("text", "") for block in params["prompt"]))
        case "mumbles":
            sys.stdout.write("Welcome!\n[]\nnull\n")
            say("Done.")
        case _:
            say("Half " if PHASE == "mid-turn" else "Done.")
    if PHASE == "mid-turn":
        sys.exit(3)
    send(id=number, result={"stopReason": "end_turn"})
    if DEED == "dies-afterwards":
        sys.exit(3)


if DEED == "silent":
    while True:
        read()
while True:
    frame = read()
    method = frame.get("method")
    asked.append(method)
    if DEED == "dies" and method == PHASE:
        sys.stderr.write("I give up.\n")
        sys.exit(3)
    if DEED == "mute" and method == PHASE:
        continue
    if DEED == "flood-in" and method == PHASE:
        flood()
    if method == "initialize":
        initialize(frame["id"])
    elif method == "session/new":
        if DEED == "calls-by-program":
            tools.append(Tools(frame["params"]["mcpServers"][0]))
        begin(frame["id"])
    elif method in ("session/load", "session/resume") and DEED in GOES_ON:
        go_on(frame["id"], method)
    elif method == "session/set_mode" and DEED != "own-asks":
        send(id=frame["id"], result={})
    elif method == "session/prompt":
        prompt(frame["id"], frame["params"])
    elif "id" in frame and method is not None:
        send(id=frame["id"], error={"code": -32601, "message": "no such method"})
