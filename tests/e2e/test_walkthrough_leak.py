# SPDX-License-Identifier: Apache-2.0
"""jemalloc's wiki, "Use Case: Leak Checking": summary, top list, call graphs as PDF and SVG, with the real jeprof,
graphviz and ghostscript. prof_leak_error and prof_final.

Everything is recorded (lg_prof_sample:0): no error bounds.
"""

import os
import re
import xml.etree.ElementTree

from harness import target
from walkthrough import SAYS, OnHeaptap, OnJemalloc, Steering, jeprof, jeprof_table, said, text_of_pdf

# 1 KiB * (0 + .. + 79) and 4 KiB * (0 + .. + 39) in size classes.
SOMETHING, SOMETHING_ELSE = 3502088, 3424264
BOTH = SOMETHING + SOMETHING_ELSE
OBJECTS, CONTEXTS = 120, 2
TOP_LIST = {
    "do_something": (SOMETHING, SOMETHING), "do_something_else": (SOMETHING_ELSE, SOMETHING_ELSE),
    "main": (0, BOTH), "__libc_start_call_main": (0, BOTH), "__libc_start_main_impl": (0, BOTH), "_start": (0, BOTH),
}


class LeakChecking:
    def leak(self):
        """The wiki's command line; the path of its final dump."""
        process = self.shell("MALLOC_CONF=prof_leak:true,lg_prof_sample:0,prof_final:true "
                             f"LD_PRELOAD={self.library} {target('wiki_leak')}")
        self.assertEqual(process.wait(), 0, process.stderr())
        self.assertEqual(process.stdout(), "")
        self.assertEqual(said(process), [
            f"{SAYS}Leak approximation summary: ~{BOTH + self.noise_bytes} bytes, ~{OBJECTS + self.noise_objects} "
            f"objects, >= {CONTEXTS + self.noise_contexts} contexts",
            f"{SAYS}Run jeprof on dump output for leak detail"])
        (dump,) = [dump for dump in self.dumps() if dump.prefix == "jeprof"]
        self.assertRegex(os.path.basename(dump.path), r"^jeprof\.\d+\.0\.f\.heap$")
        return dump.path

    def test_top_list(self):
        """jeprof --show_bytes --text: each row as jemalloc has it, but for jemalloc's own C++ library."""
        rows, whole = jeprof_table(self, target("wiki_leak"), self.leak())
        self.assertEqual(whole, BOTH + self.noise_bytes)
        own = {name: row for name, row in rows.items()
               if name not in self.noise_functions and not name.startswith("std::")}
        self.assertEqual(own, TOP_LIST)

    def test_call_graph_as_pdf(self):
        path = os.path.join(self.folder, "w.pdf")
        with open(path, "wb") as file:
            file.write(jeprof(self, "--show_bytes", "--pdf", target("wiki_leak"), self.leak()))
        pages, text = text_of_pdf(path)
        self.assertEqual(pages, 1)
        for word in ("do_something", "do_something_else", "main", str(SOMETHING), str(SOMETHING_ELSE)):
            self.assertRegex(text, rf"\b{word}\b")

    def test_call_graph_as_svg(self):
        """It is XML, its nodes are the functions, its edges lead from main to both."""
        svg = xml.etree.ElementTree.fromstring(
            jeprof(self, "--show_bytes", "--svg", target("wiki_leak"), self.leak()))
        space = {"svg": "http://www.w3.org/2000/svg"}
        self.assertEqual(svg.tag, f"{{{space['svg']}}}svg")
        nodes, edges = {}, []
        for group in svg.iter(f"{{{space['svg']}}}g"):
            title = group.find("svg:title", space)
            texts = [text.text for text in group.iterfind(".//svg:text", space)]
            if group.get("class") == "node":
                nodes[title.text] = texts
            elif group.get("class") == "edge":
                edges.append((title.text, texts))
        named = {texts[0]: node for node, texts in nodes.items()}
        self.assertLessEqual({"main", "do_something", "do_something_else"}, set(named))
        self.assertTrue(any(str(SOMETHING) in text for text in nodes[named["do_something"]]), nodes)
        for function, size in (("do_something", SOMETHING), ("do_something_else", SOMETHING_ELSE)):
            self.assertIn((f"{named['main']}->{named[function]}", [str(size)]), edges)


