# SPDX-License-Identifier: Apache-2.0
"""Damaged or missing unwind tables: the samples are kept, and their stacks are whole, or marked and counted.

Recording is exact; error bounds: none.
"""

import re
import signal

import pytest

import plugins
import symbols
from loader import BARE, LEFT, assert_called, preloaded_loader, call, end, loader, open_plugin
from stack_ends import NO_CODE, NO_RULE, counts_by_end


def assert_harmless(lab, damage, process, session, copy, called=None):
    """The process goes on with the plugin; heaptap prints one line about the file if it is damaged, no sample is lost, and
    samples with incomplete stacks are counted."""
    dump = lab.only_dump(process.target_pid)
    about = [line for line in session.lines() if copy in line]
    through = [stack for stack in dump.stacks
               if any((mapping := dump.mapping(address - 1)) and mapping.path == copy for address in stack.frames)]
    objects = sum(stack.total.objects for stack in through)
    if damage in plugins.HARMLESS:
        assert about == []
        assert dump.complaints() == []
        assert_called(dump, "left", called or objects, {copy: LEFT})
    else:
        (line,) = about
        assert re.search(r"^heaptap: no unwind table for .*: .*; stacks through it follow frame pointers$", line), line
        assert set(counts_by_end(dump)) <= {NO_RULE, NO_CODE}
    return objects


@pytest.mark.parametrize("damage", plugins.DAMAGES)
def test_run(lab, damage):
    copy = plugins.damaged(LEFT, damage, lab.folder)
    session = loader(lab)
    open_plugin(session, copy)
    call(session, "left_enter", 20000)
    session.ends()
    assert assert_harmless(lab, damage, session, session, copy, 20000) >= 20000


@pytest.mark.parametrize("damage", plugins.DAMAGES)
def test_attach(lab, damage):
    copy = plugins.damaged(LEFT, damage, lab.folder)
    process = preloaded_loader(lab)
    open_plugin(process, copy)
    session = lab.attach(process.target_pid, "--exact")
    call(process, "left_enter", 20000)
    session.signal(signal.SIGINT)
    session.ends()
    process.ends()
    assert assert_harmless(lab, damage, process, session, copy) > 1000


def test_code_without_a_table(lab):
    """Compiled without unwind tables and frame pointers: the caller of malloc is kept, and no stack counts as whole."""
    session = loader(lab)
    open_plugin(session, BARE)
    call(session, "bare_enter", 1000)
    dump = end(lab, session)
    stacks = [stack for stack in dump.stacks if symbols.names(dump, stack)[0] == "bare_inner"]
    assert sum(stack.total.objects for stack in stacks) == 1001
    assert sum(counts_by_end(dump).values()) == 1001
