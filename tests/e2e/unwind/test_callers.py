# SPDX-License-Identifier: Apache-2.0
"""The innermost frame of a stack is the function that called the allocator, even if it has no frame pointer.

So no function of the allocator lacks a frame, and all its frames are cut. No error bound.
"""

import re

import symbols
from harness import target

CALLERS = ["malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc", "posix_memalign", "new",
           "new_array", "new_nothrow", "new_aligned", "large", "huge", "new_large"]


def test_each_caller_is_the_innermost_frame(lab):
    session = lab.heaptap("run", "--exact", "--", target("callers"))
    session.ends()
    dump = lab.only_dump()
    innermost = {symbols.names(dump, stack)[0] for stack in dump.stacks}
    for caller in CALLERS:
        assert f"call_{caller}" in innermost


def test_operator_new_s_callers(lab):
    """C++ call paths begin with the caller of operator new, not inside the allocator."""
    session = lab.heaptap("run", "--exact", "--", target("cpp_program"))
    session.ends()
    dump = lab.only_dump()
    text = lab.reader("jeprof", "--text", "--show_bytes", target("cpp_program"), lab.dumps()[0].path)
    assert re.search(r"build_index|allocate|Rb_tree", text), text
    for stack in dump.stacks:
        mapping = dump.mapping(stack.frames[0])
        assert not (mapping and mapping.path.endswith("libheaptap.so")), f"own frame left: {stack}"
