# SPDX-License-Identifier: Apache-2.0
"""The bounds of what unwinding takes: kernel memory for tables, the ring of raw stacks, the map of files; and a library
with very large tables.

Recording is exact; error bounds: none. Times are bounds with room, and said.
"""

import json
import os
import signal
import subprocess
import time

import symbols
from harness import LIBRARY, target, wait_until
from test_unwind_tables import LEFT, NO_ROOM, Loader
from test_unwinding import counts_by_end

LARGE = tuple(f"/usr/lib/x86_64-linux-gnu/libLLVM-{version}.so.1" for version in (14, 15))
# Bytes of the values of the map of rows, and of keys and values of the map of files (bpf/heaptap_maps.h).
ROWS_BYTES = 4032
FILES_BYTES = (16, 32)
# How many times longer a dlopen with thousands of samples may take than one without heaptap.
DLOPEN_FACTOR = 40


def kernel_maps(session):
    """What the kernel says of each map that heaptap has open: {field: number}."""
    found = []
    for number in os.listdir(f"/proc/{session.pid}/fdinfo"):
        try:
            with open(f"/proc/{session.pid}/fdinfo/{number}", encoding="ascii") as file:
                fields = dict(line.split(":", 1) for line in file.read().splitlines() if ":" in line)
        except FileNotFoundError:
            continue  # closed meanwhile
        if "map_id" in fields:
            found.append({name: int(value, 0) for name, value in fields.items()
                          if name in ("map_id", "key_size", "value_size", "memlock", "max_entries")})
    return found


