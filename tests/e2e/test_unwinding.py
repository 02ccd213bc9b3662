# SPDX-License-Identifier: Apache-2.0
"""Stacks are found whole in programs without frame pointers, whatever is on them; what cannot be finished is kept,
marked and counted by its reason.

The targets are compiled as distributions compile. Error bounds: none.
"""

import collections
import re
import signal

import symbols
from harness import LIBRARY, Case, target

CHAIN = ["allocate", "chain_third", "chain_second", "chain_first"]

TRUNCATED = "more frames than are kept"
NO_CODE = "a return address outside of all code"
NO_RULE = "code without unwind information and without frame pointers"
NO_MEMORY = "stack memory that could not be read"
STUCK = "a caller below its callee"


def counts_by_end(dump):
    """{how they ended: samples} of the stacks that are not whole, from the dump's warnings; others are no business of
    these tests."""
    ends = [re.fullmatch(r"heaptap: (\d+) samples whose outer frames are missing: their stacks end at (.*)", warning)
            for warning in dump.warnings]
    assert all(ends), dump.warnings
    return {match.group(2): int(match.group(1)) for match in ends}


class Unwinding(Case):
    def frames(self, *commands, program="frames"):
        """The dump of a session of frames.c, every allocation recorded."""
        session = self.heaptap("run", "--exact", "--", target(program), talks=True)
        pid = int(session.answer().split()[1])
        for command in commands:
            self.assertEqual(session.ask(command), "done")
        self.assertEqual(session.wait(), 0, session.stderr())
        return self.only_dump(pid)

    def assert_path(self, dump, count, *path):
        """So many objects have this call path, from the innermost frame, and no other path has its last function;
        beyond it there is nothing but libc, and _start if the path has main."""
        objects = 0
        for stack in symbols.stacks_through(dump, path[-1 if path[-1] != "main" else -2]):
            names = symbols.names(dump, stack)
            paths = [dump.mapping(address).path for address in stack.frames[len(path):]]
            self.assertEqual(tuple(names[:len(path)]), path)
            if path[-1] == "main":
                self.assertEqual(names[-1], "_start")
                paths.pop()
            self.assertTrue(all("libc.so" in where for where in paths), paths)
            self.assertGreater(len(paths), 0)
            objects += stack.total.objects
        self.assertEqual(objects, count, path)


class Whole(Unwinding):
    def test_callers_in_each_thread(self):
        dump = self.frames("chain 7", "thread 9")
        self.assertEqual(dump.warnings, [])
        self.assert_path(dump, 9, *CHAIN, "thread_body")
        objects = collections.Counter()
        for stack in symbols.stacks_through(dump, "chain_third"):
            objects[tuple(symbols.names(dump, stack)[4:])[0]] += stack.total.objects
        self.assertEqual(objects, {"main": 7, "thread_body": 9})

    def test_callers_found_by_attach(self):
        process = self.program(target("frames"), talks=True, env={"LD_PRELOAD": LIBRARY})
        pid = int(process.answer().split()[1])
        session = self.attach(pid, "--exact")
        process.ask("chain 30000")
        process.ask("thread 100")
        session.signal(signal.SIGINT)
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertEqual(process.wait(), 0)
        dump = self.only_dump(pid, "f")
        self.assertEqual(dump.warnings, [])
        roots = {tuple(symbols.names(dump, stack)[:5]) for stack in symbols.stacks_through(dump, "allocate")}
        self.assertEqual(roots, {(*CHAIN, "main"), (*CHAIN, "thread_body")})
        (entry,) = session.books()
        said = session.wait_said(r"^heaptap: (\d+) samples, (\d+) of them with whole stacks$")
        self.assertEqual([int(number) for number in said.groups()], [entry["samples_allocated"]] * 2)

    def test_frames_of_every_kind(self):
        """Aligned, of a size that is known at run time only, larger than a raw stack, and of a vfork child."""
        for program in ("frames", "frames_realigned"):
            with self.subTest(program=program):
                dump = self.frames("aligned 5", "through_pointer 6", "variable 7", "large_frame 8", "vfork 1",
                                   program=program)
                self.assertEqual(dump.warnings, [])
                self.assert_path(dump, 5, "allocate", "aligned", "main")
                self.assert_path(dump, 6, "allocate", "aligned_by_pointer", "through_pointer", "main")
                self.assert_path(dump, 7, "allocate", "variable_size", "variable", "main")
                self.assert_path(dump, 8, "allocate", "large_frame", "main")
                self.assert_path(dump, 1, "allocate", "in_vfork_child", "main")

    def assert_interrupted(self, dump, count, function, caller):
        """Between the handler and the function that it interrupted there is the signal frame alone."""
        (stack,) = symbols.stacks_through(dump, caller)
        self.assertEqual(stack.total.objects, count)
        names = symbols.names(dump, stack)
        self.assertEqual(names[:2], ["allocate", "on_fault"])
        self.assertEqual(names[4:6] + names[-1:], [caller, "main", "_start"])
        address = stack.frames[3]  # of the instruction itself: no return address
        mapping = dump.mapping(address)
        self.assertEqual(symbols.file(mapping.path).function_at(address - mapping.begin + mapping.offset), function)

    def test_signal_handlers(self):
        """On the stack of the function that was interrupted, and on another."""
        for program in ("frames", "frames_realigned"):
            with self.subTest(program=program):
                dump = self.frames("signal 5", "signal_at_entry 6", "alternate_signal 7", program=program)
                self.assertEqual(dump.warnings, [])
                self.assert_interrupted(dump, 5, "interrupted", "in_signal")
                self.assert_interrupted(dump, 6, "interrupted_at_entry", "in_signal_at_entry")
                self.assert_interrupted(dump, 7, "interrupted", "in_alternate_signal")

    def test_coroutines(self):
        """A stack made by makecontext ends in libc, at code that says nothing about its caller; all frames are there.
        """
        dump = self.frames("coroutine 5")
        (stack,) = symbols.stacks_through(dump, "coroutine")
        self.assertEqual(symbols.names(dump, stack)[:2], ["allocate", "coroutine"])
        self.assertEqual(len(stack.frames), 3)
        self.assertLessEqual(set(counts_by_end(dump).items()), {(NO_RULE, 5)})

    def test_programs_of_a_script(self):
        """100 short-lived processes of programs that nobody has met before: each stack of each is whole."""
        script = "for i in $(seq 100); do readlink -f /proc/self/exe; done"
        session = self.heaptap("run", "--exact", "--", "sh", "-c", script)
        self.assertEqual(session.wait(), 0, session.stderr())
        # The shell, its substitution's seq, and each readlink.
        self.assertGreaterEqual(len(self.dumps(kind="f")), 102)
        self.assertEqual([warning for dump in self.dumps() for warning in dump.read().warnings], [])


