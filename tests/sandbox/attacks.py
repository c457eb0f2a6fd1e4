"""The attacks on a sandbox, as data: a program that tries, and the words it must print in each backend.

A program runs under `/usr/bin/python3 -I -c`, in the workspace that `stage.py` lays out, and is told
what there is to reach (ports, paths, a process) as JSON in its first argument. Each attempt prints one
word: `REACHED` if it got there, `nothing` if it found nothing, or the name of the error that stopped it.
Rows are numbered as in docs/sandbox.md; 8, 9, 38 and 39 concern the file tools and are tested with them.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from codesdk.sandbox.backend import SandboxLimits

Backend = Literal["bubblewrap", "oci"]
Defence = Literal["seccomp", "empty_env", "drop_root", "protected_git"]
Words = tuple[str, ...]
MB = 1 << 20

SECRET = "canary-5f1c09"
"""What must not be found: it is in the environment of whoever starts the sandbox, and in a file outside."""

PRELUDE = '''
import ctypes, errno, json, os, signal, socket, stat, struct, sys
stage = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
libc = ctypes.CDLL(None, use_errno=True)

def say(word):
    print(word, flush=True)

def attempt(act, *args):
    """Print whether an act goes through, or the name of the error that stops it."""
    try:
        act(*args)
        say("REACHED")
    except socket.gaierror as error:
        say({socket.EAI_AGAIN: "EAI_AGAIN", socket.EAI_NONAME: "EAI_NONAME"}.get(error.errno, str(error)))
    except OSError as error:
        say(errno.errorcode.get(error.errno, str(error)))

def syscall(number, *args):
    wide = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = libc.syscall(ctypes.c_long(number), *wide)
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall")
    return result

def call(name, *args):
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)

def read(path):
    with open(path, "rb") as file:
        return file.read()

def write(path, data=b"changed"):
    with open(path, "wb") as file:
        file.write(data)

def touch(path):
    os.close(os.open(path, os.O_WRONLY))
'''


class Attack(NamedTuple):
    """One attempt. `without` says what it gets when one defence is taken away from bubblewrap."""

    row: int
    name: str
    program: str
    expected: Mapping[Backend, Words]
    without: Mapping[Defence, Words] = {}
    limits: SandboxLimits = SandboxLimits(wall_s=60)

    @property
    def argv(self) -> list[str]:
        """The command, to be followed by the stage as JSON."""
        return ["/usr/bin/python3", "-I", "-c", PRELUDE + self.program]


def _same(*words: str) -> dict[Backend, Words]:
    return {"bubblewrap": words, "oci": words}


ATTACKS: list[Attack] = [
    Attack(1, "read the password file", "attempt(read, '/etc/shadow')", _same("ENOENT")),
    Attack(2, "read a credential elsewhere", "attempt(read, stage['credential'])", _same("ENOENT")),
    Attack(
        3,
        "find a secret in its own environment",
        "say('REACHED' if stage['secret'] in json.dumps(dict(os.environ)) else 'nothing')",
        _same("nothing"),
    ),
    Attack(
        4,
        "find a secret in the environment of any process",
        """
found = b""
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        found += read(f"/proc/{pid}/environ")
    except OSError:
        pass
say("REACHED" if stage["secret"].encode() in found else "nothing")
""",
        _same("nothing"),
        without={"empty_env": ("REACHED",)},
    ),
    Attack(
        5,
        "write to the system",
        "for path in ('/usr/attack', '/attack', '/etc/attack'): attempt(write, path)",
        _same("EROFS", "EROFS", "EROFS"),
    ),
    Attack(6, "write elsewhere", "attempt(write, stage['outside'] + '/attack')", _same("ENOENT")),
    Attack(
        7,
        "have the kernel run a program (open core_pattern for writing)",
        "attempt(touch, '/proc/sys/kernel/core_pattern')",
        _same("EACCES"),
        without={"drop_root": ("EROFS",)},
    ),
    Attack(
        10,
        "connect to a server on the host",
        "attempt(socket.create_connection, ('127.0.0.1', stage['port']), 5)",
        _same("ECONNREFUSED"),
    ),
    Attack(
        11,
        "send a datagram, ask for a name",
        """
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
attempt(udp.sendto, b"x", ("192.0.2.1", 53))
attempt(socket.getaddrinfo, "example.com", 443)
""",
        _same("ENETUNREACH", "EAI_AGAIN"),
    ),
    Attack(
        12,
        "connect to an abstract socket of the host",
        "attempt(lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + stage['abstract']))",
        _same("EAFNOSUPPORT"),
        without={"seccomp": ("ECONNREFUSED",)},
    ),
    Attack(
        13,
        "connect to a socket that lies in the workspace",
        "attempt(lambda: socket.socket(socket.AF_UNIX).connect(stage['socket']))",
        _same("EAFNOSUPPORT"),
        without={"seccomp": ("REACHED",)},
    ),
    Attack(
        13,
        "make a pair of sockets that could be aimed at it",
        """
attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)
attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_RAW)
""",
        {"bubblewrap": ("EPERM", "EPERM"), "oci": ("ENOSYS", "ENOSYS")},
        without={"seccomp": ("REACHED", "REACHED")},
    ),
    Attack(
        14,
        "open sockets that no namespace isolates",
        """
for family in (socket.AF_VSOCK, socket.AF_ALG, socket.AF_PACKET, socket.AF_NETLINK):
    kind = {socket.AF_ALG: socket.SOCK_SEQPACKET, socket.AF_NETLINK: socket.SOCK_RAW}.get(family, socket.SOCK_STREAM)
    protocol = 12 if family == socket.AF_NETLINK else 0  # netfilter; listing network interfaces is allowed
    attempt(socket.socket, family, socket.SOCK_RAW if family == socket.AF_PACKET else kind, protocol)
""",
        _same("EAFNOSUPPORT", "EAFNOSUPPORT", "EAFNOSUPPORT", "EAFNOSUPPORT"),
    ),
    Attack(
        14,
        "open a socket to the hypervisor",
        "attempt(socket.socket, socket.AF_VSOCK, socket.SOCK_STREAM)",
        _same("EAFNOSUPPORT"),
        without={"seccomp": ("REACHED",)},
    ),
    Attack(
        15,
        "kill, trace or hold a process of the host",
        """
attempt(os.kill, stage["pid"], 0)
attempt(syscall, 101, 16, stage["pid"], 0, 0)
attempt(syscall, 434, stage["pid"], 0)
""",
        _same("ESRCH", "EPERM", "ESRCH"),
    ),
    Attack(
        16,
        "trace the first process of the sandbox",
        "attempt(syscall, 101, 16, 1, 0, 0)",
        _same("EPERM"),
        without={"seccomp": ("REACHED",)},
        limits=SandboxLimits(wall_s=5),
    ),
    Attack(
        27,
        "gain rights from a setuid program",
        """
status = read("/proc/self/status").decode()
say("no_new_privs" if "NoNewPrivs:\\t1" in status else "REACHED")
say("no_capabilities" if "CapEff:\\t0000000000000000" in status else "REACHED")
say("not_root" if os.getuid() and os.geteuid() else "REACHED")
""",
        _same("no_new_privs", "no_capabilities", "not_root"),
    ),
    Attack(
        28,
        "leave a setuid program in the workspace",
        """
write("tool")
attempt(os.chmod, "tool", 0o4755)
attempt(lambda: os.close(os.open("other", os.O_CREAT | os.O_WRONLY, 0o4755)))
attempt(syscall, 452, -100, ctypes.c_char_p(b"tool"), 0o4755, 0)
say("REACHED" if any(os.stat(name).st_mode & 0o6000 for name in ("tool", "other") if os.path.exists(name)) else "nothing")
""",
        _same("EPERM", "EPERM", "EPERM", "nothing"),
        without={"seccomp": ("REACHED", "REACHED", "REACHED", "REACHED")},
    ),
    Attack(
        29,
        "change what is mounted, enter other namespaces",
        """
attempt(call, "mount", b"none", b"/tmp", b"tmpfs", 0, None)
attempt(call, "umount2", b"/tmp", 2)
attempt(call, "mount", b"none", b"/usr", None, 32 | 4096, None)
attempt(call, "setns", os.open("/proc/self/ns/net", os.O_RDONLY), 0)
attempt(syscall, 430, ctypes.c_char_p(b"tmpfs"), 0)
attempt(syscall, 155, ctypes.c_char_p(b"/tmp"), ctypes.c_char_p(b"/tmp"))
""",
        _same("EPERM", "EPERM", "EPERM", "EPERM", "EPERM", "EPERM"),
    ),
    Attack(
        30,
        "make a user namespace of its own",
        """
attempt(call, "unshare", 0x10000000)
attempt(syscall, 56, 0x10000000 | 17, 0, 0, 0, 0)
""",
        _same("EPERM", "EPERM"),
        without={"seccomp": ("ENOSPC", "ENOSPC")},
    ),
    Attack(
        31,
        "use the kernel's keyrings",
        """
attempt(syscall, 248, ctypes.c_char_p(b"user"), ctypes.c_char_p(b"attack"), ctypes.c_char_p(b"x"), 1, -2)
attempt(syscall, 250, 0, -2, 1)
""",
        _same("EPERM", "EPERM"),
        without={"seccomp": ("REACHED", "REACHED")},
    ),
    Attack(
        32,
        "type into the terminal of whoever started it",
        """
