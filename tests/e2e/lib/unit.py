# SPDX-License-Identifier: Apache-2.0
"""The settings of the systemd unit, and a daemon with the same rights and limits without systemd."""

import contextlib
import os
import re
import resource

from harness import ROOT

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def setting(name):
    with open(os.path.join(ROOT, "scripts/systemd/heaptap.service.in"), encoding="utf-8") as file:
        return re.search(rf"^{name}=(.*)$", file.read(), re.MULTILINE)[1]


def with_its_capabilities():
    """The command before a program that gets exactly the unit's capabilities."""
    names = [word.removeprefix("CAP_").lower() for word in setting("CapabilityBoundingSet").split()]
    bounding = ",".join(["-all"] + [f"+{name}" for name in names])
    return ["setpriv", "--no-new-privs", "--bounding-set", bounding]


def memory_max():
    number, unit = re.fullmatch(r"(\d+)([KMG])", setting("MemoryMax")).groups()
    return int(number) * _UNITS[unit]


def limit_self():
    """For a child that has not called exec yet (preexec_fn). A container may forbid to raise limits."""
    files = int(setting("LimitNOFILE"))
    niceness = 20 - int(setting("LimitNICE"))  # the kernel's form (setrlimit(2))
    for kind, limit in ((resource.RLIMIT_NOFILE, files), (resource.RLIMIT_MEMLOCK, resource.RLIM_INFINITY),
                        (resource.RLIMIT_NICE, niceness)):
        with contextlib.suppress(ValueError):
            resource.setrlimit(kind, (limit, limit))
    os.umask(int(setting("UMask"), 8))
    with contextlib.suppress(PermissionError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(setting("OOMScoreAdjust"))
    os.setpriority(os.PRIO_PROCESS, 0, int(setting("Nice")))
    # What the daemon does itself with LimitNICE.
    with contextlib.suppress(FileNotFoundError), open("/proc/self/autogroup", "w", encoding="ascii") as file:
        file.write(setting("Nice"))
