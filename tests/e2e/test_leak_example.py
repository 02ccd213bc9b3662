# SPDX-License-Identifier: Apache-2.0
"""The leak example of jemalloc's wiki: every digit as jemalloc has it, and jeprof and google-pprof read the dump.

Proved: size classes, exact recording, leak summary, dump, symbols. Error bound: none, all numbers are exact.
"""

import os
import re

from harness import LIBRARY, Case, target

SUMMARY = "Leak approximation summary: ~6926352 bytes, ~120 objects, >= 2 contexts"
# 1 KiB * (0 + .. + 79) and 4 KiB * (0 + .. + 39) in size classes, i = 0 being the class of 8 bytes.
DO_SOMETHING = (80, 3502088)
DO_SOMETHING_ELSE = (40, 3424264)


class LeakExample(Case):
    def assert_two_leaks(self, text):
        """jeprof's table has 3.3 MB for each of the two functions."""
        for function in ("do_something", "do_something_else"):
            self.assertRegex(text, rf"(?m)^\s+3\.3\s.*\s{function}$")

    def assert_exact(self, dump):
        self.assertEqual((dump.total.objects, dump.total.bytes), (120, 6926352))
        live = sorted(tuple(stack.total) for stack in dump.stacks if stack.total.objects > 0)
        self.assertEqual(live, sorted([DO_SOMETHING, DO_SOMETHING_ELSE]))

    def test_summary_and_readers(self):
        session = self.heaptap("run", "--exact", "--", target("wiki_leak"))
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertIn(f"<heaptap>: {SUMMARY}", session.lines())
        self.assertEqual(session.stdout(), "")
        (dump,) = self.dumps()
        self.assertRegex(os.path.basename(dump.path), r"^jeprof\.\d+\.0\.f\.heap$")
        self.assert_exact(dump.read())
        self.assertTrue([line for line in session.lines() if "jeprof" in line and dump.path.split("/")[-1] in line],
                        "the next command is not said")
        self.assert_two_leaks(self.reader("jeprof", "--text", target("wiki_leak"), dump.path))

    def test_google_pprof(self):
        """gperftools' pprof does not read jemalloc's form (nor jemalloc's own dumps), but its own: --format."""
        session = self.heaptap("run", "--exact", "--format", "gperftools", "--", target("wiki_leak"))
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertIn(f"<heaptap>: {SUMMARY}", session.lines())
        (path,) = self.dump_paths()
        for reader in ("google-pprof", "jeprof"):
            self.assert_two_leaks(self.reader(reader, "--text", target("wiki_leak"), path))
        os.unlink(path)  # not of the form that is checked after each test

    def test_jeprof_knows_the_thread(self):
        session = self.heaptap("run", "--exact", "--", target("wiki_leak"))
        self.assertEqual(session.wait(), 0)
        (dump,) = self.dumps()
        (thread,) = dump.read().threads
        self.assert_two_leaks(self.reader("jeprof", "--text", f"--thread={thread}", target("wiki_leak"), dump.path))

    def test_the_wiki_s_own_way(self):
        """prof_leak:true in MALLOC_CONF and nothing else about dumps: the process itself asks for the final dump and
        prints the summary."""
        session = self.heaptap("run", "-o", "collector", "--", target("wiki_leak"),
                               env={"MALLOC_CONF": "prof_leak:true,lg_prof_sample:0"})
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertIn(f"<jemalloc>: {SUMMARY}", session.lines())
        (own,) = [dump for dump in self.dumps() if dump.prefix == "jeprof"]
        self.assert_exact(own.read())
        self.assertEqual((own.sequence, own.kind), (0, "f"))

    def test_static_program(self):
        session = self.heaptap("run", "--exact", "--", target("wiki_leak_static"))
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump()
        counts = sorted(tuple(stack.total) for stack in dump.stacks)
        self.assertIn(DO_SOMETHING, counts)
        self.assertIn(DO_SOMETHING_ELSE, counts)
        self.assert_two_leaks(self.reader("jeprof", "--text", target("wiki_leak_static"), dump.path))

    def test_without_a_preload_there_is_no_leak_but_a_line(self):
        """A static program without the allocator: nothing to record, said in one line, the program runs."""
        with open(os.path.join(self.folder, "plain.c"), "w", encoding="ascii") as source:
            source.write("int main(void) { return 5; }\n")
        compiler = self.program("gcc", "-static", "plain.c", "-o", "plain")
        self.assertEqual(compiler.wait(), 0, compiler.stderr())
        session = self.heaptap("run", "--", os.path.join(self.folder, "plain"))
        session.records = False
        self.assertEqual(session.wait(), 5, session.stderr())
        self.assertTrue([line for line in session.lines() if re.search("no .*allocator|not .*record|nothing", line)],
                        session.stderr())
        self.assertEqual(self.dumps(), [])


class PreloadAlone(Case):
    """The library without a collector."""

    needs_bpf = False

    def test_prof_leak_without_a_collector(self):
        """Bounded, the program's status unchanged, one line that says why there is no profile."""
        process = self.program(target("wiki_leak"), env={
            "LD_PRELOAD": LIBRARY, "MALLOC_CONF": "prof_leak:true,lg_prof_sample:0"})
        self.assertEqual(process.wait(), 0)
        lines = process.stderr().splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"^<heaptap>: ")
        self.assertEqual(self.dumps(), [])