class Truncated(Unwinding):
    def test_deep_recursion(self):
        """The innermost frames are there, and that there are more is said, with its number: in the dump, on stderr,
        and at the end of attach."""
        dump = self.frames("deep 5")
        self.assertEqual(counts_by_end(dump), {TRUNCATED: 5})
        (stack,) = symbols.stacks_through(dump, "descend")
        names = symbols.names(dump, stack)
        self.assertEqual(names, ["allocate"] + ["descend"] * (len(names) - 1))
        self.assertGreater(len(names), 120)
        self.sessions[0].wait_said(f"^heaptap: 5 samples .*{TRUNCATED}$")
        process = self.program(target("frames"), talks=True, env={"LD_PRELOAD": LIBRARY})
        pid = int(process.answer().split()[1])
        session = self.attach(pid, "--exact", "-o", "attached")
        process.ask("deep 30000")
        session.signal(signal.SIGINT)
        self.assertEqual(session.wait(), 0, session.stderr())
        count = counts_by_end(self.only_dump(pid))[TRUNCATED]
        self.assertGreater(count, 10000)
        session.wait_said(rf"^heaptap: {count} samples, 0 of them with whole stacks; outer frames missing: {count} at "
                          f"{TRUNCATED}$")


class MadeCode(Unwinding):
    """Code made at run time has no table."""

    def jit(self, what):
        session = self.heaptap("run", "--exact", "--", target("jit"), what, "20")
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump()
        stacks = symbols.stacks_through(dump, "call_back")
        self.assertEqual(sum(stack.total.objects for stack in stacks), 20)
        return dump, [symbols.names(dump, stack) for stack in stacks]

    def test_with_frame_pointers(self):
        dump, (names,) = self.jit("frame")
        self.assertEqual(dump.warnings, [])
        self.assertEqual(names[:4] + names[-1:], ["call_back", None, "call_jit", "main", "_start"])

    def assert_marked(self, what, reason):
        """The samples are there with the frames up to the made code, and none beyond that is no code."""
        dump, paths = self.jit(what)
        self.assertEqual(counts_by_end(dump), {reason: 20})
        self.assertEqual(paths, [["call_back", None]])

    def test_frame_pointer_to_nowhere(self):
        self.assert_marked("small", NO_RULE)

    def test_frame_pointer_to_no_memory(self):
        self.assert_marked("unmapped", NO_RULE)

    def test_frame_pointer_of_a_caller(self):
        """RBP is whatever main() had there."""
        self.assert_marked("own", NO_CODE)

    def test_frame_pointer_to_what_is_no_frame(self):
        """It points to zeros: that is no outermost frame."""
        self.assert_marked("mine", NO_RULE)


# What forged.c does, and how the stack is said to end.
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


class Forged(Unwinding):
    def test_lies(self):
        """Stack, frame pointer and return addresses are chosen by the target when its probe fires."""
        session = self.heaptap("run", "--exact", "--", target("forged"), "30", *LIES)
        self.assertEqual(session.wait(), 0, session.stderr())
        processes = dict(line.split() for line in session.stdout().splitlines())
        self.assertEqual(set(processes), set(LIES))
        for lie, pid in processes.items():
            with self.subTest(lie=lie):
                dump = self.only_dump(int(pid))
                self.assertEqual(counts_by_end(dump), {LIES[lie]: 30})
                self.assertEqual(dump.total, (30, 30 * 64))
                for stack in dump.stacks:
                    # Where nothing is known there is a placeholder.
                    known = [dump.mapping(address - 1) is not None for address in stack.frames]
                    self.assertTrue(all(known) or len(known) == 1, stack)

    def test_a_chain_that_ends(self):
        """The control: frame pointers that lead from one to the next, twenty times, and then end."""
        session = self.heaptap("run", "--exact", "--", target("forged"), "30", "chain")
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump(int(session.stdout().split()[1]))
        self.assertEqual(dump.warnings, [])
        self.assertEqual([len(stack.frames) for stack in dump.stacks], [19])