class LeakCheckingJemalloc(LeakChecking, OnJemalloc):
    pass


class LeakCheckingHeaptap(LeakChecking, OnHeaptap):
    pass


class AtExit(Steering):
    """prof_final, prof_leak, prof_leak_error in programs that hold blocks at their end, and in such as do not."""

    def run_holding(self, conf, blocks, end="exit 0"):
        process = self.steered(conf + ",prof_prefix:end,lg_prof_sample:0")
        self.assert_answers(process, (f"keep {blocks} 4096", f"kept {blocks}"))
        process.tell(end)
        return process, process.wait()

    def test_prof_final(self):
        process, status = self.run_holding("prof:true,prof_final:true", 10)
        self.assertEqual((status, said(process)), (0, []), process.stderr())
        self.assertEqual(self.names_of_dumps(), [f"end.{process.target_pid}.0.f.heap"])

    def test_no_prof_final(self):
        process, status = self.run_holding("prof:true", 10)
        self.assertEqual((status, said(process)), (0, []), process.stderr())
        self.assertEqual(self.names_of_dumps(), [])

    def test_prof_leak_needs_prof_final(self):
        """In jemalloc prof_leak alone prints nothing and writes nothing."""
        process, status = self.run_holding("prof_leak:true,prof_final:false", 10)
        self.assertEqual((status, said(process)), (0, []), process.stderr())
        self.assertEqual(self.names_of_dumps(), [])

    def test_the_status_is_the_programs(self):
        process, status = self.run_holding("prof_leak:true,prof_final:true", 10, end="exit 7")
        self.assertEqual(status, 7, process.stderr())
        self.assertEqual(self.names_of_dumps(), [f"end.{process.target_pid}.0.f.heap"])

    def test_no_dump_at_underscore_exit(self):
        process, status = self.run_holding("prof_leak:true,prof_final:true", 10, end="_exit 3")
        self.assertEqual((status, said(process)), (3, []), process.stderr())
        self.assertEqual(self.names_of_dumps(), [])

    def test_leak_error(self):
        """Status 1 where the program said 0, and a line that says why."""
        process, status = self.run_holding("prof_leak_error:true,prof_final:true", 10)
        self.assertEqual(status, 1, process.stderr())
        self.assertRegex(said(process)[0], rf"^{SAYS}Leak approximation summary: ~\d+ bytes, ~\d+ objects, >= \d+ ")
        self.assertEqual(said(process)[1:], [f"{SAYS}Run jeprof on dump output for leak detail",
                                             f"{SAYS}Exiting with error code because memory leaks were detected"])
        self.check_dump_of_leak_error(f"end.{process.target_pid}.0.f.heap")


class AtExitJemalloc(AtExit, OnJemalloc):
    def check_dump_of_leak_error(self, name):
        """Not a dump: jemalloc ends the process before its buffer is written."""
        self.assertEqual(os.path.getsize(self.path(name)), 0)
        os.unlink(self.path(name))


class AtExitHeaptap(AtExit, OnHeaptap):
    def check_dump_of_leak_error(self, name):
        """Whole: it ends with the mappings (the reader insists) and has the blocks."""
        self.assertEqual(self.dump_named(name).total.objects, 10)

    def test_leak_error_without_a_leak(self):
        """Nothing is live: no summary, and the program's own status. (jemalloc's own libstdc++ always leaks.)"""
        process, status = self.run_holding("prof_leak_error:true,prof_final:true", 0, end="exit 0")
        self.assertEqual((status, said(process)), (0, []), process.stderr())

    def test_one_leak(self):
        """byte, object, context: by number."""
        process, status = self.run_holding("prof_leak:true,prof_final:true", 1)
        self.assertEqual(status, 0)
        self.assertTrue(re.match(rf"{SAYS}Leak approximation summary: ~4096 bytes, ~1 object, >= 1 context$",
                                 said(process)[0]), said(process))
