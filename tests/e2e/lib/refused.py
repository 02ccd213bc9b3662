# SPDX-License-Identifier: Apache-2.0
"""Programs whose system calls are refused (tests/targets/faults/refuse_call.c), and every_request, which makes every kind of
request of an allocator and checks what it gets (tests/targets/faults/every_request.c).
"""

import collections
import re

from guests import HOSTS
from harness import GUEST, LIBRARY, target

# Every allocation is a sample.
SAMPLED = {"SAMPLE": "0"}
# Memory goes back at once, by a thread of the library's own.
EAGER = {"SAMPLE": "12", "MALLOC_CONF": "dirty_decay_ms:0,background_thread:true,thp:always"}
MODES = {
    "library": {"LD_PRELOAD": LIBRARY},
    "library-sampled": {"LD_PRELOAD": LIBRARY, **SAMPLED},
    "library-eager": {"LD_PRELOAD": LIBRARY, **EAGER},
    "guest": {"LD_PRELOAD": GUEST},
    "guest-sampled": {"LD_PRELOAD": GUEST, **SAMPLED},
}
# Glibc as the host of a guest, and without one.
ALONE = "glibc"

# Just above the border between the blocks within chunks and those with a mapping of their own.
JUST_HUGE = 17 << 20
FOREVER = (1 << 31) - 1

# What every_request was refused before and after, and its memory; calls: {kind: how many}; failed: how many calls.
Result = collections.namedtuple("Result", "refused_before refused_after resident_kib calls failed")


def start(lab, mode, *arguments, wrapper=(), host=ALONE, **options):
    """Starts every_request, below a command that may have nothing preloaded. `host`: of a guest, or alone."""
    variables = dict(MODES.get(mode, {}))
    variables["LD_PRELOAD"] = f"{variables.get('LD_PRELOAD', '')} {HOSTS[host]}".strip()
    assignments = [f"{name}={value}" for name, value in variables.items()]
    return lab.program(*wrapper, "env", *assignments, target("every_request"), *arguments, **options)


def start_refusing(lab, mode, kind, error, first, last, caller="libheaptap", most=JUST_HUGE):
    """Starts every_request; the first to the last call of a kind fail. `caller`: in the code of this file, or "any"."""
    return lab.program(target("refuse_call"), kind, error, first, last, caller, target("every_request"), most, env=MODES[mode])


def result(process):
    """Waits for its end, which must be good: no crash, no hang, no damaged byte."""
    status = process.wait()
    said = process.stdout() + process.stderr()
    assert status == 0, f"{process.command}: status {status}:\n{said}"
    before, after = re.search(r"^refused (\d+) then (\d+)$", process.stdout(), re.MULTILINE).groups()
    calls = {kind: int(count) for kind, count in re.findall(r"^([\w-]+) (\d+)$", process.stdout(), re.MULTILINE)}
    resident = int(re.search(r"^resident (\d+) KiB$", process.stdout(), re.MULTILINE).group(1))
    return Result(int(before), int(after), resident, calls, calls.pop("refused", 0))
