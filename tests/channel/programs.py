"""Programs that speak the channel, well or badly: `python programs.py NAME FILE`. Each tool that one runs is a line in FILE.

They use nothing of CodeSDK, so that they start fast and misunderstand nothing.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

MARKER = "@@MEM_TOOL_EVENT@@ "


def say(kind: str, name: str, stream: int = 1, **fields: Any) -> None:
    line = MARKER + json.dumps({"v": 1, "type": kind, "ts": 1, "id": name, **fields}) + "\n"
    os.write(stream, line.encode())


def request(name: str, tool: str, stream: int = 1, **fields: Any) -> None:
    given = {"action": "exec", "args": {"n": name}, "requires_policy": True, **fields}
    say("tool.request", name, stream, tool=tool, **given)


def execute(tool: str) -> None:
    with Path(sys.argv[2]).open("a") as file:
        file.write(f"{tool}\n")


def decision(name: str) -> str:
    """Wait for a decision; the end of stdin is a no."""
    for line in sys.stdin:
        command = json.loads(line)
        if command["type"] == "policy.abort":
            sys.exit(3)
        if command["type"] == "policy.decision" and command["id"] == name:
            return command["decision"]
    return "deny"


def call(name: str, tool: str, stream: int = 1) -> None:
    """One call, as it should be."""
    request(name, tool, stream)
    allowed = decision(name) == "allow"
    if allowed:
        execute(tool)
    say("tool.result", name, stream, ok=allowed, error=None if allowed else "denied")


def good() -> None:
    print("before", flush=True)
    call("a", "ok.read")
    call("b", "shell", stream=2)
    sys.stderr.write("a word on stderr\n")
    print("after", flush=True)
    sys.exit(7)


def many() -> None:
    """As many calls as the third argument says, fifty at a time."""
    count = int(sys.argv[3])
    allowed = done = sent = 0
    while done < count:
        while sent < count and sent - done < 50:
            request(f"t{sent}", "ok.step", action="read")
            sent += 1
        command = json.loads(sys.stdin.readline())
        if command["type"] == "policy.decision":
            done += 1
            allowed += command["decision"] == "allow"
            say("tool.result", command["id"], ok=command["decision"] == "allow", output=command["id"])
    print(f"allowed {allowed}")


def flood() -> None:
    for number in range(20_000):
        print(f"line {number} of a great many that say nothing at all")
    sys.stdout.flush()
    call("a", "ok.read")
    os.write(1, b"{" * 300_000 + b"\n")
    call("b", "shell")


def flood_of_requests() -> None:
    for number in range(3_000):
        request(f"f{number}", "shell")
    for number in range(3_000):
        if decision(f"f{number}") == "allow":
            execute("shell")


def partial_lines() -> None:
    event = MARKER + json.dumps(
        {"v": 1, "type": "tool.request", "ts": 1, "id": "a", "tool": "ok", "requires_policy": True}
    )
    for character in event:
        os.write(1, character.encode())
    os.write(1, b"\n")
    if decision("a") == "allow":
        execute("ok")
    say("tool.result", "a", ok=True)
    os.write(1, b"@@MEM_TOOL_EV")
    os.write(1, b'ENT@@ {"v":1,"type":"tool.req')


def invalid_utf8() -> None:
    os.write(1, b"\xff\xfe\x00 raw \x80\n")
    os.write(1, MARKER.encode() + b'{"v":1,"type":"tool.request","id":"\xff"}\n')
    os.write(2, b'{"v":1,"type":"\xc3\x28"}\n')
    call("a", "shell")


def long_lines() -> None:
    sys.stdout.write("x" * 10_000_000 + "\n")
    sys.stdout.write('{"v":1,"type":"tool.request","pad":"' + "y" * 10_000_000 + '"}\n')
    sys.stdout.write(MARKER + "z" * 10_000_000 + "\n")
    sys.stdout.flush()
    call("a", "shell")


def closes_stdin() -> None:
    os.close(0)
    request("a", "wait")
    request("b", "shell")
    signal.pause()


def exits_while_pending() -> None:
    request("a", "wait")
    sys.exit(4)


def ignores_denial() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    request("a", "shell")
    decision("a")
    say("tool.result", "a", ok=True, output="did it anyway")
    while True:
        signal.pause()


def duplicate_ids() -> None:
    request("a", "ok")
    request("a", "shell")
    if decision("a") == "allow":
        execute("ok")
    say("tool.result", "a", ok=True)
    request("a", "shell")
    say("tool.result", "a", ok=True)


def unknown_ids() -> None:
    say("tool.result", "nobody", ok=True)
    say("tool.progress", "nobody", stage="lost")
    say("policy.ack", "nobody")
    call("a", "shell")


def does_not_wait() -> None:
    request("a", "tell", requires_policy=False)
    say("tool.result", "a", ok=True)


def stays_without_waiting() -> None:
    does_not_wait()
    signal.pause()


def lies_about_waiting() -> None:
    request("a", "wait")
    say("tool.result", "a", ok=True)
    call("b", "shell")


def broken_requests() -> None:
    for number in range(200):
        os.write(1, MARKER.encode() + b'{"v":1,"type":"tool.request","ts":1,"id":"r%d"}\n' % number)
    for number in range(200):
        if decision(f"r{number}") == "allow":
            execute("broken")


def never_reads() -> None:
    """Fill stdin until a write to it waits, and read nothing of it."""
    for number in range(5_000):
        request(f"n{number}", "shell")
    signal.pause()


def never_done() -> None:
    """Run what is allowed, and never say that it is over."""
    request("a", "ok.read")
    if decision("a") == "allow":
        execute("ok.read")
    signal.pause()


def talks_while_it_waits() -> None:
    """Ask, and go on talking, in a line that has no end and begins like an event."""
    request("a", "wait")
    os.write(1, b"{still} here? ")
    decision("a")


def speaks_badly() -> None:
    """Print what is no event, make a call, and wait for the order to end."""
    os.write(2, MARKER.encode() + b"{nonsense\n")
    call("a", "ok")
    decision("never")


def outputs_closed() -> None:
    os.close(1)
    os.close(2)
    signal.pause()


def leaves_a_child() -> None:
    """End, with a child that holds the outputs and ignores SIGTERM."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        execute(f"pid {os.getpid()}")
        while True:
            time.sleep(60)
    request("a", "shell")
    decision("a")
    say("tool.result", "a", ok=True)
    signal.pause()


def waits() -> None:
    """Ask, and run only what is allowed; say on FILE that it asks."""
    call("a", "wait")


def walks() -> None:
    """Make two calls that may run, and one that waits."""
    for name, tool in (("a", "ok.a"), ("b", "ok.b"), ("c", "wait")):
        call(name, tool)


def outlives() -> None:
    """Do the same, and go on whatever becomes of stdin, with a child that goes on as well. Neither heeds a signal."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() != 0:
        try:
            walks()
        except OSError:
            pass  # nobody reads what it prints
    while True:
        time.sleep(60)


def forever() -> None:
    while True:
        print("still here", flush=True)
        time.sleep(0.01)


def interrupted() -> None:
    signal.signal(signal.SIGINT, lambda *_: sys.exit(42))
    execute("ready")
    while True:
        signal.pause()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
