# SPDX-License-Identifier: Apache-2.0
"""What was measured beside what it may be, in one table."""

import statistics

from table import print_table


def _instructions(result):
    # Lines of tests/bench/instructions: the last column of a pattern is with sampling on.
    most = {"fixed": 50, "small": 57, "wide": 68}
    for line in result["table"]:
        words = line.split()
        if words and words[0] in most and len(words) > 3:
            yield f"instructions of malloc+free, sampling on: {words[0]}", float(words[-1]), most[words[0]]


def _recording(result):
    bars = {"2 frames": 0.6, "18 frames": 0.3, "64 frames": 0.3, "30 frames, each after an mmap": 0.6}
    for column, ratio in result["heaptap_to_jemalloc"].items():
        yield f"every allocation recorded, times jemalloc's: {column}", ratio, bars[column]
    for column, ratio in result["counted_to_heaptrack"].items():
        if "mmap" not in column:
            yield f"every allocation counted, times heaptrack's: {column}", ratio, 1 / 3


def _paths(result):
    for column, ratio in result["heaptap_to_heaptrack"].items():
        yield f"every allocation recorded, times heaptrack's: {column}", ratio, 1


def _commands(result):
    for name, ratio in result["added_to_heaptrack"].items():
        yield f"every allocation recorded, added time, times heaptrack's: {name}", ratio, 1


def _gigabyte(result):
    yield "a gigabyte a second at the default rate: % lost", 100 * result["loss"], 0.3


def _large(result):
    yield "large blocks that come and go, times glibc's", result["medians"]["heaptap"][0] / result["medians"]["glibc"][0], 1


def _latency(result):
    for scene, one in result.items():
        found = one["quantiles"]
        for call in ("malloc", "free"):
            best = min(found[peer][call]["p99.9"] for peer in found if not peer.startswith("heaptap"))
            yield f"p99.9 of {call}, recorded, times the best other's: {scene}", found["heaptap recording"][call]["p99.9"] / best, 1


def _threads(result):
    for name, seconds in result["seconds"].items():
        best = min(seconds[peer] for peer in seconds if not peer.startswith("heaptap"))
        yield f"{name}, times the best other's", seconds["heaptap"] / best, 1


def _returned(result):
    for name, by_allocator in result["mebibytes"].items():
        before, after = by_allocator["heaptap"]
        yield f"% of a freed GiB still resident: {name}", 100 * after / before, 10
    for name, by_allocator in result["phases"].items():
        ratio = by_allocator["heaptap"][1] / by_allocator["jemalloc"][1]
        yield f"resident after a change of sizes, times jemalloc's: {name}", ratio, 1


def _programs(result):
    ratios = {name: [ours / theirs for ours, theirs in zip(one["heaptap"], one["glibc"])]
              for name, one in result["medians"].items()}
    worst = max(ratios, key=lambda name: ratios[name][0])
    yield f"the slowest program, times glibc's ({worst})", ratios[worst][0], 1.03
    product = 1
    for one in ratios.values():
        product *= one[1]
    yield "largest resident programs, times glibc's, geometric mean", product ** (1 / len(ratios)), 1.05


def _collector(result):
    yield "the daemon with 50,000 samples a second: % of a core", 100 * result["share"], 0.5


def _pauses(result):
    for name, one in result["steps"].items():
        yield f"100,000 call paths, longest pause of the daemon in ms: {name}", 1000 * one["pause"], 20
    # The process has some more.
    yield "seconds for a dump, of each 100,000 call paths", result["steps"]["heaptap dump"]["seconds"] * 1e5 / result["paths"], 1


def _page(result):
    for name, milliseconds in result["ready"].items():
        yield f"ms until a page is drawn: {name}", milliseconds, 1000
    yield "ms of a frame of a page with 100,000 paths", statistics.median(result["frames"]), 1000 / 60
    slowest = max(result["changes"], key=result["changes"].get)
    yield f"ms of a change of a page with 400,000 blocks ({slowest})", result["changes"][slowest], 1000


def _guest(result):
    for host, by_way in result["nanoseconds"].items():
        means = {way: statistics.fmean(one) for way, one in by_way.items()}
        yield f"a pair of the guest over {host}, not recorded: ns more than the bare host", means["guest"] - means["bare"], 1.5
    most = max(result["samples"], key=result["samples"].get)
    yield f"samples of a program under the guest, % of its time ({most})", 100 * result["samples"][most], 0.5


BARS = {"instructions": _instructions, "recording": _recording, "paths": _paths, "commands": _commands, "gigabyte": _gigabyte, "large": _large, "latency": _latency,
        "threads": _threads, "returned": _returned, "programs": _programs, "guest": _guest, "collector": _collector,
        "pauses": _pauses, "page": _page}


def print_bars(results):
    rows = []
    for name, bars in BARS.items():
        if name not in results:
            continue
        for title, measured, most in bars(results[name]):
            rows.append((title, [f"{measured:.2f}", f"{most:g}", "met" if measured <= most else "MISSED"]))
    if rows:
        print_table("Bars", ["measured", "at most", ""], rows)
