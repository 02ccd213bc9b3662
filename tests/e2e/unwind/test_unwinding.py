# SPDX-License-Identifier: Apache-2.0
"""Stacks of programs without frame pointers are whole, for every kind of frame; stacks that cannot be finished are kept,
marked and counted by reason.

The targets are compiled like a distribution's programs. Error bounds: none.
"""

import collections
import signal

import pytest

import symbols
from books import HAS_MEMORY_AT_EXIT
from harness import target
from stack_ends import NO_CODE, NO_MEMORY, NO_RULE, STUCK, TRUNCATED, counts_by_end

FRAMES_LEFT_OUT = 1  # HEAPTAP_FRAMES_LEFT_OUT, in place of an address
CHAIN = ["allocate", "chain_third", "chain_second", "chain_first"]

# The modes of forged.c, and the reported end of the stack.
LIES = {
    "rsp=0": NO_MEMORY, "rsp=8": NO_MEMORY, "rsp=0x600000000000": NO_MEMORY, "rsp=0x7fffffffe000": NO_MEMORY,
    "rsp=0xffff888000000000": NO_MEMORY, "rsp=0x4141414141414141": NO_MEMORY, "behind": NO_MEMORY,
    "last_word": NO_MEMORY,
    "return=1": NO_CODE, "return=0x4141414141414141": NO_CODE, "return=0x600000000000": NO_CODE,
    "return=0xffffffff81000000": NO_CODE, "return=0xffffffffff600001": NO_CODE, "return_to_data": NO_CODE,
    "unaligned": NO_CODE,
    "endless": TRUNCATED,
    "rbp=1": NO_RULE, "rbp=0x600000000000": NO_RULE, "rbp=0x4141414141414141": NO_RULE,
    "rbp=0xffff888000000000": NO_RULE, "rbp=0xfffffffffffffff8": NO_RULE, "last_frame_pointer": NO_RULE,
    "cyclic": STUCK, "to_itself": STUCK,
}


def frames(lab, *commands, program="frames"):
    """The dump of a session of frames.c, every allocation recorded."""
    session = lab.heaptap("run", "--exact", "--", target(program), talks=True)
    pid = int(session.answer().split()[1])
    for command in commands:
        assert session.ask(command) == "done"
    session.ends()
    return lab.only_dump(pid)


def assert_path(dump, count, *path):
    """This many objects have this call path, from the innermost frame; no other path has its last function; further out
    there is only libc, and _start if the path has main."""
    objects = 0
    for stack in symbols.stacks_through(dump, path[-1 if path[-1] != "main" else -2]):
        names = symbols.names(dump, stack)
        paths = [dump.mapping(address).path for address in stack.frames[len(path):]]
        assert tuple(names[:len(path)]) == path
        if path[-1] == "main":
            assert names[-1] == "_start"
            paths.pop()
        assert all("libc.so" in where for where in paths), paths
        assert len(paths) > 0
        objects += stack.total.objects
    assert objects == count, path


def test_callers_in_each_thread(lab):
    dump = frames(lab, "chain 7", "thread 9")
    assert dump.warnings == []
    assert_path(dump, 9, *CHAIN, "thread_body")
    objects = collections.Counter()
    for stack in symbols.stacks_through(dump, "chain_third"):
        objects[tuple(symbols.names(dump, stack)[4:])[0]] += stack.total.objects
    assert objects == {"main": 7, "thread_body": 9}


def test_callers_found_by_attach(lab):
    process = lab.preloaded(target("frames"), talks=True)
    pid = int(process.answer().split()[1])
    session = lab.attach(pid, "--exact")
    process.ask("chain 30000")
    process.ask("thread 100")
    session.signal(signal.SIGINT)
    session.ends()
    process.ends()
    dump = lab.only_dump(pid, "f")
    assert dump.complaints() == []
    roots = {tuple(symbols.names(dump, stack)[:5]) for stack in symbols.stacks_through(dump, "allocate")}
    assert roots == {(*CHAIN, "main"), (*CHAIN, "thread_body")}
    (entry,) = session.books()
    said = session.wait_said(r"^heaptap: (\d+) samples, (\d+) of them with whole stacks$")
    assert [int(number) for number in said.groups()] == [entry["samples_allocated"]] * 2


