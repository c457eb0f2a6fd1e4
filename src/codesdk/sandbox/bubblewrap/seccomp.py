"""The system call filter of a sandbox: compiles rules, which are data, into the BPF program that the kernel runs.

A deny list, because a coding agent runs arbitrary compilers and test runners. It refuses what opens another
way out, what exposes large parts of the kernel that nobody here needs, and what would leave something
dangerous behind. For x86_64 only; `compile_filter` returns None for every other machine.
"""

import errno
import platform
import struct
from collections.abc import Sequence
from socket import AF_INET, AF_INET6, AF_UNIX, SOCK_DGRAM
from typing import Literal, NamedTuple

AUDIT_ARCH_X86_64 = 0xC000003E
X32_BIT = 0x4000_0000
ALLOW = 0x7FFF_0000
KILL = 0x8000_0000
"""Kill the process: call numbers of another architecture would bypass every rule."""

_NEW_NAMESPACE = 0x7E02_0000 | 0x80
"""All CLONE_NEW flags: mount, cgroup, uts, ipc, user, pid, net, and time."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_NETLINK, _NETLINK_ROUTE = 16, 0
_LD_WORD, _JUMP, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
_NR_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET = 0, 4, 16


def refuse(number: int) -> int:
    """Return the action that makes a call fail with an error."""
    return 0x0005_0000 | number


class Condition(NamedTuple):
    """A condition on one argument: it is one of some values, none of them, or has any of some bits.

    Only the low 32 bits are compared, since the kernel uses no more of these arguments either.
    """

    argument: int
    kind: Literal["one of", "none of", "any bit"]
    values: tuple[int, ...]


class Rule(NamedTuple):
    """A call that is refused if all conditions hold."""

    call: str
    action: int
    conditions: tuple[Condition, ...]


# Numbers and names as in the kernel's table for x86_64.
_REFUSED: dict[str, int] = {
    # tracing, and reaching into other processes
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_getfd": 438,
    # mounts and namespaces
    "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "setns": 308, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442,
    "open_tree_attr": 467,
    # files by handle, which know no paths
    "open_by_handle_at": 304, "name_to_handle_at": 303,
    # keys, which know no namespaces
    "add_key": 248, "request_key": 249, "keyctl": 250,
    # large parts of the kernel
    "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "io_uring_setup": 425, "io_uring_enter": 426,
    "io_uring_register": 427, "fanotify_init": 300,
    # the machine itself
    "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176,
    "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163, "quotactl": 179, "quotactl_fd": 443,
    "settimeofday": 164, "clock_settime": 227, "clock_adjtime": 305, "adjtimex": 159, "sethostname": 170,
    "setdomainname": 171, "iopl": 172, "ioperm": 173, "modify_ldt": 154, "vhangup": 153, "syslog": 103,
    "migrate_pages": 256, "move_pages": 279,
    # relics
    "uselib": 134, "ustat": 136, "sysfs": 139, "_sysctl": 156, "create_module": 174, "get_kernel_syms": 177,
    "query_module": 178, "nfsservctl": 180, "lookup_dcookie": 212,
}  # fmt: skip

# A filter cannot read their arguments in memory. Told that the call is missing, programs use the old one.
_ABSENT: dict[str, int] = {"clone3": 435, "openat2": 437}
_JUDGED: dict[str, int] = {
    "socket": 41, "socketpair": 53, "clone": 56, "unshare": 272, "ioctl": 16, "personality": 135, "chmod": 90,
    "fchmod": 91, "fchmodat": 268, "fchmodat2": 452, "creat": 85, "mknod": 133, "mknodat": 259, "open": 2,
    "openat": 257,
}  # fmt: skip

_EPERM = refuse(errno.EPERM)
_NO_FAMILY = refuse(errno.EAFNOSUPPORT)

_SETS_ID = (0o6000,)
_CREATES = (0o100 | 0o20000000,)
_IS_NETLINK = Condition(0, "one of", (_AF_NETLINK,))


def _leaves_setid(call: str, mode: int, *more: Condition) -> Rule:
    """Refuse setuid and setgid bits: nobody on the host may find a program with the sandbox user's rights."""
    return Rule(call, _EPERM, (*more, Condition(mode, "any bit", _SETS_ID)))