class Bounds(Loader):
    def contexts(self, *options):
        """What is recorded of a program with 512 call paths, whatever the addresses are: {names: objects}, the
        warnings, and what was said."""
        session = self.heaptap("run", "--exact", "-o", f"session{len(self.sessions)}", *options, "--",
                               target("contexts"), "9")
        session.losses_allowed = ("files_full",)
        self.assertEqual(session.wait(), 0, session.stderr())
        (dump,) = [each.read() for each in self.dumps() if each.prefix == f"session{len(self.sessions) - 1}"]
        paths = {}
        for stack in dump.stacks:
            names = tuple(symbols.names(dump, stack))
            paths[names] = paths.get(names, 0) + stack.total.objects
        return paths, dump, session

    def test_less_memory_changes_nothing(self):
        """Whether there is room in the kernel for all tables, for some or for none: the same stacks, whole."""
        paths, dump, _ = self.contexts()
        self.assertEqual(dump.warnings, [])
        self.assertGreaterEqual(len(paths), 512)
        for memory in ("1", "64K", "256K", "1M"):
            with self.subTest(memory=memory):
                fewer, dump, session = self.contexts("--unwind-memory", memory)
                self.assertEqual(dump.warnings, [])
                self.assertEqual(fewer, paths)
                said = [line for line in session.lines() if "libc.so.6" in line]
                self.assertEqual(len(said), {"1": 1, "64K": 1}.get(memory, 0), session.lines())
                for line in said:
                    self.assertRegex(line, "more than --unwind-memory allows")

    def test_more_modules_than_memory(self):
        """With room for one of two large modules: memory stays within the bound, and a third, small one, has whole
        stacks."""
        budget = 6 << 20
        session = self.loader("--unwind-memory", str(budget), "-o", "small")
        for path in LARGE:
            self.open_plugin(session, path)
        self.settle(session)
        self.open_plugin(session, LEFT)
        self.call(session, "left_enter", 100)
        rows = next(info for info in kernel_maps(session) if info["value_size"] == ROWS_BYTES)
        memory, entries = rows["memlock"], rows["max_entries"]
        self.assertEqual(entries, budget // 4096)
        self.assertLessEqual(memory, budget + 32 * entries + 65536)
        dump = self.end(session)
        # What the constructors of both do at once can be more than the ring holds.
        self.assertTrue(all(NO_ROOM in end for end in counts_by_end(dump)), dump.warnings)
        self.assert_called(dump, "left", 100)

    def test_no_room_for_raw_stacks(self):
        """heaptap sleeps while a plugin is at work, and the ring holds few stacks: the samples are kept, without outer
        frames, and that is said."""
        session = self.loader("--map-size", "raw-stacks=131072")
        session.signal(signal.SIGSTOP)
        self.open_plugin(session, LEFT)
        self.call(session, "left_enter", 5000)
        session.signal(signal.SIGCONT)
        session.popen.stdin.close()
        dump = self.end(session)
        (entry,) = session.books()
        ends = counts_by_end(dump)
        self.assertEqual(len(ends), 1, ends)
        self.assertIn(NO_ROOM, list(ends)[0])
        # Of 128 KiB, each raw stack takes more than 2.
        self.assertGreater(list(ends.values())[0], 5000 - 64)
        self.assertGreaterEqual(entry["samples_allocated"], 5000)
        session.wait_said(f"^heaptap: .*{NO_ROOM}")

    def test_little_room_for_raw_stacks(self):
        """Some samples find room and some do not: none is shown on a stack that is another's."""
        session = self.puppet_under_heaptap("--exact", "--unwind-memory", "1", "--map-size", "raw-stacks=131072")
        session.ask("keep 20000 64")
        session.ask("churn 20000 64")
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump()
        without = sum(counts_by_end(dump).values())
        found = [sum(stack.ever.objects for stack in symbols.stacks_through(dump, function))
                 for function in ("keep_blocks", "churn_blocks")]
        self.assertLessEqual(max(found), 20000)
        self.assertEqual(sum(found) + without, 40000)

    def test_no_room_for_files(self):
        """One file may be known: all others count as without a table, and that is said."""
        _, dump, session = self.contexts("--map-size", "files=1")
        (entry,) = session.books()
        self.assertGreaterEqual(entry["samples_allocated"], 512)
        self.assertGreater(entry["losses"]["files_full"], 0)
        self.assertGreaterEqual(dump.total.objects, 512)
        self.assertRegex("\n".join(dump.warnings), "(?i)files?.*--map-size files|--map-size files")


class Large(Loader):
    """Debian's libLLVM, with 0.6 million rows."""

    def test_opened_late(self):
        """Its constructors allocate at once. No stack is lost, and the process does not wait for heaptap."""
        alone = self.program(target("loader"), talks=True, env={"LD_PRELOAD": LIBRARY})
        alone.answer()
        self.open_plugin(alone, LARGE[0])  # into the page cache
        alone = self.program(target("loader"), talks=True, env={"LD_PRELOAD": LIBRARY})
        alone.answer()
        without = self.open_plugin(alone, LARGE[0])
        session = self.loader()
        during = self.open_plugin(session, LARGE[0])
        samples = time.monotonic()
        wait_until(lambda: self.is_loaded(session, LARGE[0]), "the table is in the kernel")
        late = time.monotonic() - samples + during / 1e6
        dump = self.end(session)
        (entry,) = session.books()
        print(f"        libLLVM: dlopen takes {without} us without heaptap, {during} us with every allocation recorded "
              f"({entry['samples_allocated']}); its table is loaded at most {late * 1000:.0f} ms after it begins")
        self.assertEqual(dump.warnings, [])
        self.assertLess(late, 1)
        self.assertLess(during, DLOPEN_FACTOR * without)

    def is_loaded(self, session, path):
        """Whether the map of files has the file as loaded (1)."""
        inode = os.stat(path).st_ino
        for info in kernel_maps(session):
            if (info["key_size"], info["value_size"]) != FILES_BYTES:
                continue
            text = subprocess.run(["/usr/sbin/bpftool", "-j", "map", "dump", "id", str(info["map_id"])],
                                  stdout=subprocess.PIPE, text=True, check=True).stdout
            entries = [entry["formatted"] for entry in json.loads(text)]
            return any(entry["key"]["inode"] == inode and entry["value"]["state"] == 1 for entry in entries)
        raise AssertionError("heaptap has no map of files")
