# SPDX-License-Identifier: Apache-2.0
"""How the page is drawn: in windows of all sizes, light and dark, without jumps, and with work for what can be seen only.

Error bounds: none. Work is counted; tests/bench/page.py measures how long it takes.
"""

import shutil

import pytest

import large_pages
from harness import wait_until
from pages import names, page_of, write_dump

# Elements of a page with any number of paths: tables show their first rows.
MOST_ELEMENTS = 3000
# Layouts for a change of the page, however much it shows: it reads sizes a few times while it is built, and each frame until
# it is drawn may be one. A layout for each row or path would be hundreds.
MOST_LAYOUTS = 8


@pytest.fixture
def hundred_thousand(recordings):
    return recordings.once("hundred thousand paths", lambda lab: large_pages.many_paths(lab.folder, large_pages.random_numbers()))


# The work of one drawing: `boxes` filled, and `visited` nodes, each of which asks twice where it is. Beside them what can be
# seen: nodes at least half a pixel wide in the window, and a grey box for the narrower children of one parent. And what must
# be looked at to know that: these, those of the rows above them, and their wide children.
COUNT_WORK = """
const {tree, graph} = heaptap.view.graphs.flames[0];
const canvas = document.querySelector('.flame canvas');
const {fillRect} = CanvasRenderingContext2D.prototype;
const {toX} = graph;
const works = [];
for (const node of [...tree.childList.slice(0, 20), 0]) {
  let boxes = 0, asked = 0;
  CanvasRenderingContext2D.prototype.fillRect = function (...words) { boxes++; return fillRect.apply(this, words); };
  graph.toX = (...words) => { asked++; return toX.apply(graph, words); };
  graph.zoom(node, false);
  CanvasRenderingContext2D.prototype.fillRect = fillRect;
  delete graph.toX;
  let seen = 0, known = 1;
  for (const rest = [0]; rest.length > 0;) {
    const one = rest.pop();
    const x = Math.max(0, graph.toX(graph.begins[one])), end = Math.min(graph.width, graph.toX(graph.ends[one]));
    const y = graph.toY(tree.depth[one]);
    if (end - x < 0.5 || y > graph.height) continue;
    const children = tree.childList.slice(tree.firstChild[one], tree.firstChild[one + 1]);
    const isWide = child => graph.ends[child] - graph.begins[child] >= 0.5 / graph.width * (graph.right - graph.left);
    const wide = children.filter(isWide), narrow = children.filter(child => !isWide(child));
    rest.push(...wide);
    known += wide.length;
    if (narrow.length > 0) {
      known++;
      const [first, last] = [narrow[0], narrow[narrow.length - 1]];
      const from = Math.max(0, graph.toX(graph.begins[first])), to = Math.min(graph.width, graph.toX(graph.ends[last]));
      if (to - from >= 0.5) seen++;
    }
    if (y + graph.row >= 0) seen++;
  }
  works.push({boxes, visited: asked / 2, seen, known});
}
return works;
"""


def counted_work(browser):
    works = browser.script(COUNT_WORK)
    for work in works:
        assert (work["boxes"], work["visited"]) == (work["seen"], work["known"])
        assert work["seen"] > 1
    return works


def layouts(browser):
    """How often the browser has computed places."""
    browser.driver.execute_cdp_cmd("Performance.enable", {})
    metrics = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "LayoutCount")


@pytest.mark.product
def test_a_hundred_thousand_paths(browser, hundred_thousand, held):
    browser.open(f"file://{hundred_thousand}")
    browser.wait(".flame canvas")
    nodes = browser.script("return heaptap.view.graphs.flames[0].tree.size")
    assert nodes > large_pages.PATHS
    assert browser.script("return document.querySelectorAll('*').length") < MOST_ELEMENTS
    whole = counted_work(browser)
    try:
        # A window that is too low for all rows.
        browser.resize(1280, 320)
        wait_until(lambda: browser.script("return heaptap.view.graphs.flames[0].graph.height") < 200, "a low graph")
        part = counted_work(browser)
    finally:
        browser.resize(1280, 720)
    for kind in ("boxes", "visited"):
        assert sum(work[kind] for work in part) < sum(work[kind] for work in whole)
    before = layouts(browser)
    browser.script("heaptap.view.graphs.flames[0].graph.zoom(heaptap.view.graphs.flames[0].tree.childList[0], false)")
    drawn = layouts(browser) - before
    held("layouts of a zoom with 100,000 paths", MOST_LAYOUTS, drawn)
    assert drawn <= MOST_LAYOUTS
    browser.shoot("hundred_thousand_paths")


