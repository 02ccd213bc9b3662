# SPDX-License-Identifier: Apache-2.0
"""A soak: programs come and go, the collector is killed and ended in turn, clients dump and read pages. What the recording
holds does not grow.

HEAPTAP_LONG=1: an hour; otherwise two minutes. Each collector lives for the same number of programs and is measured at its
end, when it records nothing. What can be counted is the same at the end as at the beginning. Memory has noise, so it must have no slope:
a straight line through the samples must not rise by more of its standard errors than chance makes once in 10^9 lines. That
holds for independent normal noise; two lines are drawn in a run.
"""

import json
import math
import signal
import statistics
import time

import pytest

import symbols
from daemons import EXACT
from harness import LONG, TIME_SCALE, wait_until
from heap_v2 import Dump
from holdings import counts_of
from process_tree import resident_mib

SECONDS = (3600 if LONG else 120) * TIME_SCALE
# In the life of a collector; some minutes of an hour.
BATCHES = 100 if LONG else 5
AT_ONCE = 20
KEPT, BYTES = 3, 1000
CHANCE = 1e-9
# With fewer samples a line says little.
LEAST_SAMPLES = 6
# Lives before the first sample. The daemon remembers the last thousand ended processes, and then as many as it may.
WARM_UP = math.ceil(1000 / (BATCHES * AT_ONCE))


def chance_of(deviations, freedom):
    """The probability that Student's t exceeds `deviations` with this even number of degrees of freedom (Abramowitz and
    Stegun, 26.7.4)."""
    angle = math.atan(deviations / math.sqrt(freedom))
    term = total = 1.0
    for i in range(2, freedom, 2):
        term *= (i - 1) / i * math.cos(angle) ** 2
        total += term
    return (1 - math.sin(angle) * total) / 2


def slope(figures):
    """The slope of the line through figures of which the number is even, and its standard error."""
    count = len(figures)
    times = [i - (count - 1) / 2 for i in range(count)]
    spread = sum(one * one for one in times)
    mean = statistics.fmean(figures)
    rise = sum(one * figure for one, figure in zip(times, figures)) / spread
    rest = sum((figure - mean - rise * one) ** 2 for one, figure in zip(times, figures))
    return rise, math.sqrt(rest / (count - 2) / spread)


def assert_no_growth(figures):
    rise, error = slope(figures)
    if rise > 0:
        assert error > 0 and chance_of(rise / error, len(figures) - 2) > CHANCE, (rise, error, figures)


def run_batch(lab, daemon):
    """Programs live at the same time. All are right, and one of them is dumped and looked at."""
    puppets = [lab.preloaded_puppet(env=EXACT) for _ in range(AT_ONCE)]
    pids = {puppet.pid for puppet in puppets}
    for puppet in puppets:
        puppet.ask(f"keep {KEPT} {BYTES}")

    def are_right():
        entries = daemon.processes()
        return pids <= set(entries) and all(entries[pid]["live_objects"] == KEPT for pid in pids)
    wait_until(are_right, "all are recorded")
    path = lab.path("dump")
    daemon.dump(puppets[0].pid, path)
    assert symbols.live(Dump(path), "keep_blocks")[0] == KEPT
    assert b"keep_blocks" in daemon.get(f"/pid/{puppets[0].pid}/collapsed").body
    for puppet in puppets:
        puppet.ends()
    wait_until(lambda: not daemon.processes(), "they have ended")


@pytest.mark.endurance
@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS + 600 * TIME_SCALE)
def test_soak(lab, start_daemon, held):
    daemon = start_daemon("--exact", "--dump-at-exit", "never")
    memory, kernel, counts = [], [], None
    end = time.monotonic() + SECONDS
    lives = 0
    while time.monotonic() < end or len(memory) < LEAST_SAMPLES:
        for _ in range(BATCHES):
            run_batch(lab, daemon)
        lives += 1
        if lives > WARM_UP:
            memory.append(resident_mib(daemon.process.pid))
            kernel.append(daemon.metrics().get("heaptap_kernel_memory_bytes", 0))
            counts = counts or counts_of(daemon)
        if lives % 2:
            daemon.kill()
        else:
            daemon.stop(signal.SIGTERM)
        daemon.start()
    run_batch(lab, daemon)
    # The kernel removes some objects a little later.
    wait_until(lambda: counts_of(daemon) == counts, f"it holds what the first one held: {counts}")
    for name, figures in (("memory", memory), ("kernel memory", kernel)):
        figures = figures[len(figures) % 2:]
        rise, error = slope(figures)
        held(f"growth of {name} for each collector, {len(figures)} of them", "no slope",
             f"{rise:.3f} +- {error:.3f} of {statistics.fmean(figures):.1f}")
        assert_no_growth(figures)
    held("programs that came and went", "-", lives * BATCHES * AT_ONCE)
    held("descriptors and pinned objects", "the same", json.dumps(counts))
