# SPDX-License-Identifier: Apache-2.0
"""What BCC's tools need: kernel headers to compile with, and tracefs."""

import glob
import os
import re

# Debian's package linux-headers-cloud-amd64 has two trees that must be merged: the flavour's headers and the common ones.
_HEADERS = "/usr/src/linux-headers-*-cloud-amd64"
_PARTS = ("include", "arch/x86/include")


def environment(folder):
    """Environment variables for BCC's tools. If there are no headers for the running kernel, those of the newest kernel
    serve: tools for USDT probes only need stable types from them, such as pt_regs."""
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
    """The prefix of a tool's command that lets it find tracefs without a change of the machine's mounts."""
    if os.path.exists("/sys/kernel/tracing/uprobe_events") or os.path.exists("/sys/kernel/debug/tracing/uprobe_events"):
        return []
    return ["unshare", "-m", "sh", "-c", 'mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"', "sh"]
