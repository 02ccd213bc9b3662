# SPDX-License-Identifier: Apache-2.0
"""What BCC's tools need on a machine that was not made for them: kernel headers to compile with, and tracefs."""

import glob
import os
import re

# Where Debian's package linux-headers-cloud-amd64 puts headers: two trees that make one, the kernel's flavour and what
# flavours have in common.
_HEADERS = "/usr/src/linux-headers-*-cloud-amd64"
_PARTS = ("include", "arch/x86/include")


def environment(folder):
    """Variables for BCC's tools. Where the running kernel has no headers of its own, those of the newest kernel do that
    has some: tools that follow USDT probes take nothing from them but types that do not change, such as pt_regs."""
    variables = {"PYTHONUNBUFFERED": "1"}
    if os.path.isdir(f"/lib/modules/{os.uname().release}/build"):
        return variables
    flavours = sorted(glob.glob(_HEADERS), key=lambda path: [int(word) for word in re.findall(r"\d+", path)])
    assert flavours, "no kernel headers: apt install linux-headers-cloud-amd64"
    common = flavours[-1].replace("-cloud-amd64", "-common")
    merged = os.path.join(folder, "kernel-headers")
    if not os.path.exists(merged):
        _merge((common, flavours[-1]), merged)
    return dict(variables, BCC_KERNEL_SOURCE=merged)


def _merge(trees, merged):
    for part in _PARTS:
        os.makedirs(os.path.join(merged, part))
        for tree in trees:
            if os.path.isdir(os.path.join(tree, part)):
                for name in os.listdir(os.path.join(tree, part)):
                    os.symlink(os.path.join(tree, part, name), os.path.join(merged, part, name))


def wrapper():
    """What must stand before a tool's command so that it finds tracefs; the machine's own mounts stay as they are."""
    if os.path.exists("/sys/kernel/tracing/uprobe_events") or os.path.exists("/sys/kernel/debug/tracing/uprobe_events"):
        return []
    return ["unshare", "-m", "sh", "-c", 'mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"', "sh"]
