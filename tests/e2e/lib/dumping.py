# SPDX-License-Identifier: Apache-2.0
"""A program that asks for dumps by mallctl, and the time limits of dumps.

A process gives up on a dump after 10 seconds (contract.h), here after IMPATIENT_SECONDS. A dump behind those of other
threads waits up to twice as long for its turn first.
"""

import os
import re

from allocators import IMPATIENT_SECONDS, KI, assert_answers, said
from harness import TIME_SCALE, wait_until
from heap_v2 import Dump
from symbols import live

DUMP_SECONDS = IMPATIENT_SECONDS
QUEUE_SECONDS = 3 * DUMP_SECONDS
# For two busy processors.
SLACK_SECONDS = 5 * TIME_SCALE
BLOCK = 64 * KI
CONF = "prof:true,lg_prof_sample:0,prof_prefix:"


def begin(heaptap, prefix="dump", conf=""):
    return heaptap.puppet(CONF + prefix + conf)


def assert_goes_on(heaptap, process, lines):
    """The program has printed this many lines, and its next dump is complete. For a collector that was late, a process
    waits for a tenth of the usual time at first (allocator/profiling/dump.cc), in which a busy one may not answer."""
    assert len(said(process)) == lines, said(process)
    assert_answers(process, (f"keep 3 {BLOCK}", "kept 3"))
    wait_until(lambda: process.ask("write string prof.dump goes-on.prof") == "0", "a dump is written")
    assert live(heaptap.dump_named("goes-on.prof"), "keep_blocks")[0] >= 3


def assert_no_torn_file(lab):
    """Every file under a requested name is a complete dump."""
    for where, _, files in os.walk(lab.folder):
        for name in files:
            if re.search(r"\.(heap|prof)(\.\d+)?$", name):
                Dump(os.path.join(where, name)).check()
