# SPDX-License-Identifier: Apache-2.0
"""Pages of very large profiles, the same at each run, for tests and benchmarks."""

import json
import os
import subprocess

from harness import HEAPTAP, PATIENCE_SECONDS, environment
from pages import write_dump

PATHS = 100000
BLOCKS_OF_PATH = 4
THREADS = 50
SIZES = 200
AGES = (-1, 0, 1, 10, 60, 600)


def random_numbers(state=1):
    """Knuth's linear congruential generator."""
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state >> 33


def many_paths(folder, random):
    """A page with a hundred thousand paths of twenty frames: ten thousand of sixteen, each with ten ways to go on."""
    path, page = os.path.join(folder, "many.prof"), os.path.join(folder, "many.html")
    paths = []
    for outer in range(PATHS // 10):
        callers = [0x1001 + 16 * (next(random) % (2 + depth * depth)) for depth in range(16)]
        for _ in range(10):
            callees = [0x1001 + 16 * (next(random) % 5000) for _ in range(4)]
            paths.append((tuple(reversed(callers + callees)), 1, 64 + outer % 1000))
    write_dump(path, paths)
    subprocess.run([HEAPTAP, "view", "-o", page, path], check=True, stderr=subprocess.DEVNULL, env=environment(folder),
                   timeout=2 * PATIENCE_SECONDS)
    return page


def add_blocks(page, random):
    """Gives the page's profile threads and blocks; the sums of each path stay as they are. Returns bytes by age."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    begin = text.index('id="profile">') + len('id="profile">')
    end = text.index("</script>", begin)
    profile = json.loads(text[begin:end])
    first = len(profile["texts"])
    profile["texts"] += [f"thread {number + 1} worker" for number in range(THREADS)]
    shares = {"path": [], "thread": []}
    for value in ("live", "allocated"):
        for measure in ("bytes", "objects", "samples", "variance"):
            shares[f"{value}_{measure}"] = []
    blocks = {name: [] for name in shares if not name.startswith("allocated")} | {"size": [], "age": []}
    of_age = dict.fromkeys(AGES, 0)
    for number in range(len(profile["paths"]["stack"])):
        thread = first + next(random) % THREADS
        for share in range(BLOCKS_OF_PATH):
            age, size = AGES[next(random) % len(AGES)], 16 * (1 + next(random) % SIZES)
            columns = [number, thread, size, age]
            for measure in ("bytes", "objects", "samples", "variance"):
                whole = profile["paths"][f"live_{measure}"][number]
                columns.append(whole // BLOCKS_OF_PATH if share else whole - whole // BLOCKS_OF_PATH * (BLOCKS_OF_PATH - 1))
            of_age[age] += columns[4]
            for name, value in zip(("path", "thread", "size", "age", "live_bytes", "live_objects", "live_samples",
                                    "live_variance"), columns):
                blocks[name].append(value)
        shares["path"].append(number)
        shares["thread"].append(thread)
        for name in shares:
            if name not in ("path", "thread"):
                shares[name].append(profile["paths"][name][number])
    profile |= {"threads": shares, "blocks": blocks}
    with open(page, "w", encoding="utf-8") as file:
        file.write(text[:begin] + json.dumps(profile, separators=(",", ":")).replace("<", "\\u003c") + text[end:])
    return of_age


# What a person changes on a page with blocks, one after the other.
CHANGES = {"filter by thread": {"thread": "thread 7 worker"}, "filter by age too": {"age": 60},
           "filter by age alone": {"thread": "", "age": 10}, "no filter": {"age": None},
           "table by size": {"table": "size"}, "table by age": {"table": "age"}, "table by thread": {"table": "thread"}}
# Makes a change and returns the milliseconds until it is drawn.
CHANGE = """
const [part, done] = arguments;
const begin = performance.now();
heaptap.change(part);
requestAnimationFrame(() => setTimeout(() => done(performance.now() - begin)));
"""