import fcntl
attempt(touch, "/dev/tty")
attempt(fcntl.ioctl, 0, 0x5412, b"x")
attempt(syscall, 16, 0, 0x100005412, ctypes.c_char_p(b"x"))
""",
        # The filter of containers cannot look at a part of an argument; there is no terminal either way.
        {"bubblewrap": ("ENXIO", "EPERM", "EPERM"), "oci": ("ENXIO", "ENOTTY", "ENOTTY")},
        without={"seccomp": ("ENXIO", "ENOTTY", "ENOTTY")},
    ),
    Attack(
        33,
        "have git on the host run a program (hooks, config, another .git)",
        """
attempt(write, ".git/hooks/post-checkout")
attempt(write, ".git/config")
attempt(os.rename, ".git", "git-before")
""",
        _same("EROFS", "EROFS", "EBUSY"),
        without={"protected_git": ("REACHED", "REACHED", "REACHED")},
    ),
    Attack(
        34,
        "leave a hook in a new repository below (not stopped)",
        "os.makedirs('sub/.git/hooks'); attempt(write, 'sub/.git/hooks/post-checkout')",
        _same("REACHED"),
    ),
    Attack(
        35, "link a system file into the workspace", "attempt(os.link, '/usr/bin/env', 'env')", _same("EXDEV")
    ),
    Attack(
        37,
        "make devices",
        """
for kind in (stat.S_IFCHR, stat.S_IFBLK): attempt(os.mknod, "device", kind | 0o666, os.makedev(1, 1))
""",
        _same("EPERM", "EPERM"),
    ),
    Attack(
        40,
        "reach large, rarely used parts of the kernel",
        """
# bpf, perf_event_open, io_uring_*, userfaultfd, open_by_handle_at, process_vm_*, kexec_load, init_module
for number in (321, 298, 425, 426, 427, 323, 304, 310, 311, 246, 313, 175):
    attempt(syscall, number, 0, 0, 0, 0, 0)
""",
        _same(*["EPERM"] * 12),
    ),
    Attack(
        40,
        "use io_uring",
        "attempt(syscall, 425, 1, 0)",
        _same("EPERM"),
        without={"seccomp": ("EFAULT",)},
    ),
    Attack(
        41,
        "go round the filter with the numbers of another architecture",
        """
child = os.fork()
if child == 0:
    libc.syscall(ctypes.c_long(0x40000000 + 39))
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
say("SIGSYS" if code == -signal.SIGSYS else "survived")
""",
        _same("SIGSYS"),
        without={"seccomp": ("survived",)},
    ),
    Attack(
        42,
        "use descriptors that were left open",
        """
kinds = []
for number in sorted(map(int, os.listdir("/proc/self/fd"))):
    try:
        kinds.append("pipe" if os.readlink(f"/proc/self/fd/{number}").startswith("pipe:") else os.readlink(f"/proc/self/fd/{number}"))
    except OSError:
        pass  # the one that listed them
for kind in kinds: say(kind)
""",
        _same("/dev/null", "pipe", "pipe"),
    ),
]

# Those that use things up. What is printed is not the point there; how the command ends is.

FORK_BOMB = """
made = 0
try:
    while made < 200:
        if os.fork() == 0:
            signal.pause()
        made += 1
    say("REACHED")
except OSError as error:
    say(errno.errorcode[error.errno])
    say("few" if made < 64 else made)
"""
"""Row 17, under 64 processes. The children are still there when it ends."""

MEMORY_BOMB = "held = []\nwhile True: held.append(bytearray(8 << 20))\n"
"""Row 18, under a memory limit."""

MEMORY_SHARED_OUT = """
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(100 << 20)
        for place in range(0, len(held), 4096): held[place] = 1
        signal.pause()
os.wait()
say("still here")
"""
"""Row 19, under 256 MB: four children, each below the limit. Ends when the first of them does."""

CPU_SPIN = "while True: pass\n"
"""Row 20, under a CPU limit."""

CPU_SPIN_SHARED_OUT = """
for _ in range(8):
    if os.fork() == 0:
        while True: pass
signal.pause()
"""
"""Row 20, by several processes, none of which uses much alone."""

FILL = """
path, size = stage["path"], stage["size"]
done = 0
try:
    with open(path, "wb") as file:
        while done < size:
            done += file.write(bytes(1 << 20))
    say("REACHED")
except OSError as error:
    say(errno.errorcode[error.errno])
"""
"""Rows 21 and 22: write `size` bytes to `path`."""

FLOOD = "while True: os.write(1, b'y' * 65536)\n"
"""Row 23."""

DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        say("daemon")
        while True: signal.pause()
    os._exit(0)
"""
"""Rows 24 to 26: a process that has left its session and its parent, and holds on to the output."""

STAYS = DAEMON + "signal.pause()\n"
"""The same, and the command itself does not end either."""
