# SPDX-License-Identifier: Apache-2.0
"""The comparison of dumps finds equal dumps equal, and finds a single difference."""

import os
import tempfile
import unittest

import explanations
from heap_v2 import Count
from paths import FRAMES, Comparison, Frame, Paths

MAPPINGS = """
MAPPED_LIBRARIES:
{0:x}000-{0:x}fff r-xp 00001000 00:01 1 /usr/bin/program
7f0000000000-7f0000001000 r-xp 00002000 00:01 2 /lib/{1}
7f0000002000-7f0000003000 r-xp 00000000 00:01 3 /lib/libother.so
7f0000002000-7f0000003000 rw-p 00000000 00:01 3 /lib/data
"""


class Sides(unittest.TestCase):
    """Two dumps of the same program: jemalloc's, with its own frames, and heaptap's at other addresses."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def read(self, stacks, first_is_less=False, program=0x400, library="libjemalloc.so.2"):
        file = os.path.join(self.folder, "dump")
        with open(file, "w", encoding="ascii") as dump:
            dump.write("heap_v2/1\n  t*: 0: 0 [1: 1]\n")
            for frames, objects, size in stacks:
                dump.write("@ " + " ".join(map(hex, frames)) + f"\n  t*: 0: 0 [{objects}: {size}]\n")
            dump.write(MAPPINGS.format(program, library))
        return Paths.read(file, first_is_less)

    def jemalloc(self, *stacks):
        return self.read([([0x7F0000000010, *frames], objects, size) for frames, objects, size in stacks])

    def heaptap(self, *stacks):
        """The same addresses, moved to the mapping of heaptap's program, the first one less by one."""
        moved = [([frame + 0x100000 for frame in frames], objects, size) for frames, objects, size in stacks]
        return self.read([([frames[0] - 1, *frames[1:]], objects, size) for frames, objects, size in moved],
                         first_is_less=True, program=0x500, library="libheaptap.so")

    STACKS = (((0x400100, 0x400200), 10, 1000), ((0x400110, 0x400200, 0x400300), 1, 4096))

    def test_the_same_is_the_same_wherever_it_is_mapped(self):
        comparison = Comparison(self.jemalloc(*self.STACKS), self.heaptap(*self.STACKS))
        self.assertEqual((comparison.share, comparison.equal, comparison.differences), (1.0, 2, []))
        self.assertEqual(comparison.bytes, (5096, 5096))

    def test_frames_are_offsets_of_return_addresses_in_files(self):
        path = (Frame("/usr/bin/program", 0x1100), Frame("/usr/bin/program", 0x1200))
        for side in (self.jemalloc(*self.STACKS), self.heaptap(*self.STACKS)):
            self.assertEqual(side.counts[path], Count(10, 1000))
            self.assertEqual(side.program, "program")

    def test_bytes_on_another_path_count_as_different(self):
        moved = (self.STACKS[0], ((0x400110, 0x400208, 0x400300), 1, 4096))
        comparison = Comparison(self.jemalloc(*self.STACKS), self.heaptap(*moved))
        self.assertAlmostEqual(comparison.share, 1000 / 5096)
        self.assertEqual(comparison.equal, 1)
        self.assertEqual([(d.first.bytes, d.second.bytes) for d in comparison.differences].count((4096, 0)), 1)
        self.assertEqual([(d.first.bytes, d.second.bytes) for d in comparison.differences].count((0, 4096)), 1)

    def test_a_path_that_ends_early_is_another(self):
        cut = (self.STACKS[0], ((0x400110, 0x400200), 1, 4096))
        self.assertAlmostEqual(Comparison(self.jemalloc(*self.STACKS), self.heaptap(*cut)).share, 1000 / 5096)

    def test_missing_bytes_and_missing_objects_are_seen(self):
        fewer = (((0x400100, 0x400200), 10, 992), self.STACKS[1])
        comparison = Comparison(self.jemalloc(*self.STACKS), self.heaptap(*fewer))
        self.assertAlmostEqual(comparison.share, 5088 / 5096)
        self.assertEqual(len(comparison.differences), 1)
        other = (((0x400100, 0x400200), 9, 1000), self.STACKS[1])
        comparison = Comparison(self.jemalloc(*self.STACKS), self.heaptap(*other))
        self.assertEqual((comparison.share, len(comparison.differences)), (1.0, 1))

    def test_what_jemalloc_makes_of_small_objects_for_jeprof_is_taken_back(self):
        side = self.jemalloc(((0x400100,), 29990, 239919))
        self.assertEqual(list(side.counts.values()), [Count(30000, 240000)])

    def test_allocators_frames_are_cut_at_the_inner_end_only(self):
        side = self.jemalloc(((0x7F0000000020, 0x400100, 0x7F0000000030, 0x400200), 1, 8000))
        self.assertEqual([len(path) for path in side.counts], [3])

    def test_long_paths_are_compared_by_their_inner_frames(self):
        frames = tuple(0x400100 + 8 * i for i in range(FRAMES + 1))
        one = Comparison(self.jemalloc(((*frames, 0x400010), 1, 4096)), self.heaptap(((*frames, 0x400020), 1, 4096)))
        self.assertEqual(one.share, 1.0)
        deep = (*frames[:80], 1, *frames[:46])
        one = Comparison(self.jemalloc((frames, 1, 4096)), self.heaptap((deep, 1, 4096)))
        self.assertEqual(one.share, 1.0)
        frames = frames[: FRAMES - 1]
        one = Comparison(self.jemalloc(((*frames, 0x400010), 1, 4096)), self.heaptap(((*frames, 0x400020), 1, 4096)))
        self.assertEqual(one.share, 0.0)

    def test_addresses_outside_of_files_stay_addresses(self):
        side = self.jemalloc(((0x400100, 0x12345678), 1, 4096))
        self.assertEqual(list(side.counts)[0][1], Frame("?", 0x12345678))

    def test_a_cut_path_is_not_explained(self):
        cut = (self.STACKS[0], ((0x400110, 0x400200), 1, 4096))
        differences = Comparison(self.jemalloc(*self.STACKS), self.heaptap(*cut)).differences
        judge = explanations.Judge("program", set())
        self.assertEqual({judge.reason(difference.path) for difference in differences}, {None})

    def test_where_addresses_decide_a_path_is_explained(self):
        moved = (self.STACKS[0], ((0x400110, 0x400208, 0x400300), 1, 4096))
        differences = Comparison(self.jemalloc(*self.STACKS), self.heaptap(*moved)).differences
        kinds = {explanations.kind(difference.path) for difference in differences}
        judge = explanations.Judge("program", kinds)
        self.assertEqual({judge.reason(difference.path) for difference in differences}, {explanations.ELSEWHERE})
