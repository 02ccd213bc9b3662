# SPDX-License-Identifier: Apache-2.0
"""jemalloc's wiki, "Use Case: Leak Checking": summary, top list, call graphs as PDF and SVG, with the real jeprof,
graphviz and ghostscript.

Everything is recorded (lg_prof_sample:0): no error bounds.
"""

import re
import xml.etree.ElementTree

import pytest

from allocators import SAYS, jeprof, jeprof_table, said, text_of_pdf
from harness import target

# 1 KiB * (0 + .. + 79) and 4 KiB * (0 + .. + 39) in size classes.
SOMETHING, SOMETHING_ELSE = 3502088, 3424264
BOTH = SOMETHING + SOMETHING_ELSE
OBJECTS, CONTEXTS = 120, 2
TOP_LIST = {
    "do_something": (SOMETHING, SOMETHING), "do_something_else": (SOMETHING_ELSE, SOMETHING_ELSE),
    "main": (0, BOTH), "__libc_start_call_main": (0, BOTH), "__libc_start_main_impl": (0, BOTH), "_start": (0, BOTH),
}


@pytest.fixture
def leak(recordings, allocator):
    """The wiki's command line under an allocator, once; the path of its final dump."""
    return recordings.once(type(allocator), lambda lab: record(lab, lab.checked(type(allocator)(lab))))


def record(lab, allocator):
    process = allocator.shell("MALLOC_CONF=prof_leak:true,lg_prof_sample:0,prof_final:true "
                              f"LD_PRELOAD={allocator.library} {target('wiki_leak')}")
    process.ends()
    assert process.stdout() == ""
    assert said(process) == [
        f"{SAYS}Leak approximation summary: ~{BOTH + allocator.noise_bytes} bytes, "
        f"~{OBJECTS + allocator.noise_objects} objects, >= {CONTEXTS + allocator.noise_contexts} contexts",
        f"{SAYS}Run jeprof on dump output for leak detail"]
    (dump,) = [dump for dump in lab.dumps() if dump.prefix == "jeprof"]
    assert (dump.sequence, dump.kind) == (0, "f")
    return dump.path


def test_top_list(lab, allocator, leak):
    """jeprof --show_bytes --text: the same rows as under jemalloc, except for jemalloc's own C++ library."""
    rows, whole = jeprof_table(lab, target("wiki_leak"), leak)
    assert whole == BOTH + allocator.noise_bytes
    own = {name: row for name, row in rows.items()
           if name not in allocator.noise_functions and not name.startswith("std::")}
    assert own == TOP_LIST


def test_call_graph_as_pdf(lab, leak):
    path = lab.path("w.pdf")
    with open(path, "wb") as file:
        file.write(jeprof(lab, "--show_bytes", "--pdf", target("wiki_leak"), leak))
    pages, text = text_of_pdf(path)
    assert pages == 1
    for word in ("do_something", "do_something_else", "main", str(SOMETHING), str(SOMETHING_ELSE)):
        assert re.search(rf"\b{word}\b", text), text


def test_call_graph_as_svg(lab, leak):
    """The output is XML with the functions as nodes and edges from main to both."""
    svg = xml.etree.ElementTree.fromstring(
        jeprof(lab, "--show_bytes", "--svg", target("wiki_leak"), leak))
    space = {"svg": "http://www.w3.org/2000/svg"}
    assert svg.tag == f"{{{space['svg']}}}svg"
    nodes, edges = {}, []
    for group in svg.iter(f"{{{space['svg']}}}g"):
        title = group.find("svg:title", space)
        texts = [text.text for text in group.iterfind(".//svg:text", space)]
        if group.get("class") == "node":
            nodes[title.text] = texts
        elif group.get("class") == "edge":
            edges.append((title.text, texts))
    named = {texts[0]: node for node, texts in nodes.items()}
    assert {"main", "do_something", "do_something_else"} <= set(named)
    assert any(str(SOMETHING) in text for text in nodes[named["do_something"]]), nodes
    for function, size in (("do_something", SOMETHING), ("do_something_else", SOMETHING_ELSE)):
        assert (f"{named['main']}->{named[function]}", [str(size)]) in edges
