# SPDX-License-Identifier: Apache-2.0
"""How long the page of a very large profile takes in Debian's Chromium: until it can be used, for a frame, for a change."""

import os
import statistics

import large_pages
from browser import chromium
from table import print_table

LOADS = 5
FRAMES = 21
_FRAME_TIMES = """
const {tree, graph} = heaptap.view.graphs.flames[0];
return [...tree.childList.slice(0, arguments[0] - 1), 0].map(node => { graph.zoom(node, false); return graph.frameMilliseconds; });
"""


def _ready(browser, page):
    """Milliseconds. Other work on the machine delays a load, and never hastens it."""
    times = []
    for _ in range(LOADS):
        browser.open(f"file://{page}")
        browser.wait(".flame canvas")
        times.append(browser.script("return heaptap.readyMilliseconds"))
    return min(times)


def page(folder):
    random = large_pages.random_numbers()
    with chromium(os.path.join(folder, "chromium")) as browser:
        path = large_pages.many_paths(folder, random)
        ready = {"100,000 paths": _ready(browser, path)}
        frames = browser.script(_FRAME_TIMES, FRAMES)
        large_pages.add_blocks(path, random)
        ready["400,000 blocks"] = _ready(browser, path)
        changes = {name: browser.driver.execute_async_script(large_pages.CHANGE, part)
                   for name, part in large_pages.CHANGES.items()}
    rows = [(f"{name}, until it is drawn, least of {LOADS}", [f"{time:.0f}"]) for name, time in ready.items()]
    rows += [(f"a frame, median of {FRAMES}", [f"{statistics.median(frames):.1f}"]), ("the longest", [f"{max(frames):.1f}"])]
    rows += [(name, [f"{time:.0f}"]) for name, time in changes.items()]
    print_table("The page of a large profile: ms", ["ms"], rows)
    return {"ready": ready, "frames": frames, "changes": changes}
