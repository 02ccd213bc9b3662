# SPDX-License-Identifier: Apache-2.0
"""Unwind tables that come late, not at all, damaged, or do not fit: samples are kept, and their stacks are whole, or
marked and counted by their reason.

Recording is exact; error bounds: none.
"""

import os
import re
import shutil
import signal
import subprocess

import plugins
import symbols
from harness import LIBRARY, TARGETS, Case, target
from test_unwinding import NO_RULE, counts_by_end

LEFT = os.path.join(TARGETS, "libleft.so")
RIGHT = os.path.join(TARGETS, "libright.so")
BARE = os.path.join(TARGETS, "libbare.so")
NO_ROOM = "no room for a raw stack"


def plugin_path(side, count):
    return tuple(f"{side}_{name}" for name in ("inner", "middle", "enter")[:count])


def offset_of(path, function):
    output = subprocess.run(["nm", "-D", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    return int(re.search(rf"^([0-9a-f]+) T {function}$", output, re.MULTILINE).group(1), 16)


class Loader(Case):
    def loader(self, *options, folder=None, **more):
        session = self.heaptap("run", "--exact", *options, "--", target("loader"), talks=True, **more)
        session.target_pid = int(session.answer().split()[1])
        return session

    def attached_loader(self, **more):
        process = self.program(target("loader"), talks=True, env={"LD_PRELOAD": LIBRARY}, **more)
        process.target_pid = int(process.answer().split()[1])
        return process

    def end(self, session, status=0):
        self.assertEqual(session.wait(), status, session.stderr())
        return self.only_dump(session.target_pid, "f")

    def settle(self, session):
        """heaptap has looked at all that happened before, when it has written the second of two dumps."""
        for number in range(2):
            session.signal(signal.SIGUSR1)
            session.wait_said(r"^heaptap: wrote .*\.m\d+\.heap", number + 1)

    def open_plugin(self, process, path):
        answer = process.ask(f"open {path}")
        self.assertRegex(answer, r"^opened \d+$")
        return int(answer.split()[1])

    def call(self, process, function, count):
        self.assertEqual(process.ask(f"call {function} {count}"), "called")

    def paths(self, dump, function, copies=None):
        """{names: objects} of the paths through a function."""
        result = {}
        for stack in dump.stacks:
            names = tuple(symbols.names(dump, stack, copies))
            if function in names:
                result[names] = result.get(names, 0) + stack.total.objects
        return result

    def assert_called(self, dump, side, count, copies=None):
        """So many objects came through the plugin, all of them by way of call_plugin() in main(), to _start; and as
        many as its constructor made."""
        found = self.paths(dump, f"{side}_middle", copies)
        called = {names: objects for names, objects in found.items() if f"{side}_enter" in names}
        for names in called:
            self.assertEqual(names[:4], (*plugin_path(side, 3), "call_plugin"))
            self.assertEqual((names[4], names[-1]), ("main", "_start"))
        self.assertEqual(sum(called.values()), count)
        constructed = [names for names in found if names not in called]
        for names in constructed:
            self.assertEqual(names[:3], (*plugin_path(side, 2), f"{side}_construct"))
            self.assertIn("main", names)
            self.assertEqual(names[-1], "_start")
        return len(constructed)


class Late(Loader):
    def test_a_plugin_at_work_at_once(self):
        """It allocates in its constructor, and right after dlopen; the table cannot be there yet."""
        session = self.loader()
        for path, side in ((LEFT, "left"), (RIGHT, "right")):
            self.open_plugin(session, path)
            self.call(session, f"{side}_enter", 1000)
        dump = self.end(session)
        self.assertEqual(dump.warnings, [])
        for side in ("left", "right"):
            self.assertEqual(self.assert_called(dump, side, 1000), 1)

    def test_a_stopped_heaptap(self):
        """heaptap sleeps while a plugin is loaded, at work, and gone with its process: the stacks wait in the kernel,
        and the file is opened by its name."""
        session = self.loader()
        session.signal(signal.SIGSTOP)
        self.open_plugin(session, LEFT)
        self.call(session, "left_enter", 500)
        session.tell("close")
        session.popen.stdin.close()
        session.signal(signal.SIGCONT)
        dump = self.end(session)
        self.assertEqual(dump.warnings, [])
        self.assert_called(dump, "left", 500)

    def assert_whole_unless_locked(self, session, dump):
        """While the kernel's list of mappings is locked by another thread, stacks go the way of those whose table is
        late, and there may be too many of them."""
        ends = counts_by_end(dump)
        self.assertTrue(all(NO_ROOM in end for end in ends), ends)
        (entry,) = session.books()
        self.assertLess(sum(ends.values()), entry["samples_allocated"] / 20)

    def test_two_plugins_at_one_address(self):
        """They differ in the size of their frames only. Threads allocate all the time."""
        session = self.loader()
        self.assertGreater(int(session.ask(f"swap {LEFT} {RIGHT} 300").split()[1]), 200)
        dump = self.end(session)
        self.assert_whole_unless_locked(session, dump)
        for stack in dump.stacks:
            names = symbols.names(dump, stack)
            if names == [None]:
                continue  # the placeholder for what is not known
            self.assertEqual(names[-1] == "_start", "main" in names, names)
            if any(name and name.endswith("_middle") for name in names):
                self.assertIn("main", names)
        # What the first plugin did at an address is shown as the second one's: the dump has one list of mappings.
        called = [names for stack in dump.stacks if "call_plugin" in (names := symbols.names(dump, stack))]
        self.assertEqual({len(names) for names in called if "main" in names}, {len(called[0])})

    def test_two_files_mapped_over_one_another(self):
        """No sample is taken between the two, so nothing but the mapping tells that the code is another."""
        self.assertEqual(offset_of(LEFT, "left_enter"), offset_of(RIGHT, "right_enter"))
        session = self.loader()
        offset = offset_of(LEFT, "left_enter")
        self.assertEqual(session.ask(f"remap {LEFT} {RIGHT} {offset} 200"), "remapped")
        dump = self.end(session)
        self.assertEqual(dump.warnings, [])
        (stack,) = symbols.stacks_through(dump, "call_mapped")
        self.assertEqual(stack.total.objects, 200)
        names = symbols.names(dump, stack)
        self.assertEqual((names[3:5], names[-1]), (["call_mapped", "main"], "_start"))

    def test_mapped_and_unmapped_all_the_time(self):
        """Threads allocate in code that stays while another maps and unmaps code."""
        session = self.loader()
        self.assertEqual(session.ask(f"churn {LEFT} 2000"), "churned")
        dump = self.end(session)
        self.assert_whole_unless_locked(session, dump)
        found = [symbols.names(dump, stack) for stack in dump.stacks]
        paths = {tuple(names[:2]) for names in found if "stable_body" in names}
        self.assertEqual(paths, {("stable_allocate", "stable_body")})

    def test_thousands_of_mappings(self):
        """One file mapped 3000 times, and called in each."""
        session = self.loader()
        self.assertEqual(session.ask(f"maps {LEFT} {offset_of(LEFT, 'left_enter')} 3000"), "mapped 3000")
        dump = self.end(session)
        self.assertEqual(dump.warnings, [])
        found = self.paths(dump, "call_mapped")
        self.assertEqual({names[:5] for names in found}, {(*plugin_path("left", 3), "call_mapped", "main")})
        self.assertEqual(sum(found.values()), 3000)


class Damaged(Loader):
    def assert_harmless(self, damage, process, session, copy, called=None):
        """The process lives on with the plugin; heaptap says at most one line about the file, no sample is lost, and
        those whose stacks are not whole are counted."""
        dump = self.only_dump(process.target_pid)
        about = [line for line in session.lines() if copy in line]
        self.assertLessEqual(len(about), 1, about)
        for line in about:
            self.assertRegex(line, r"^heaptap: no unwind table for .*: .*; stacks through it follow frame pointers$")
        self.assertLessEqual(set(counts_by_end(dump)), {NO_RULE, "a return address outside of all code"})
        through = [stack for stack in dump.stacks
                   if any((mapping := dump.mapping(address - 1)) and mapping.path == copy for address in stack.frames)]
        if damage in plugins.HARMLESS:
            self.assertEqual(about, [])
            self.assertEqual(dump.warnings, [])
            self.assert_called(dump, "left", called or sum(stack.total.objects for stack in through), {copy: LEFT})
        return sum(stack.total.objects for stack in through)

    def test_run(self):
        for damage in plugins.DAMAGES:
            with self.subTest(damage=damage):
                copy = plugins.damaged(LEFT, damage, self.folder)
                session = self.loader()
                self.open_plugin(session, copy)
                self.call(session, "left_enter", 20000)
                self.assertEqual(session.wait(), 0, session.stderr())
                self.assertGreaterEqual(self.assert_harmless(damage, session, session, copy, 20000), 20000)

    def test_attach(self):
        for damage in plugins.DAMAGES:
            with self.subTest(damage=damage):
                copy = plugins.damaged(LEFT, damage, self.folder)
                process = self.attached_loader()
                self.open_plugin(process, copy)
                session = self.attach(process.target_pid, "--exact")
                self.call(process, "left_enter", 20000)
                session.signal(signal.SIGINT)
                self.assertEqual(session.wait(), 0, session.stderr())
                self.assertEqual(process.wait(), 0)
                self.assertGreater(self.assert_harmless(damage, process, session, copy), 1000)

    def test_code_without_a_table(self):
        """Compiled without unwind tables and without frame pointers: the frame that called malloc is kept, and no
        stack counts as whole."""
        session = self.loader()
        self.open_plugin(session, BARE)
        self.call(session, "bare_enter", 1000)
        dump = self.end(session)
        stacks = [stack for stack in dump.stacks if symbols.names(dump, stack)[0] == "bare_inner"]
        self.assertEqual(sum(stack.total.objects for stack in stacks), 1001)
        self.assertEqual(sum(counts_by_end(dump).values()), 1001)


class Hidden(Loader):
    """Files that cannot be opened by their name."""

    def after_attach(self, process, copies):
        session = self.attach(process.target_pid, "--exact")
        self.call(process, "left_enter", 20000)
        session.signal(signal.SIGINT)
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump(process.target_pid)
        self.assertEqual(dump.warnings, [])
        count = sum(self.paths(dump, "left_inner", copies).values())
        self.assertGreater(count, 1000)
        self.assert_called(dump, "left", count, copies)

    def test_deleted(self):
        copy = os.path.join(self.folder, "libplugin.so")
        shutil.copy(LEFT, copy)
        process = self.attached_loader()
        self.open_plugin(process, copy)
        os.unlink(copy)
        self.after_attach(process, {copy: LEFT, f"{copy} (deleted)": LEFT})

    def test_replaced(self):
        """Another file has the name by now, with other frames."""
        copy = os.path.join(self.folder, "libplugin.so")
        shutil.copy(LEFT, copy)
        process = self.attached_loader()
        self.open_plugin(process, copy)
        shutil.copy(RIGHT, copy + ".new")
        os.rename(copy + ".new", copy)
        self.after_attach(process, {copy: LEFT, f"{copy} (deleted)": LEFT})

    def mounted(self, mount):
        inside = os.path.join(self.folder, "inside")
        os.mkdir(inside)
        script = f"{mount} && cp {LEFT} {inside} && exec {target('loader')}"
        return ["unshare", "--mount", "/bin/sh", "-c", script], f"{inside}/libleft.so"

    def in_a_mount_namespace(self, mount):
        command, path = self.mounted(mount)
        with self.subTest("run"):
            session = self.heaptap("run", "--exact", "--", *command, talks=True)
            session.target_pid = int(session.answer().split()[1])
            self.open_plugin(session, path)
            self.call(session, "left_enter", 1000)
            self.settle(session)
            dump = self.end(session)
            self.assertEqual(dump.warnings, [])
            self.assertEqual(self.assert_called(dump, "left", 1000, {path: LEFT}), 1)
        with self.subTest("attach"):
            process = self.program(*command, talks=True, env={"LD_PRELOAD": LIBRARY})
            process.target_pid = int(process.answer().split()[1])
            self.open_plugin(process, path)
            self.after_attach(process, {path: LEFT})

    def test_in_a_mount_namespace(self):
        self.in_a_mount_namespace(f"mount -t tmpfs none {self.folder}/inside")

    def test_on_an_overlay(self):
        """As in containers: the inode that is mapped is not the one that the name has."""
        folder = f"{self.folder}/inside"
        self.in_a_mount_namespace(
            f"mount -t tmpfs none {folder} && mkdir {folder}/lower {folder}/upper {folder}/work && "
            f"mount -t overlay none -o lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work {folder}")
