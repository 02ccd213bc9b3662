# SPDX-License-Identifier: Apache-2.0
"""Reads the books that heaptap prints with --books at the end of a process, and checks that they balance.

For each process, the sum over tallies of (allocated - freed) equals the sum over the live map, in objects, bytes and
weight; and nothing was lost, unless a test expects losses.
"""

import json
import os
import re


def has_kernel(version):
    return tuple(map(int, re.match(r"(\d+)\.(\d+)", os.uname().release).groups())) >= version


# Earlier kernels throw the memory of a process away before its end can be noticed, with the frees that it held back.
# They are counted as a loss.
HAS_MEMORY_AT_EXIT = has_kernel((6, 16))
# Earlier kernels tell what maps may hold, and not what they hold.
TELLS_MEMORY = has_kernel((6, 4))
LOSSES_OF_KERNEL = () if HAS_MEMORY_AT_EXIT else ("frees_unread",)


def read(text):
    """All books in the stderr of a heaptap, in the order of closing. A line that is still being written is left out."""
    return [json.loads(line)["books"] for line in text.splitlines(True) if line.startswith('{"books"') and line.endswith("\n")]


def losses(books):
    return {reason: events for reason, events in books["losses"].items() if events}


def check(books, losses_allowed=()):
    said = json.dumps(books)
    assert books["balanced"] is True, f"the books do not balance: {said}"
    assert books["live_entries"] == books["tally_live_objects"], f"objects do not balance: {said}"
    assert books["live_bytes"] == books["tally_live_bytes"], f"bytes do not balance: {said}"
    assert books["live_weight"] == books["tally_live_weight"], f"weights do not balance: {said}"
    assert books["samples_allocated"] - books["samples_freed"] == books["live_entries"], f"samples: {said}"
    allowed = (*losses_allowed, *LOSSES_OF_KERNEL)
    unexpected = {reason: events for reason, events in losses(books).items() if reason not in allowed}
    assert not unexpected, f"losses that nothing explains: {unexpected}"
