# SPDX-License-Identifier: Apache-2.0
"""The areas of a process, in which it counts samples itself (heaptap/contract.h, AREAS)."""

import struct

AREA_BYTES = 1 << 20
# The head and the mailboxes come first.
BEFORE_COUNTS = 64 * 4096
COUNTS = struct.Struct("<QIIQQQQQQ")
# The samples that a process reports before it asks for an area.
REPORTED_FIRST = 1000
# A thread reports one of this many samples at known stacks.
REPORTED_OF = 1024


def areas(pid):
    """The addresses of all areas that the process has ever had."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        ranges = [line.split()[0].split("-") for line in maps if "bpf-map" in line]
    return [int(begin, 16) for begin, end in ranges if int(end, 16) - int(begin, 16) == AREA_BYTES]


def counted(pid):
    """How many allocations the process has counted itself."""
    total = 0
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for begin in areas(pid):
            memory.seek(begin + BEFORE_COUNTS)
            for _, _, _, objects, *_ in COUNTS.iter_unpack(memory.read(AREA_BYTES - BEFORE_COUNTS)):
                total += objects
    return total
