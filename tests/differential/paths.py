# SPDX-License-Identifier: Apache-2.0
"""Call paths of a heap_v2 dump in a form that does not depend on the allocator that wrote it, and their comparison.

A frame is Frame(module, offset): the mapped file and the offset of the return address in it. An address outside of files
has the module "?". A path is a tuple of frames, innermost first:

- jemalloc writes return addresses. So does heaptap, except for the first address, which is one less (jeprof subtracts one
  from every address but the first); here all are return addresses.
- jemalloc writes the address of the instruction that a signal interrupted. heaptap writes one more, so that readers, which
  take one off, find the instruction; here it is the address.
- The allocator's own frames at the inner end are cut: those in its file. On both sides they include operator new.
- jemalloc 5.3.0 keeps 128 frames and heaptap 127, of which up to 8 are their own. Of a deeper stack jemalloc keeps the
  innermost frames; heaptap keeps 80 of them, a mark, and the outermost. So of stacks with more than FRAMES only the
  innermost INNER_FRAMES are compared.

The counts are those of all allocations (in brackets in the dump). Both allocators scale them so that jeprof, which treats
them as samples, gets the right numbers: 30000 objects of 8 bytes are written as 29990. exact() undoes that.
"""

import bisect
import collections
import functools
import os

from heap_v2 import Count, Dump

Frame = collections.namedtuple("Frame", "module offset")
Difference = collections.namedtuple("Difference", "path first second")

FRAMES = 119
INNER_FRAMES = 72
# mov $15, %rax; syscall: the code of libc to which the handler of a signal returns.
RESTORER = bytes.fromhex("48c7c00f0000000f05")
NOTHING = Count(0, 0)
ALLOCATORS = ("libjemalloc.so.2", "libheaptap.so", "libheaptap-guest.so")
NOWHERE = "?"
LEFT_OUT = Frame(NOWHERE, 1)  # heaptap's mark


def exact(dump, count):
    """The recorded Count: the dump's rounding changes it by less than half an object and half a size class."""
    real = dump.unbiased(count)
    return Count(round(real.objects), round(real.bytes / 8) * 8)


class Locator:
    """Frames of the addresses of one dump; each address is looked up once."""

    def __init__(self, mappings):
        self._mappings = sorted((m for m in mappings if m.executable), key=lambda m: m.begin)
        self._begins = [m.begin for m in self._mappings]
        self._known = {}

    def __call__(self, address):
        frame = self._known.get(address)
        if frame is None:
            frame = self._known[address] = self._locate(address)
        return frame

    def _locate(self, address):
        # The byte before: a call may be the last instruction of a mapping.
        at = bisect.bisect_right(self._begins, address - 1) - 1
        if at >= 0 and address - 1 < self._mappings[at].end and self._mappings[at].path:
            mapping = self._mappings[at]
            return Frame(mapping.path, address - mapping.begin + mapping.offset)
        return Frame(NOWHERE, address)


@functools.lru_cache(maxsize=None)
def is_restorer(frame):
    try:
        with open(frame.module, "rb") as file:
            file.seek(frame.offset)
            return file.read(len(RESTORER)) == RESTORER
    except OSError:
        return False  # the vDSO, or a file of a test


def frames_of(addresses, locate, is_heaptaps):
    """`is_heaptaps`: the addresses are written as heaptap writes them."""
    frames = []
    for number, address in enumerate(addresses):
        if is_heaptaps and number == 0:
            address += 1
        elif is_heaptaps and is_restorer(frames[-1]):
            address -= 1
        frames.append(locate(address))
    return frames


def is_allocators(frame):
    return os.path.basename(frame.module) in ALLOCATORS


def normalise(frames, is_own=is_allocators):
    """One path without the allocator's frames, cut to INNER_FRAMES if it is too deep for one of the allocators."""
    own = 0
    while own < len(frames) and is_own(frames[own]):
        own += 1
    path = tuple(frames[own:])
    return path[:INNER_FRAMES] if len(path) > FRAMES or LEFT_OUT in path else path


class Paths:
    """The allocations of one process by call path. program: the name of its executable; counts: {path: Count}; modules:
    names of the files that it maps for execution; warnings: those in the dump."""

    def __init__(self, program, counts, modules=(), warnings=()):
        self.program = program
        self.counts = counts
        self.modules = set(modules)
        self.warnings = list(warnings)

    @classmethod
    def read(cls, file, first_is_less, rename=None, is_own=is_allocators):
        """Reads a dump. first_is_less: heaptap's, whose first address is one less than a return address. rename: frame -> frame."""
        dump = Dump(file)
        locate = Locator(dump.mappings)
        counts = collections.Counter(), collections.Counter()
        for stack in dump.stacks:
            path = normalise(frames_of(stack.frames, locate, first_is_less), is_own)
            if rename is not None:
                path = tuple(map(rename, path))
            count = exact(dump, stack.ever)
            counts[0][path] += count.objects
            counts[1][path] += count.bytes
        files = [m for m in dump.mappings if m.path.startswith("/")]
        program = os.path.basename(min(files, key=lambda m: m.begin).path) if files else NOWHERE
        return cls(program, {path: Count(counts[0][path], counts[1][path]) for path in counts[0] if counts[1][path]},
                   {os.path.basename(m.path) for m in files if m.executable}, dump.warnings)

    def shortened(self, shorten):
        """A copy with shorten(path) for each path; paths that become equal are merged."""
        result = Paths(self.program, {}, self.modules, self.warnings)
        for path, count in self.counts.items():
            result.add(Paths(self.program, {shorten(path): count}))
        return result

    def by_objects(self):
        """A copy whose bytes are the numbers of objects, for allocators with other sizes of blocks."""
        counts = {path: Count(count.objects, count.objects) for path, count in self.counts.items()}
        return Paths(self.program, counts, self.modules, self.warnings)

    def add(self, other):
        """Adds another process of the same program."""
        self.modules |= other.modules
        self.warnings += other.warnings
        for path, count in other.counts.items():
            mine = self.counts.get(path, NOTHING)
            self.counts[path] = Count(mine.objects + count.objects, mine.bytes + count.bytes)

    def leave_out(self, condition):
        """Removes the paths that fulfil a condition; returns them with their counts."""
        found = [path for path in self.counts if condition(path)]
        taken = [self.counts.pop(path) for path in found]
        return Count(sum(count.objects for count in taken), sum(count.bytes for count in taken))

    def bytes(self):
        return sum(count.bytes for count in self.counts.values())


class Comparison:
    """The comparison of two Paths.

    share        bytes that both have on the same path, relative to the larger of both totals: 0.0 to 1.0
    paths        number of call paths in either
    equal        number of paths with the same bytes and objects in both
    differences  the other paths, [Difference], the largest difference in bytes first
    """

    def __init__(self, first, second):
        self.bytes = first.bytes(), second.bytes()
        every = {**first.counts, **second.counts}
        self.paths = len(every)
        self.differences = []
        common = 0
        for path in every:
            one, other = first.counts.get(path, NOTHING), second.counts.get(path, NOTHING)
            common += min(one.bytes, other.bytes)
            if one != other:
                self.differences.append(Difference(path, one, other))
        self.equal = self.paths - len(self.differences)
        self.share = common / max(self.bytes) if max(self.bytes) else 1.0
        self.differences.sort(key=lambda d: (-abs(d.first.bytes - d.second.bytes), d.path))
