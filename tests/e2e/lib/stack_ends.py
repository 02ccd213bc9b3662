# SPDX-License-Identifier: Apache-2.0
"""The numbers of incomplete stacks in a dump, by the way they end."""

import re

TRUNCATED = "the 1024th frame, the last that is followed"
NO_CODE = "a return address outside of all code"
NO_RULE = "code without readable unwind information and without frame pointers"
NO_MEMORY = "stack memory that could not be read"
STUCK = "a caller below its callee"
NO_ROOM = "no room for a raw stack"


def counts_by_end(dump):
    """{end: samples} of incomplete stacks, from the dump's warnings; other warnings are ignored."""
    ends = [re.fullmatch(r"heaptap: (\d+) samples? whose outer frames are missing: (?:its stack ends|their stacks end) at (.*)", warning)
            for warning in dump.complaints()]
    assert all(ends), dump.warnings
    return {match.group(2): int(match.group(1)) for match in ends}
