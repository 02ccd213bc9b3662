# SPDX-License-Identifier: Apache-2.0
"""jemalloc's wiki, "Use Case: Heap Profiling": a dump every 1 MiB allocated, and --base between two of them.

The law: the k-th dump (from 0) is due when (k + 1) MiB have been allocated, and is written by the allocation that passes
that mark. With every allocation recorded (lg_prof_sample:0) a program that frees nothing then has (k + 1) MiB live, up to
one block more or less. For sampling see test_sampled().
"""

import math
import os

import pytest

from allocators import KI, MI, assert_answers, jeprof, jeprof_table, said, total
from symbols import live
from harness import target, wait_until

# The wiki's program allocates 6926352 bytes in all, so 6 dumps; its largest block is 39 * 4 KiB, class 160 KiB.
ALLOCATED, LARGEST = 6926352, 160 * KI

# A fixed seed, so that heaptap's sampled test always gives the same result. jemalloc needs no seed: it counts all
# allocated bytes, and only checks the count when a sample is due.
SEED = {"HEAPTAP_CONF": "prof_seed:20"}


@pytest.fixture
def dumps(recordings, allocator):
    """Of the wiki's program, which runs once under an allocator."""
    return recordings.once(type(allocator), lambda lab: leak_by_intervals(lab.checked(type(allocator)(lab))))


def leak_by_intervals(allocator):
    process = allocator.shell("MALLOC_CONF=prof:true,prof_prefix:jeprof.out,lg_prof_interval:20,lg_prof_sample:0 "
                              f"LD_PRELOAD={allocator.library} {target('wiki_leak')}")
    process.ends()
    assert said(process) == []
    return allocator.own_dumps()


def test_every_mebibyte(dumps):
    """Six files, numbered in order, each with the live memory of its moment."""
    assert [os.path.basename(dump.path) for dump in dumps] == [
        f"jeprof.out.{dumps[0].pid}.{k}.i{k}.heap" for k in range(ALLOCATED // MI)]
    for k, dump in enumerate(dumps):
        assert abs(dump.read().total.bytes - (k + 1) * MI) <= LARGEST, dump.path


def test_growth_between_two(lab, dumps):
    """jeprof --base shows the allocations between two dumps by function, in agreement with the dumps."""
    first, last = dumps[0], dumps[-1]
    rows, growth = jeprof_table(lab, f"--base={first.path}", target("wiki_leak"), last.path)
    assert growth == last.read().total.bytes - first.read().total.bytes
    assert abs(growth - 5 * MI) <= 2 * LARGEST
    for function in ("do_something", "do_something_else"):
        grown = live(last.read(), function)[1] - live(first.read(), function)[1]
        assert rows[function] == (grown, grown)
        assert grown > 2 * MI
    shrunk = jeprof(lab, "--text", "--show_bytes", f"--base={last.path}", target("wiki_leak"), first.path).decode()
    assert total(shrunk) == -growth


# Blocks of 640 KiB, which is a size class, and the numbers of them after which another whole mebibyte was allocated. If an
# interval began with the dump before, each second block would be followed by one.
GRID_BLOCK = 640 * KI
GRID = [n for n in range(1, 17) if n * GRID_BLOCK // MI > (n - 1) * GRID_BLOCK // MI]


def test_the_grid(allocator):
    """Marks are whole mebibytes from the start, not from the last dump. Other memory, below 100 KiB, moves no dump to
    another block."""
    process = allocator.puppet("prof:true,prof_prefix:grid,lg_prof_interval:20,lg_prof_sample:0")
    assert_answers(process, (f"keep {GRID[-1]} {GRID_BLOCK}", f"kept {GRID[-1]}"))
    process.ends()
    kept = [live(dump.read(), "keep_blocks")[0] for dump in allocator.own_dumps()]
    # The allocation that passes a mark writes the dump before or after it counts itself.
    assert kept in (GRID, [n - 1 for n in GRID])


def test_the_grid_of_the_collector(lab):
    """The same for heaptap run --interval, block by block."""
    session = lab.puppet_under_heaptap("--exact", "--interval", "1M")
    for n in range(1, GRID[-1] + 1):
        assert session.ask(f"keep 1 {GRID_BLOCK}") == "kept 1"
        due = len([mark for mark in GRID if mark <= n])
        wait_until(lambda count=due: len(lab.dumps(kind="i")) >= count, f"{due} dumps after {n} blocks")
    session.ends()
    assert [live(dump.read(), "keep_blocks")[0] for dump in lab.dumps(kind="i")] == GRID


def test_sampled(allocator):
    """4096 blocks of 4 KiB, a sample every 16 KiB on average.

    jemalloc: as many dumps as whole mebibytes were allocated, less one if no sample was due after the last mark.
    heaptap counts the weights of the samples: each block of Z = 4 KiB counts Z / p with probability
    p = 1 - exp(-Z / R), R = 16 KiB, so the sum over N blocks has standard error Z sqrt(N (1 - p) / p) = 481 KiB.
    Bound of both: four standard errors, and one dump for the incomplete interval at the end.
    """
    blocks, size, rate = 4096, 4 * KI, 16 * KI
    p = -math.expm1(-size / rate)
    bound = 4 * size * math.sqrt(blocks * (1 - p) / p) / MI + 1
    process = allocator.puppet("prof:true,prof_prefix:sampled,lg_prof_interval:20,lg_prof_sample:14", env=SEED)
    assert_answers(process, (f"churn {blocks} {size}", f"churned {blocks}"),
                   ("read u64 prof.interval", f"0 {MI}"))
    process.ends()
    dumps = allocator.own_dumps()
    assert [dump.number for dump in dumps] == list(range(len(dumps)))
    assert all(dump.kind == "i" for dump in dumps)
    assert abs(len(dumps) - blocks * size / MI) <= bound, allocator.names_of_dumps()
    assert len(dumps) > 0


@pytest.mark.parametrize("conf", (
    "prof:true,prof_prefix:off", "prof:true,prof_prefix:off,lg_prof_interval:-1",
    "prof:true,prof_prefix:,lg_prof_interval:20,prof_final:true,prof_gdump:true"))
def test_off(allocator, conf):
    """No dumps without lg_prof_interval, with -1, and with an empty prefix."""
    process = allocator.puppet(conf + ",lg_prof_sample:0")
    assert_answers(process, (f"keep 3 {4 * MI}", "kept 3"))
    process.ends()
    assert allocator.names_of_dumps() == []
