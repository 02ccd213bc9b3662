# SPDX-License-Identifier: Apache-2.0
"""libheaptap-guest.so over the allocators of Debian, its hosts."""

import glob
import os
import shutil

from harness import GUEST, HEAPTAP, target

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# Debian 12 has version 2.0, Debian 13 version 3. The longest name is the file, the others are links.
MIMALLOC = max(glob.glob(f"{LIBRARIES}/libmimalloc.so.[0-9]*"), key=len, default="")

# What to preload behind the guest; nothing for glibc.
HOSTS = {"glibc": "", "jemalloc": f"{LIBRARIES}/libjemalloc.so.2", "tcmalloc": f"{LIBRARIES}/libtcmalloc_minimal.so.4",
         "mimalloc": MIMALLOC}


# Blocks of 100 bytes that a thread may allocate before it notices that it is recorded: it looks after 256 KiB, where a
# block counts as twice its size and 24 bytes (allocator/guest/thread.h).
UNNOTICED_BLOCKS = (256 << 10) // (2 * 100 + 24) + 1


def preload(host):
    """The variables of a process with the guest over a host."""
    return {"LD_PRELOAD": f"{GUEST} {HOSTS[host]}".strip()}


def below(host):
    """The variables with which heaptap run --guest makes a guest over this host."""
    return {"LD_PRELOAD": HOSTS[host] or None}


def puppet(lab, host, name=None, **options):
    """Starts a puppet as a guest's program, without a collector."""
    env = {**options.pop("env", {}), **preload(host)}
    process = lab.program(lab.copy("puppet", name) if name else target("puppet"), talks=True, env=env, **options)
    process.target_pid = int(process.answer().split()[1])
    return process


def library(folder):
    """What the heaptap of place() preloads."""
    return os.path.join(folder, "guest", "libheaptap.so")


def place(folder):
    """A heaptap whose libheaptap.so is the guest, for measurements in which both shall be started in the same way; returns
    its path. It preloads the library that lies beside it."""
    heaptap = os.path.join(os.path.dirname(library(folder)), "heaptap")
    os.makedirs(os.path.dirname(heaptap), exist_ok=True)
    shutil.copy(HEAPTAP, heaptap)
    shutil.copy(GUEST, library(folder))
    return heaptap


def run(lab, host, *arguments, env=None, **options):
    """heaptap run of a program with the guest over a host."""
    return lab.heaptap("run", "--guest", *arguments, env={**below(host), **(env or {})}, **options)
