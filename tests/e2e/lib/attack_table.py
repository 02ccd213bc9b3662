# SPDX-License-Identifier: Apache-2.0
"""The table of all attacks that were measured: build/e2e/hostile.txt, and hostile.json for programs."""

import contextlib
import json
import os

from harness import BUILD

_TABLE = os.path.join(BUILD, "e2e", "hostile")
_HEAD = ("attack", "healthz", "heap", "dump", "own dump", "root's list", "pause", "waits", "losses", "newcomer s", "well again s", "restart s",
         "resident MiB", "charged MiB", "innocent")


def note(row):
    """Replaces the attack's row. A pair is what was measured beside busy loops and under attack."""
    os.makedirs(os.path.dirname(_TABLE), exist_ok=True)
    rows = {}
    with contextlib.suppress(FileNotFoundError), open(f"{_TABLE}.json", encoding="utf-8") as file:
        rows = {one["attack"]: one for one in json.load(file)}
    rows[row["attack"]] = row
    with open(f"{_TABLE}.json", "w", encoding="utf-8") as file:
        json.dump(list(rows.values()), file, indent=1)
    cells = [[" -> ".join(one[name]) if isinstance(one.get(name), list) else one.get(name, "") for name in _HEAD]
             for one in rows.values()]
    widths = [max(map(len, column)) for column in zip(_HEAD, *cells)]
    with open(f"{_TABLE}.txt", "w", encoding="utf-8") as file:
        file.write("Answer times and the longest pause in ms (median/longest), beside busy loops -> under attack; waits of the "
                   "main thread outside of its loop, by system call (number/longest in ms).\n\n")
        for line in (_HEAD, ["-" * width for width in widths], *cells):
            file.write("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() + "\n")
