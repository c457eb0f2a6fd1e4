"""The filter as the kernel would run it, against what libseccomp makes of the same rules."""

import errno
import os
import struct
from itertools import product

import pyseccomp as libseccomp
import pytest

from codesdk.sandbox.bubblewrap.seccomp import (
    ALLOW,
    ALWAYS,
    AUDIT_ARCH_X86_64,
    CALLS,
    KILL,
    RULES,
    X32_BIT,
    Condition,
    Rule,
    compile_filter,
    refuse,
)

ARGUMENT_VALUES = (
    0, 1, 2, 8, 10, 12, 16, 17, 40, 0o100, 0o644, 0o755, 0o2755, 0o4755, 0x5412, 0x541C, 0x80, 0x20000,
    0x0002_0000, 0x1000_0000, 0x1000_0011, 0x4000_0000, 0x0080_0000, 0xFFFF_FFFF, 0x1_0000_5412, 0xFFFF_FFFF_0000_0002,
)  # fmt: skip


def judge(program: bytes, call: int, args: tuple[int, ...], arch: int = AUDIT_ARCH_X86_64) -> int:
    """Run a BPF program over one system call as the kernel does, and return its action."""
    data = struct.pack("<iIQ6Q", call if call < 1 << 31 else call - (1 << 32), arch, 0, *args)
    code = list(struct.iter_unpack("<HBBI", program))
    at, held = 0, 0
    while True:
        op, if_true, if_false, value = code[at]
        at += 1
        if op == 0x20:
            (held,) = struct.unpack_from("<I", data, value)
        elif op == 0x06:
            return value
        elif op == 0x05:
            at += value
        elif op == 0x54:
            held &= value
        else:
            holds = {0x15: held == value, 0x25: held > value, 0x35: held >= value, 0x45: bool(held & value)}[
                op
            ]
            at += if_true if holds else if_false


def compiled() -> bytes:
    program = compile_filter("x86_64")
    assert program is not None
    return program


def reference() -> bytes:
    """Have libseccomp compile the same rules."""
    made = libseccomp.SyscallFilter(libseccomp.ALLOW)
    for number, action in ALWAYS:
        made.add_rule(_action(action), number)
    for rule in RULES:
        for conditions in product(*(_alternatives(condition) for condition in rule.conditions)):
            made.add_rule(
                _action(rule.action),
                CALLS[rule.call],
                *(arg for condition in conditions for arg in condition),
            )
    read, write = os.pipe()
    with os.fdopen(write, "wb") as sink, os.fdopen(read, "rb") as source:
        made.export_bpf(sink)
        sink.close()
        return source.read()


def _action(action: int) -> int:
    return libseccomp.ERRNO(action & 0xFFFF)


def _alternatives(condition: Condition) -> list[list[libseccomp.Arg]]:
    """Return sets of conditions of which any may hold. libseccomp compares 64 bits; the mask makes them 32."""
    low = 0xFFFF_FFFF
    match condition.kind:
        case "one of":
            return [
                [libseccomp.Arg(condition.argument, libseccomp.MASKED_EQ, low, value)]
                for value in condition.values
            ]
        case "any bit":
            bits = [1 << place for place in range(32) if condition.values[0] & 1 << place]
            return [[libseccomp.Arg(condition.argument, libseccomp.MASKED_EQ, bit, bit)] for bit in bits]
        case "none of":
            return _none_of(condition)


def _none_of(condition: Condition) -> list[list[libseccomp.Arg]]:
    """Return each other sample value: libseccomp takes one condition for an argument, so "not this and not that" is none.

    For these arguments the samples have no high half.
    """
    others = [value for value in ARGUMENT_VALUES if value <= 0xFFFF_FFFF and value not in condition.values]
    return [[libseccomp.Arg(condition.argument, libseccomp.EQ, value)] for value in dict.fromkeys(others)]


@pytest.fixture(scope="module")
def programs() -> tuple[bytes, bytes]:
    return compiled(), reference()


def _samples(rule: Rule) -> list[tuple[int, ...]]:
    """Every combination of sample values for the arguments that the rule looks at."""
    same_call = [other for other in RULES if other.call == rule.call]
    exact = {
        condition.argument
        for other in same_call
        for condition in other.conditions
        if condition.kind == "none of"
    }
    looked_at = {condition.argument for condition in rule.conditions}
    choices = [
        [value for value in ARGUMENT_VALUES if value <= 0xFFFF_FFFF or place not in exact]
        if place in looked_at
        else [0]
        for place in range(6)
    ]
    return list(product(*choices))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.call)
def test_libseccomp_judges_every_combination_of_arguments_alike(rule, programs):
    ours, theirs = programs
    samples = _samples(rule)
    assert [judge(ours, CALLS[rule.call], args) for args in samples] == [
        judge(theirs, CALLS[rule.call], args) for args in samples
    ]


def test_libseccomp_judges_every_number_alike(programs):
    ours, theirs = programs
    numbers = [*range(600), 1 << 20]
    assert [judge(ours, number, (0,) * 6) for number in numbers] == [
        judge(theirs, number, (0,) * 6) for number in numbers
    ]


def test_every_call_has_the_number_that_libseccomp_knows_it_by():
    newer_than_this_libseccomp = {"fchmodat2", "open_tree_attr"}
    named = {name: number for name, number in CALLS.items() if name not in newer_than_this_libseccomp}
    amd64 = libseccomp.Arch.X86_64
    assert named == {name: libseccomp.resolve_syscall(amd64, name) for name in named}


def test_numbers_of_other_architectures_kill():
    i386, arm = 0x4000_0003, 0xC000_00B7
    assert {judge(compiled(), 39, (0,) * 6, arch) for arch in (i386, arm)} == {KILL}
    assert {judge(compiled(), X32_BIT + number, (0,) * 6) for number in (0, 39, 520)} == {KILL}
    assert judge(compiled(), 39, (0,) * 6) == ALLOW


def test_what_the_kernel_ignores_does_not_hide_an_argument():
    tiocsti = 0x5412
    wide = (0, 0xDEAD_0000_0000_0000 | tiocsti, 0, 0, 0, 0)
    assert judge(compiled(), 16, wide) == refuse(errno.EPERM)


@pytest.mark.parametrize(
    ("name", "call", "args"),
    [
        ("a plain open with anything for a mode", 257, (0, 0, 0, 0o6000, 0, 0)),
        ("a thread", 56, (0x003D_0F00, 0, 0, 0, 0, 0)),
        ("a fork", 56, (0x0120_0011, 0, 0, 0, 0, 0)),
        ("a socket of IPv6", 41, (10, 1, 0, 0, 0, 0)),
        ("a list of interfaces", 41, (16, 3, 0, 0, 0, 0)),
        ("a pair of sockets", 53, (1, 1, 0, 0, 0, 0)),
        ("a sticky directory", 90, (0, 0o1777, 0, 0, 0, 0)),
    ],
)
def test_everyday_calls_pass(name, call, args):
    assert judge(compiled(), call, args) == ALLOW, name


def test_other_machines_have_no_filter_yet():
    assert compile_filter("aarch64") is None


def test_the_program_is_short_enough_for_the_kernel():
    assert len(compiled()) // 8 < 4096