@pytest.mark.parametrize("program", ("frames", "frames_realigned"))
def test_frames_of_every_kind(lab, program):
    """Aligned frames, frames with a size known only at run time, frames larger than a raw stack, and a vfork child's."""
    dump = frames(lab, "aligned 5", "through_pointer 6", "variable 7", "large_frame 8", "vfork 1", "vast_frame 9",
                  program=program)
    assert dump.warnings == []
    assert_path(dump, 5, "allocate", "aligned", "main")
    assert_path(dump, 6, "allocate", "aligned_by_pointer", "through_pointer", "main")
    assert_path(dump, 7, "allocate", "variable_size", "variable", "main")
    assert_path(dump, 8, "allocate", "large_frame", "main")
    assert_path(dump, 1, "allocate", "in_vfork_child", "main")
    assert_path(dump, 9, "allocate", "huge_frame", "vast_frame", "main")


def assert_interrupted(dump, count, function, caller):
    """Only the signal frame lies between the handler and the interrupted function."""
    (stack,) = symbols.stacks_through(dump, caller)
    assert stack.total.objects == count
    names = symbols.names(dump, stack)
    assert names[:2] == ["allocate", "on_fault"]
    assert names[4:6] + names[-1:] == [caller, "main", "_start"]
    assert names[3] == function


@pytest.mark.parametrize("program", ("frames", "frames_realigned"))
def test_signal_handlers(lab, program):
    """On the interrupted function's stack, and on another."""
    dump = frames(lab, "signal 5", "signal_at_entry 6", "alternate_signal 7", program=program)
    assert dump.warnings == []
    assert_interrupted(dump, 5, "interrupted", "in_signal")
    assert_interrupted(dump, 6, "interrupted_at_entry", "in_signal_at_entry")
    assert_interrupted(dump, 7, "interrupted", "in_alternate_signal")
    paths = lab.answer_of("report", "--collapsed", dump.path, may_say="heaptap: ").splitlines()
    for name in ("in_signal", "in_signal_at_entry", "in_alternate_signal"):
        (path,) = (path for path in paths if f";{name};" in path)
        assert path.rsplit(" ", 1)[0].endswith(";<signal handler called>;on_fault;allocate"), path


def test_calls_through_null(lab):
    """The handler of the signal allocates. Next to the signal frame is the caller."""
    dump = frames(lab, "null_call 5")
    assert dump.warnings == []
    (stack,) = symbols.stacks_through(dump, "on_null_call")
    assert stack.total.objects == 5
    names = symbols.names(dump, stack)
    assert names[:2] + names[3:6] + names[-1:] == ["allocate", "on_null_call", "call", "in_null_call", "main", "_start"]


def test_coroutines(lab):
    """A stack made by makecontext begins in libc's start routine, which no call has reached."""
    dump = frames(lab, "coroutine 5")
    (stack,) = symbols.stacks_through(dump, "coroutine")
    assert symbols.names(dump, stack)[:2] == ["allocate", "coroutine"]
    assert len(stack.frames) == 3
    assert dump.warnings == []


def test_stacks_that_end_in_a_number(lab):
    """A stack of the program's own, whose end is another number each time, is one call path."""
    dump = frames(lab, "own_stack 500")
    (stack,) = symbols.stacks_through(dump, "call_on")
    assert symbols.names(dump, stack) == ["allocate", "call_on"]
    assert stack.total.objects == 500
    assert counts_by_end(dump) == {NO_CODE: 500}


def test_programs_of_a_script(lab):
    """100 short-lived processes of new programs: all their stacks are whole."""
    script = "for i in $(seq 100); do readlink -f /proc/self/exe; done"
    session = lab.heaptap("run", "--exact", "--", "sh", "-c", script)
    session.ends()
    # The shell, its substitution's seq, and each readlink.
    assert len(lab.dumps(kind="f")) >= 102
    warnings = [warning for dump in lab.dumps() for warning in dump.read().warnings]
    # The shell ends by _exit; older kernels then lose its latest frees.
    assert [warning for warning in warnings if HAS_MEMORY_AT_EXIT or "without the latest frees" not in warning] == []


