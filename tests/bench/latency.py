# SPDX-License-Identifier: Apache-2.0
"""Latency of single calls of malloc and free (latency.c), for each allocator and for heaptap while it is recorded."""

import os

import harness
from peers import BENCH, PRELOADS, RECORDED
from table import print_table

ROUNDS = 5
# Threads, calls of each, own blocks or shared ones, sizes: arguments of latency.c.
SCENES = {"1 thread, 290 B on average": ("1", "1000000", "own", "falling"),
          "2 threads, 290 B": ("2", "500000", "own", "falling"),
          "2 threads, 290 B, frees of the other thread's blocks": ("2", "500000", "shared", "falling"),
          "4 threads, 290 B, frees of the other threads' blocks": ("4", "250000", "shared", "falling"),
          "1 thread, 8 KiB on average": ("1", "1000000", "own", "even"),
          "2 threads, 8 KiB": ("2", "500000", "own", "even"),
          "2 threads, 8 KiB, frees of the other thread's blocks": ("2", "500000", "shared", "even"),
          "4 threads, 8 KiB, frees of the other threads' blocks": ("4", "250000", "shared", "even")}
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999, "most": 1}
OURS = ("heaptap", RECORDED)


def nanoseconds(bucket):
    """The least time of a bucket of latency.c."""
    return bucket if bucket < 32 else (32 + bucket % 32) << (bucket // 32 - 1)


def quantiles(histogram):
    """The times below which a share of all calls lies."""
    total, seen, found = sum(histogram.values()), 0, {}
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        for name, share in QUANTILES.items():
            if seen >= share * total:
                found.setdefault(name, nanoseconds(bucket))
    return found


def run_once(allocator, scene, folder, histograms):
    """Adds the counts of one run to the histograms of the allocator."""
    program = [os.path.join(BENCH, "latency"), *scene]
    if allocator == RECORDED:
        process = harness.Process([harness.HEAPTAP, "run", "--report=never", "-o", "profile", "--", *program], folder)
    else:
        process = harness.Process(program, folder, env={"LD_PRELOAD": PRELOADS[allocator]})
    assert process.wait(120) == 0, process.stderr()
    for line in process.stdout().splitlines():
        call, *counts = line.split()
        histogram = histograms.setdefault(call, {})
        for bucket, count in (map(int, one.split(":")) for one in counts):
            histogram[bucket] = histogram.get(bucket, 0) + count


def latency(folder):
    allocators = [*PRELOADS, RECORDED]
    results = {}
    for title, scene in SCENES.items():
        histograms = {allocator: {} for allocator in allocators}
        for _ in range(ROUNDS):
            for allocator in allocators:
                run_once(allocator, scene, folder, histograms[allocator])
        found = {allocator: {call: quantiles(histograms[allocator][call]) for call in ("malloc", "free")}
                 for allocator in allocators}
        rows = [(allocator, [found[allocator][call][name] for call in ("malloc", "free") for name in QUANTILES])
                for allocator in allocators]
        best = {call: min(found[peer][call]["p99.9"] for peer in PRELOADS if peer not in OURS) for call in ("malloc", "free")}
        print_table(f"Latency, ns: {title}; all calls of {ROUNDS} runs",
                    [f"{call} {name}" for call in ("malloc", "free") for name in QUANTILES], rows)
        print("  p99.9 recorded / the best other's: " +
              ", ".join(f"{call} {found[RECORDED][call]['p99.9'] / max(best[call], 1):.2f}" for call in best))
        results[title] = {"quantiles": found, "histograms": histograms}
    return results
