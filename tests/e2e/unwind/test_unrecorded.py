# SPDX-License-Identifier: Apache-2.0
"""Unwind tables of processes without a sampled allocator."""

import json
import os
import shutil
import subprocess

from descriptors import descriptors
from harness import wait_until


def inodes_with_tables(daemon):
    """The inodes of files whose unwind tables the kernel has, or has asked for."""
    ids = {fields["map_id"] for fields in descriptors(daemon.process.pid) if "map_id" in fields}

    def bpftool(*arguments):
        return json.loads(subprocess.run(["/usr/sbin/bpftool", "-j", "map", *arguments], capture_output=True,
                                         check=True).stdout)
    (files,) = [number for number in ids if bpftool("show", "id", number)["name"] == "files"]
    return {entry["formatted"]["key"]["inode"] for entry in bpftool("dump", "id", files)}


def test_no_tables_of_processes_without_the_library(lab, start_daemon):
    """Most processes have no sampled allocator: their files must cost nothing."""
    stranger = lab.path("stranger")
    shutil.copy(shutil.which("sleep"), stranger)
    process = lab.program(stranger, "1000")
    wait_until(lambda: os.path.realpath(f"/proc/{process.pid}/exe") == stranger, "it runs")
    puppet = lab.preloaded_puppet("mine")
    daemon = start_daemon()
    daemon.wait_recorded(puppet.pid)
    inodes = inodes_with_tables(daemon)
    assert os.stat(lab.path("mine")).st_ino in inodes
    assert os.stat(stranger).st_ino not in inodes