@pytest.mark.product
def test_four_hundred_thousand_blocks(lab, browser, hundred_thousand, held):
    """Filters and tables by thread, size and age."""
    page = shutil.copy(hundred_thousand, lab.path("blocks.html"))
    of_age = large_pages.add_blocks(page, large_pages.random_numbers(2))
    browser.open(f"file://{page}")
    browser.wait(".flame canvas")
    assert len(browser.script("return heaptap.view.profile.blocks.path")) == large_pages.PATHS * large_pages.BLOCKS_OF_PATH
    counts = {}
    for name, part in large_pages.CHANGES.items():
        before = layouts(browser)
        browser.driver.execute_async_script(large_pages.CHANGE, part)
        counts[name] = layouts(browser) - before
        assert browser.script("return document.querySelectorAll('*').length") < MOST_ELEMENTS
        if name == "filter by age alone":
            assert browser.script("return heaptap.view.graphs.flames[0].tree.bytes[0]") == of_age[10]
    most = max(counts, key=counts.get)
    held(f"layouts of a change with 400,000 blocks ({most})", MOST_LAYOUTS, counts[most])
    browser.shoot("four_hundred_thousand_blocks")
    assert counts[most] <= MOST_LAYOUTS, counts


def test_what_is_too_narrow_is_a_grey_box(lab, browser):
    """Down to where it ends; else a deep recursion would seem to end where its boxes get narrow."""
    depth, paths = 30, 3000
    many = [((*[0x1100 + 16 * level for level in range(depth)], 0x10000 + 16 * path), 1, 100) for path in range(paths)]
    dump = lab.path("narrow.prof")
    write_dump(dump, [((0x1004,), 1, 100 * paths), *[(tuple(frames), objects, size) for frames, objects, size in many]])
    browser.open(page_of(lab, dump))
    browser.wait(".flame canvas")
    # In the middle of the first row of narrow boxes, and of the last one.
    grey, *shown = browser.script("""
        const {tree, graph} = heaptap.view.graphs.flames[0];
        const canvas = document.querySelector('.flame canvas'), box = canvas.getBoundingClientRect();
        document.querySelector('.flame').scrollTop = 0;
        const narrow = Array.from(tree.depth.keys()).filter(node => graph.toX(graph.ends[node]) - graph.toX(graph.begins[node]) < 0.5);
        const depths = narrow.map(node => tree.depth[node]);
        const x = (graph.toX(graph.begins[narrow[0]]) + graph.toX(graph.ends[narrow[narrow.length - 1]])) / 2;
        const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const pixel = (x, y) => Array.from(image.subarray(4 * (Math.floor(y) * canvas.width + Math.floor(x))).slice(0, 3));
        canvas.style.color = 'var(--line)';
        const line = getComputedStyle(canvas).color.match(/\\d+/g).map(Number);
        const y = depth => graph.toY(depth) + graph.row / 2;
        return [line, pixel(x, y(Math.min(...depths))), pixel(x, Math.min(y(Math.max(...depths)), graph.height - 5))]""")
    assert shown == [grey, grey]
    browser.shoot("narrow_boxes")


def test_themes_and_sizes(lab, browser, leak):
    address = page_of(lab, leak)
    for width, height, is_dark in ((1280, 720, True), (3840, 2160, False), (800, 600, False)):
        browser.darken(is_dark)
        browser.resize(width, height)
        browser.open(address)
        browser.wait(".flame canvas")
        assert browser.script("return document.documentElement.scrollWidth <= innerWidth")
        browser.shoot(f"{width}x{height}{'_dark' if is_dark else ''}")
    browser.darken(False)
    browser.resize(1280, 720)