def test_deep_recursion(lab):
    """The innermost and the outermost frames are there, with a mark between them in every view."""
    dump = frames(lab, "deep 5")
    assert dump.warnings == []
    (stack,) = symbols.stacks_through(dump, "descend")
    names = symbols.names(dump, stack)
    assert len(names) > 120
    at = stack.frames.index(FRAMES_LEFT_OUT)
    assert names[:at] == ["allocate"] + ["descend"] * (at - 1)
    outer = names[at + 1:]
    recursive = outer.count("descend")
    assert outer[:recursive + 2] == ["descend"] * recursive + ["deep", "main"] and outer[-1] == "_start"
    assert at > 60 and recursive > 30
    for view in ("--collapsed", "--raw", "--json", "--tree"):
        assert lab.answer_of("report", "--full", view, dump.path).count("[frames left out]") == 1, view


def test_deeper_than_a_walk(lab):
    """The innermost frames are there, and the number of cut stacks is reported: in the dump, on stderr, and at the end of
    attach."""
    dump = frames(lab, "deeper_than_a_walk 5")
    assert counts_by_end(dump) == {TRUNCATED: 5}
    (stack,) = symbols.stacks_through(dump, "descend")
    names = symbols.names(dump, stack)
    assert names.count("descend") == len(names) - 2 > 120
    assert names[0] == "allocate" and stack.frames[names.index(None)] == FRAMES_LEFT_OUT

    def report(view):
        return lab.answer_of("report", "--full", view, dump.path, may_say="heaptap: missing: 5 samples whose outer frames ")

    for view in ("--tree", "--collapsed", "--speedscope", "--svg", "--dot"):
        assert "[outer frames missing]" in report(view), view
    for view in ("--text", "--raw", "--top"):
        assert "[outer frames missing]" not in report(view), view
    lab.sessions[0].wait_said(f"^heaptap: 5 samples .*{TRUNCATED}$")
    process = lab.preloaded(target("frames"), talks=True)
    pid = int(process.answer().split()[1])
    session = lab.attach(pid, "--exact", "-o", "attached")
    process.ask("deeper_than_a_walk 3000")
    session.signal(signal.SIGINT)
    session.ends()
    count = counts_by_end(lab.only_dump(pid))[TRUNCATED]
    assert count == 3000
    session.wait_said(rf"^heaptap: {count} samples, 0 of them with whole stacks; outer frames missing: {count} at "
                      f"{TRUNCATED}$")


# --- code made at run time has no table ---


def jit(lab, what):
    session = lab.heaptap("run", "--exact", "--", target("jit"), what, "20")
    session.ends()
    dump = lab.only_dump()
    stacks = symbols.stacks_through(dump, "call_back")
    assert sum(stack.total.objects for stack in stacks) == 20
    return dump, [symbols.names(dump, stack) for stack in stacks]


def test_with_frame_pointers(lab):
    dump, (names,) = jit(lab, "frame")
    assert dump.warnings == []
    assert names[:4] + names[-1:] == ["call_back", None, "call_jit", "main", "_start"]


@pytest.mark.parametrize("what, reason", (
    ("small", NO_RULE),  # the frame pointer points nowhere
    ("unmapped", NO_RULE),  # ... to no memory
    ("own", NO_CODE),  # RBP is whatever main() had there
    ("mine", NO_RULE)))  # it points to zeros: that is no outermost frame
def test_without_frame_pointers(lab, what, reason):
    """The samples have the frames up to the generated code, and no bogus frames beyond."""
    dump, paths = jit(lab, what)
    assert counts_by_end(dump) == {reason: 20}
    assert paths == [["call_back", None]]


def test_lies(lab):
    """The target forges its stack, frame pointer and return addresses when its probe fires."""
    session = lab.heaptap("run", "--exact", "--", target("forged"), "30", *LIES)
    session.ends()
    processes = dict(line.split() for line in session.stdout().splitlines())
    assert set(processes) == set(LIES)
    for lie, pid in processes.items():
        dump = lab.only_dump(int(pid))
        assert counts_by_end(dump) == {LIES[lie]: 30}
        assert dump.total == (30, 30 * 64)
        for stack in dump.stacks:
            # A placeholder stands for an unknown stack.
            known = [dump.mapping(address - 1) is not None for address in stack.frames if address != FRAMES_LEFT_OUT]
            assert all(known) or len(known) == 1, stack


def test_a_chain_that_ends(lab):
    """The control: a chain of twenty frame pointers that ends properly."""
    session = lab.heaptap("run", "--exact", "--", target("forged"), "30", "chain")
    session.ends()
    dump = lab.only_dump(int(session.stdout().split()[1]))
    assert dump.warnings == []
    assert [len(stack.frames) for stack in dump.stacks] == [19]
