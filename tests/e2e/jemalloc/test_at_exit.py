# SPDX-License-Identifier: Apache-2.0
"""prof_final, prof_leak, prof_leak_error in programs that hold blocks at their end, and in programs that do not.

Everything is recorded (lg_prof_sample:0): no error bounds.
"""

import os
import re

from allocators import SAYS, Jemalloc, assert_answers, said


def run_holding(allocator, conf, blocks, end="exit 0"):
    process = allocator.puppet(conf + ",prof_prefix:end,lg_prof_sample:0")
    assert_answers(process, (f"keep {blocks} 4096", f"kept {blocks}"))
    process.tell(end)
    return process, process.wait()


def test_prof_final(allocator):
    process, status = run_holding(allocator, "prof:true,prof_final:true", 10)
    assert (status, said(process)) == (0, []), process.stderr()
    assert allocator.names_of_dumps() == [f"end.{process.target_pid}.0.f.heap"]


def test_no_prof_final(allocator):
    process, status = run_holding(allocator, "prof:true", 10)
    assert (status, said(process)) == (0, []), process.stderr()
    assert allocator.names_of_dumps() == []


def test_prof_leak_needs_prof_final(allocator):
    """In jemalloc prof_leak alone prints nothing and writes nothing."""
    process, status = run_holding(allocator, "prof_leak:true,prof_final:false", 10)
    assert (status, said(process)) == (0, []), process.stderr()
    assert allocator.names_of_dumps() == []


def test_the_status_is_the_programs(allocator):
    process, status = run_holding(allocator, "prof_leak:true,prof_final:true", 10, end="exit 7")
    assert status == 7, process.stderr()
    assert allocator.names_of_dumps() == [f"end.{process.target_pid}.0.f.heap"]


def test_no_dump_at_underscore_exit(allocator):
    process, status = run_holding(allocator, "prof_leak:true,prof_final:true", 10, end="_exit 3")
    assert (status, said(process)) == (3, []), process.stderr()
    assert allocator.names_of_dumps() == []


def test_leak_error(allocator):
    """Status 1 instead of the program's 0, and a line with the reason."""
    process, status = run_holding(allocator, "prof_leak_error:true,prof_final:true", 10)
    assert status == 1, process.stderr()
    summary, *rest = said(process)
    assert re.search(rf"^{SAYS}Leak approximation summary: ~\d+ bytes, ~\d+ objects, >= \d+ ", summary)
    assert rest == [f"{SAYS}Run jeprof on dump output for leak detail",
                    f"{SAYS}Exiting with error code because memory leaks were detected"]
    name = f"end.{process.target_pid}.0.f.heap"
    if isinstance(allocator, Jemalloc):
        # It ends the process before its buffer is written.
        assert os.path.getsize(allocator.path(name)) == 0
        os.unlink(allocator.path(name))
    else:
        # Complete: it ends with the mappings (the reader checks that) and has the blocks.
        assert allocator.dump_named(name).total.objects == 10


def test_leak_error_without_a_leak(heaptap):
    """Nothing is live: no summary, and the program's own status. (jemalloc's own libstdc++ always leaks.)"""
    process, status = run_holding(heaptap, "prof_leak_error:true,prof_final:true", 0, end="exit 0")
    assert (status, said(process)) == (0, []), process.stderr()


def test_one_leak(heaptap):
    """byte, object, context: by number."""
    process, status = run_holding(heaptap, "prof_leak:true,prof_final:true", 1)
    assert status == 0
    assert said(process)[0] == f"{SAYS}Leak approximation summary: ~4096 bytes, ~1 object, >= 1 context"