def test_a_graph_is_as_high_as_its_rows(lab, browser, leak):
    """Below a shallow one nothing is left white; a deep one has all the room."""
    deep = lab.path("deep.prof")
    write_dump(deep, [(tuple(0x1100 + 16 * level for level in range(60)), 1, 100)])
    lengths = ("return [...document.querySelectorAll('.flame')].map((one, i) => [one.clientHeight, "
               "(heaptap.view.graphs.flames[i].graph.reach[0] + 1) * heaptap.view.graphs.flames[i].graph.row, one.clientWidth, one.scrollWidth])")
    for fragment in ("", "#view=bottom-up", "#view=butterfly&focus=do_something"):
        browser.open(page_of(lab, leak) + fragment)
        browser.wait(".flame canvas")
        # Some rows at least, so that the tooltip of a box covers no other part.
        wait_until(lambda: all(high == max(58, rows) for high, rows, *_ in browser.script(lengths)), "as high as its rows")
    # The table has the rest of a shallow one's room.
    gap = ("const [graph, flame, side, panes] = ['.graph', '.flame:last-of-type', '.side', '.panes'].map(one => document.querySelector(one)"
           ".getBoundingClientRect()); return [side.top - flame.bottom, panes.bottom - side.bottom, side.width - panes.width]")
    browser.open(page_of(lab, leak))
    wait_until(lambda: browser.find(".panes.stacked"), "the table is below the graph")
    before = browser.script(gap)
    assert before[0] < 20 and abs(before[1]) < 1 and abs(before[2]) < 1
    browser.click_row("do_something")
    browser.wait(".chip")
    wait_until(lambda: browser.script(gap) == before, "everything is where it was")
    browser.shoot("shallow")
    browser.open(page_of(lab, deep))
    browser.wait(".flame canvas")
    ((high, rows, *_),) = browser.script(lengths)
    room = browser.script("return document.querySelector('.graph').getBoundingClientRect().bottom"
                          " - document.querySelector('.flame').getBoundingClientRect().bottom")
    assert high < rows and abs(room) < 1 and not browser.find(".panes.stacked")


def test_layout_does_not_jump(lab, browser, leak):
    browser.open(page_of(lab, leak))
    browser.wait(".flame canvas")
    box = "const box = document.querySelector('.flame').getBoundingClientRect(); return [box.x, box.y, box.width, box.height]"
    before = browser.script(box)
    browser.search("main")
    browser.wait_text(".matches", "match")
    assert browser.script(box) == before
    browser.click_box("main")
    browser.wait(".chip")
    assert browser.script(box) == before


def text_sizes(browser):
    """Pixels: letters of the table, of buttons and of the smallest text, and the height of a row of boxes."""
    sizes = browser.script("return ['.rows td', '.choice button', '.facts .detail'].map(one => "
                           "parseFloat(getComputedStyle(document.querySelector(one)).fontSize))")
    rows = browser.script("const {tree, graph} = heaptap.view.graphs.flames[0];"
                          "return graph.place(tree.childList[0]).y - graph.place(0).y")
    letters = browser.script("return parseFloat(document.querySelector('.flame canvas').getContext('2d').font)")
    return [*sizes, rows, letters]


def test_text_follows_the_window(lab, browser, leak):
    """Readable at 4K, as it was in smaller windows; without loading anew, and back to the same places."""
    places = ("return [...document.querySelectorAll('h1, button, input, .flame, .scroll, .rows td')].map(one => {"
              "const box = one.getBoundingClientRect(); return [box.x, box.y, box.width, box.height]})")
    browser.open(page_of(lab, leak))
    browser.wait(".flame canvas")
    usual = [13, 13, 11, 21, 12]
    assert text_sizes(browser) == usual
    before = browser.script(places)
    try:
        for width, height, least in ((3840, 2160, 1.7), (2560, 1440, 1.2), (1920, 1080, 1), (800, 600, 1), (3840, 720, 1)):
            browser.resize(width, height)
            wait_until(lambda w=width: browser.script("return innerWidth") == w, "the window has the size")
            largest = least + 0.05
            wait_until(lambda low=least, high=largest: all(
                low * one - 0.5 <= now <= high * one + 0.5 for now, one in zip(text_sizes(browser), usual)),
                f"text of {width}x{height}")
            assert browser.script("return document.documentElement.scrollWidth <= innerWidth")
            assert browser.script("return document.documentElement.scrollHeight <= innerHeight")
        browser.resize(3840, 2160)
        wait_until(lambda: text_sizes(browser)[0] >= 22, "letters of 22 pixels at 4K")
        browser.hover_box("main")
        browser.shoot("text_at_4k")
        # Boxes are where the mouse looks for them.
        browser.click_box("do_something")
        wait_until(lambda: set(names(browser)) == {"do_something", "main"}, "the table has what is below the box")
        browser.escape()
        browser.escape()
    finally:
        browser.resize(1280, 720)
    wait_until(lambda: text_sizes(browser) == usual, "the usual text")
    wait_until(lambda: browser.script(places) == before, "everything is where it was")