RULES: tuple[Rule, ...] = (
    # The internet families, and what lists network interfaces; no AF_UNIX, AF_VSOCK, AF_ALG and so on.
    Rule("socket", _NO_FAMILY, (Condition(0, "none of", (AF_INET, AF_INET6, _AF_NETLINK)),)),
    Rule("socket", _NO_FAMILY, (_IS_NETLINK, Condition(2, "none of", (_NETLINK_ROUTE,)))),
    Rule("socketpair", _NO_FAMILY, (Condition(0, "none of", (AF_UNIX,)),)),
    # A pair of datagram sockets (or raw ones, the same here) could be re-aimed at a socket in the workspace.
    Rule("socketpair", _EPERM, (Condition(0, "one of", (AF_UNIX,)), Condition(1, "any bit", (SOCK_DGRAM,)))),
    Rule("clone", _EPERM, (Condition(0, "any bit", (_NEW_NAMESPACE & ~0xFF,)),)),  # the low byte is a signal
    Rule("unshare", _EPERM, (Condition(0, "any bit", (_NEW_NAMESPACE,)),)),
    Rule("ioctl", _EPERM, (Condition(1, "one of", (_TIOCSTI, _TIOCLINUX)),)),  # typing into a terminal
    Rule("personality", _EPERM, (Condition(0, "none of", (0, 0x8, 0x20000, 0x20008, 0xFFFF_FFFF)),)),
    _leaves_setid("chmod", 1),
    _leaves_setid("fchmod", 1),
    _leaves_setid("fchmodat", 2),
    _leaves_setid("fchmodat2", 2),
    _leaves_setid("creat", 1),
    _leaves_setid("mknod", 1),
    _leaves_setid("mknodat", 2),
    # Without O_CREAT the mode can be anything.
    _leaves_setid("open", 2, Condition(1, "any bit", _CREATES)),
    _leaves_setid("openat", 3, Condition(2, "any bit", _CREATES)),
)
ALWAYS: tuple[tuple[int, int], ...] = (
    *((number, refuse(errno.ENOSYS)) for number in _ABSENT.values()),
    *((number, _EPERM) for number in _REFUSED.values()),
)
"""Calls that are refused whatever their arguments, and how."""
CALLS = _REFUSED | _ABSENT | _JUDGED
"""The number of every call that is named here."""


def compile_filter(machine: str | None = None) -> bytes | None:
    """Return the filter for a machine (default: this one), ready for the kernel, or None if there is none."""
    if (machine or platform.machine()) != "x86_64":
        return None
    program = [
        _op(_LD_WORD, _ARCH_OFFSET),
        _op(_JUMP_EQUAL, AUDIT_ARCH_X86_64, 1, 0),
        _op(_RETURN, KILL),
        _op(_LD_WORD, _NR_OFFSET),
        _op(_JUMP_AT_LEAST, X32_BIT, 0, 1),
        _op(_RETURN, KILL),
    ]
    for action in sorted({action for _, action in ALWAYS}):
        program += _always([number for number, its in ALWAYS if its == action], action)
    for rule in RULES:
        program += _sometimes(rule)
    return b"".join([*program, _op(_RETURN, ALLOW)])


def _always(numbers: Sequence[int], action: int) -> list[bytes]:
    """Compare the number with each; all matches jump to the one action after them."""
    last = len(numbers)
    tests = [_op(_JUMP_EQUAL, number, last - place, 0) for place, number in enumerate(numbers)]
    return [*tests, _op(_JUMP, 1), _op(_RETURN, action)]


def _sometimes(rule: Rule) -> list[bytes]:
    """Return code that ends in the action or falls through, with the number loaded again."""
    tail = [_op(_RETURN, rule.action), _op(_LD_WORD, _NR_OFFSET)]
    for condition in reversed(rule.conditions):
        tail = _check(condition, len(tail) - 1) + tail
    return [_op(_JUMP_EQUAL, CALLS[rule.call], 0, len(tail)), *tail]


def _check(condition: Condition, out: int) -> list[bytes]:
    """Return code that falls through if the condition holds, else jumps over `out` more instructions."""
    code = [_op(_LD_WORD, _ARGS_OFFSET + 8 * condition.argument)]
    compare = _JUMP_SET if condition.kind == "any bit" else _JUMP_EQUAL
    for left, value in zip(range(len(condition.values) - 1, -1, -1), condition.values, strict=True):
        if condition.kind == "none of":
            code.append(_op(compare, value, left + out, 0))
        else:
            code.append(_op(compare, value, left, 0 if left else out))
    return code


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value & 0xFFFF_FFFF)
