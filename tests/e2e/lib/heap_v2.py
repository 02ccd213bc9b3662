# SPDX-License-Identifier: Apache-2.0
"""Reads heap_v2 dumps, jemalloc's text format, strictly: anything unexpected is an error.

    %warn TEXT                                        any number, before everything
    heap_v2/RATE
      t*: OBJECTS: BYTES [OBJECTS: BYTES]             totals: live [accumulated]
      tN: ...                                         one for each thread
    @ 0xINNERMOST 0xCALLER ...                        one block for each call path
      t*: ...
      tN: ...

    MAPPED_LIBRARIES:
    # time and # build-id lines, and /proc/PID/maps
"""

import collections
import math
import re

# Numbers as in the file; unbiased() makes estimates.
Count = collections.namedtuple("Count", "objects bytes")
# total and threads are live; ever is the accumulated total, if the writer keeps one.
Stack = collections.namedtuple("Stack", "frames total ever threads")
Mapping = collections.namedtuple("Mapping", "begin end executable offset path")

_COUNTS = re.compile(r"^  t(\*|\d+): (\d+): (\d+) \[(\d+): (\d+)\](?: (.*))?$")
_STACK = re.compile(r"^@((?: 0x[0-9a-f]+)+)$")
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ \d+ *(.*)$")


class NotHeapV2(Exception):
    pass


class Dump:
    """warnings: texts; rate: bytes; total: Count; threads: {id: Count}; stacks: [Stack]; mappings: [Mapping]."""

    def __init__(self, path):
        self.path = path
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            self._read(file.read().split("\n"))

    def complaints(self):
        """The warnings, without that about a process to which heaptap has attached: it began before. Where a process has
        not, its books say (books.check)."""
        return [warning for warning in self.warnings if "beginning of the process not recorded" not in warning]

    def _read(self, lines):
        if lines[-1] != "":
            raise NotHeapV2(f"{self.path}: does not end with a line feed")
        head, tail = lines, []
        if "MAPPED_LIBRARIES:" in lines:
            at = lines.index("MAPPED_LIBRARIES:")
            head, tail = lines[:at], lines[at + 1 : -1]
        else:
            raise NotHeapV2(f"{self.path}: no MAPPED_LIBRARIES: section")
        self.warnings = []
        while head and head[0].startswith("%warn "):
            self.warnings.append(head.pop(0)[len("%warn ") :])
        match = re.fullmatch(r"heap_v2/(\d+)", head.pop(0)) if head else None
        if match is None:
            raise NotHeapV2(f"{self.path}: no heap_v2 header")
        self.rate = int(match.group(1))
        self.stacks = []
        self.threads = {}
        self.total = None
        threads = self.threads
        for number, line in enumerate(head):
            if line == "":
                continue
            stack = _STACK.match(line)
            counts = _COUNTS.match(line)
            if stack:
                threads = {}
                self.stacks.append([[int(word, 16) for word in stack.group(1).split()], None, None, threads])
            elif counts:
                count = Count(int(counts.group(2)), int(counts.group(3)))
                ever = Count(int(counts.group(4)), int(counts.group(5)))
                if any(pair.objects > 0 and pair.bytes == 0 for pair in (count, ever)):
                    raise NotHeapV2(f"{self.path}: objects without bytes kill jeprof: {line}")
                if counts.group(1) != "*":
                    threads[int(counts.group(1))] = count
                elif self.stacks:
                    self.stacks[-1][1:3] = count, ever
                else:
                    self.total = count
            else:
                raise NotHeapV2(f"{self.path}: line {number + 2} is nothing that belongs there: {line!r}")
        if self.total is None:
            raise NotHeapV2(f"{self.path}: no totals")
        self.stacks = [Stack(*stack) for stack in self.stacks]
        if any(stack.total is None for stack in self.stacks):
            raise NotHeapV2(f"{self.path}: a call path without a t* line")
        self.mappings = []
        self.build_ids = {}
        for line in tail:
            if line.startswith("# "):
                words = line.split()
                if words[1] == "build-id":
                    self.build_ids[int(words[2], 16)] = words[3]
                continue
            match = _MAPPING.match(line)
            if match is None:
                raise NotHeapV2(f"{self.path}: not a line of /proc/PID/maps: {line!r}")
            begin, end, protection, offset, path = match.groups()
            self.mappings.append(Mapping(int(begin, 16), int(end, 16), "x" in protection, int(offset, 16), path))

    def unbiased(self, count):
        """A Count corrected like jeprof's AdjustSamples: floats."""
        if count.objects == 0:
            return Count(0.0, 0.0)
        factor = 1 / -math.expm1(-(count.bytes / count.objects) / self.rate)
        return Count(count.objects * factor, count.bytes * factor)

    def estimate(self, stacks, which="total"):
        """The sum of jeprof's estimates over all call paths, `total` or `ever`."""
        counts = [self.unbiased(getattr(stack, which)) for stack in stacks]
        return Count(sum(count.objects for count in counts), sum(count.bytes for count in counts))

    def mapping(self, address):
        return next((m for m in self.mappings if m.begin <= address < m.end), None)

    def check(self):
        """Checks what holds in every dump: no two equal call paths, and the parts add up to the whole, except for rounding."""
        paths = [tuple(stack.frames) for stack in self.stacks]
        assert len(paths) == len(set(paths)), f"{self.path}: the same call path twice"
        for stack in self.stacks:
            assert stack.total.objects + stack.ever.objects > 0, f"{self.path}: a call path that never held anything"
            for what in ("objects", "bytes"):
                threads = sum(getattr(self.unbiased(count), what) for count in stack.threads.values())
                whole = getattr(self.unbiased(stack.total), what)
                # Each line is rounded separately, by up to a half.
                bound = whole / max(1, getattr(stack.total, what)) * (len(stack.threads) + 1)
                assert abs(threads - whole) <= bound + 0.001 * whole, (
                    f"{self.path}: threads have {threads} {what}, their call path {whole}")
        if self.rate == 1:
            for what in ("objects", "bytes"):
                parts = sum(getattr(stack.total, what) for stack in self.stacks)
                whole = getattr(self.total, what)
                assert abs(parts - whole) <= 0.001 * whole + 1, (
                    f"{self.path}: call paths have {parts} {what}, the head of the dump {whole}")
