# SPDX-License-Identifier: Apache-2.0
"""Whatever allocates, the innermost frame of its stack is the function that called it, even if that function has no
frame pointer.

Proved: no function of the allocator's lacks a frame in the middle of a stack; all its frames are cut. No error bound.
"""

import symbols
from harness import Case, target

CALLERS = ["malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc", "posix_memalign", "new",
           "new_array", "new_nothrow", "new_aligned", "large", "huge", "new_large"]


class Callers(Case):
    def test_each_caller_is_the_innermost_frame(self):
        session = self.heaptap("run", "--exact", "--", target("callers"))
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump()
        innermost = {symbols.names(dump, stack)[0] for stack in dump.stacks}
        for caller in CALLERS:
            self.assertIn(f"call_{caller}", innermost)
