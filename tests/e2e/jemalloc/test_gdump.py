# SPDX-License-Identifier: Apache-2.0
"""prof_gdump: dumps at new maxima, `u` dumps.

Everything is recorded (lg_prof_sample:0): no error bounds.
"""

from allocators import MI, assert_answers
from symbols import live

CONF = "prof:true,prof_gdump:true,prof_prefix:high,lg_prof_sample:0"


def high_dumps(allocator):
    return allocator.own_dumps(kind="u")


def grow(allocator, process, blocks):
    """The new dumps that this many kept blocks of 4 MiB cause."""
    before = len(high_dumps(allocator))
    assert_answers(process, (f"keep {blocks} {4 * MI}", f"kept {blocks}"))
    return high_dumps(allocator)[before:]


def test_each_new_maximum(allocator):
    """One dump for each step up, in order, with the live memory just before or after the step."""
    process = allocator.puppet(CONF)
    assert_answers(process, ("read bool opt.prof_gdump", "0 true"), ("read bool prof.gdump", "0 true"))
    for kept in range(8):
        (dump,) = grow(allocator, process, 1)
        objects, _ = live(dump.read(), "keep_blocks")
        assert objects in (kept, kept + 1), dump.path
    assert [dump.number for dump in high_dumps(allocator)] == list(range(len(high_dumps(allocator))))
    process.ends()
    assert [dump for dump in allocator.own_dumps() if dump.kind != "u"] == []


def test_none_below_the_maximum(allocator):
    """Memory shrinks and grows again, but not to the earlier maximum: no dump."""
    process = allocator.puppet(CONF)
    grow(allocator, process, 8)
    before = allocator.names_of_dumps()
    assert_answers(process, ("drop", "dropped 8"))
    assert allocator.names_of_dumps() == before
    assert grow(allocator, process, 7) == []
    assert len(grow(allocator, process, 4)) >= 1


def test_switched_by_mallctl(allocator):
    """prof.gdump returns the old value; while it is off, maxima are counted but not dumped."""
    process = allocator.puppet(CONF)
    assert len(grow(allocator, process, 1)) == 1
    assert_answers(process, ("swap bool prof.gdump false", "0 true"))
    assert grow(allocator, process, 4) == []
    assert_answers(process, ("drop", "dropped 5"), ("swap bool prof.gdump true", "0 false"))
    assert grow(allocator, process, 4) == []
    assert_answers(process, ("swap bool prof.gdump true", "0 true"))
    assert len(grow(allocator, process, 3)) >= 1


def test_switched_on_later(allocator):
    """Off at first (the default)."""
    process = allocator.puppet("prof:true,prof_prefix:high,lg_prof_sample:0")
    assert grow(allocator, process, 2) == []
    assert_answers(process, ("swap bool prof.gdump true", "0 false"))
    assert len(grow(allocator, process, 1)) == 1
