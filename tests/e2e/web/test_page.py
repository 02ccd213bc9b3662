# SPDX-License-Identifier: Apache-2.0
"""The page in Debian's Chromium: one file and as the daemon serves it. A person clicks, drags, searches, compares and follows
a link; the figures are those of heaptap report --json. Pictures of all states go to build/screenshots/.

Recording is exact; error bounds: none.
"""

import base64
import hashlib
import json
import math
import os
import re
import signal
import urllib.parse

import pytest

import programs
from browser import chromium
from harness import TIME_SCALE, target, wait_until
from lab import assert_one_clear_line
from security import keeping_puppet

DAEMON = ["--exact", "--listen", "127.0.0.1:0", "--rule", "comm=puppet", "--rule", "record=off"]
EXACT = {"MALLOC_CONF": "prof:true,lg_prof_sample:0"}
# Of the program of jemalloc's wiki.
TOTAL, OBJECTS = 6926352, 120
# Usable within a second, and 60 frames in one.
READY_MILLISECONDS = 1000 * TIME_SCALE
FRAME_MILLISECONDS = 1000 / 60 * TIME_SCALE
LOADS = 5
EMPTY_PAGE_BYTES = 400 << 10


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened
        assert not opened.complaints()


def run(lab, *arguments):
    """The output of a command that records nothing."""
    session = lab.heaptap(*arguments)
    session.records = False
    session.ends()
    return session.stdout()


def page_of(lab, dump, *arguments):
    path = lab.path("page.html")
    run(lab, "view", *arguments, "-o", path, dump)
    return f"file://{path}"


@pytest.fixture
def leak(lab):
    session = lab.heaptap("run", "--exact", "--", target("wiki_leak"))
    session.ends()
    return lab.dumps()[0].path


@pytest.fixture
def callers(lab):
    """C++ with inlined functions and the standard library."""
    session = lab.heaptap("run", "--exact", "--", target("cpp_program"))
    session.ends()
    return lab.dumps()[0].path


def names(browser):
    return [row[-1] for row in browser.rows()]


def test_figures_are_those_of_the_report(lab, browser, leak):
    document = json.loads(run(lab, "report", "--json", leak))
    browser.open(page_of(lab, leak))
    browser.wait(".flame canvas")
    assert browser.script("return heaptap.view.profile.paths.live_bytes.reduce((a, b) => a + b)") == TOTAL
    assert document["live"]["bytes"] == TOTAL
    expected = {}
    for path in document["call_paths"]:
        for function in {frame["function"] for frame in path["frames"]}:
            size, objects = expected.get(function, (0, 0))
            expected[function] = (size + path["live"]["bytes"], objects + path["live"]["objects"])
    boxes = browser.boxes()
    for function in ("main", "do_something", "do_something_else"):
        assert boxes[function] == expected[function]
    assert "6.6M" in browser.text(".facts") and str(OBJECTS) in browser.text(".facts")
    # malloc's callers: without what starts the program.
    assert names(browser) == ["do_something", "do_something_else", "main"] or \
        names(browser) == ["do_something_else", "do_something", "main"]
    browser.shoot("flame_graph")


def test_click_zooms_and_the_table_follows(lab, browser, leak):
    browser.open(page_of(lab, leak))
    browser.wait(".flame canvas")
    browser.click_box("do_something")
    wait_until(lambda: set(names(browser)) == {"do_something", "main"}, "the table has what is below the box")
    browser.shoot("zoomed")
    browser.escape()
    wait_until(lambda: len(names(browser)) == 3 or "zoom" in browser.driver.current_url, "one step back")
    browser.hover_box("main")
    browser.wait_text(".tooltip", "wiki_leak.c")
    assert "6.6M" in browser.text(".tooltip") and "mean size" in browser.text(".tooltip")
    browser.shoot("tooltip")


def test_a_row_filters_everything(lab, browser, leak):
    browser.open(page_of(lab, leak))
    browser.wait("tbody tr")
    browser.click_row("do_something_else")
    wait_until(lambda: set(browser.boxes()) == {"main", "do_something_else"}, "only paths through the function")
    assert "do_something_else" in browser.text(".chips")
    browser.wait(".chip").click()
    wait_until(lambda: "do_something" in browser.boxes(), "all paths again")


def test_search_tells_how_much_matches(lab, browser, leak):
    browser.open(page_of(lab, leak))
    browser.wait("#search")
    part = browser.boxes()["do_something"][0]
    browser.search("do_something$")
    browser.wait_text(".matches", f"{part / 2**20:.1f}M ({100 * part / TOTAL:.1f}%) match")
    assert names(browser) == ["do_something"]
    browser.shoot("search")
    browser.search("do_something(")
    browser.wait_text(".matches", "not a regular expression")


def test_views_and_measures(lab, browser, leak):
    browser.open(page_of(lab, leak))
    browser.wait(".flame canvas")
    browser.choose("View", "bottom-up")
    wait_until(lambda: browser.script("return heaptap.view.graphs.flames[0].tree.firstChild[1]") == 2,
               "two functions allocate")
    browser.shoot("bottom_up")
    browser.choose("View", "butterfly")
    wait_until(lambda: browser.script("return heaptap.view.graphs.flames.length") == 2, "callers and callees")
    browser.click_row("main")
    wait_until(lambda: {"do_something", "do_something_else"} <= set(browser.boxes(1)), "the callees of main")
    browser.shoot("butterfly")
    browser.choose("Unit", "objects")
    wait_until(lambda: ["0", str(OBJECTS)] == next(row for row in browser.rows() if row[-1] == "main")[:2], "objects")
    browser.choose("Rows", "line")
    wait_until(lambda: any("wiki_leak.c:" in name for name in names(browser)), "lines")
    browser.choose("Rows", "path")
    wait_until(lambda: any(name.startswith("do_something ← main") for name in names(browser)), "paths")
    browser.shoot("paths")
    browser.choose("Rows", "library")
    wait_until(lambda: names(browser) == ["wiki_leak"], "libraries")


def test_a_link_shows_the_same(lab, browser, leak):
    address = page_of(lab, leak)
    browser.open(address)
    browser.wait(".flame canvas")
    browser.choose("Unit", "objects")
    browser.choose("View", "bottom-up")
    browser.click_box("do_something")
    browser.wait(".chip")
    browser.search("main")
    browser.wait_text(".matches", "match")
    link = browser.driver.current_url
    before = browser.rows(), browser.text(".matches"), browser.boxes()
    assert link.startswith(address + "#")
    browser.open(link)
    browser.wait_text(".matches", "match")
    assert (browser.rows(), browser.text(".matches"), browser.boxes()) == before
    browser.open(address + "#view=nonsense&zoom=99.99&unit=&pid=x&sort=%F0%9F%92%A9&focus=nobody")
    browser.wait("header h1")


def test_folded_frames(lab, browser, callers):
    browser.open(page_of(lab, callers))
    browser.wait(".flame canvas")
    short = set(browser.boxes())
    assert not [name for name in short if name.startswith("std::") and "<" not in name]
    browser.wait("#full").click()
    wait_until(lambda: len(browser.boxes()) > len(short), "all frames")
    assert "_start" in browser.boxes()


def test_keys(lab, browser, leak):
    browser.open(page_of(lab, leak))
    browser.wait(".flame canvas")
    browser.press("2")
    wait_until(lambda: "view=bottom-up" in browser.driver.current_url, "the key chooses a view")
    browser.press("/")
    wait_until(lambda: browser.script("return document.activeElement.id") == "search", "the key goes to the search")
    browser.press("main")
    browser.wait_text(".matches", "match")
    assert browser.script("return document.activeElement.id") == "search", "typing goes on"
    browser.escape()
    wait_until(lambda: "search=" not in browser.driver.current_url, "no search")


def at_box(browser, name):
    """The keyboard is on this box: what a screen reader says, the tooltip, and an outline in the colour of the text."""
    browser.wait_text(".unseen", f"{name}, bytes ")
    assert browser.text(".tooltip strong") == name
    assert browser.script("return !document.querySelector('.tooltip').hidden && document.activeElement.className") == "flame"
    assert outlined(browser, name)


def outlined(browser, name):
    """Whether the left edge of the box has the colour of an outline."""
    return browser.script(
        "const {tree, graph} = heaptap.view.graphs.flames[0];"
        "const node = arguments[0] === 'all call paths' ? 0 : tree.name.findIndex(name => tree.texts[name] === arguments[0]);"
        "const canvas = document.querySelector('.flame canvas');"
        "const context = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', {willReadFrequently: true});"
        "context.drawImage(canvas, 0, 0);"
        "const x = Math.max(0, graph.toX(graph.begins[node])) + 1, y = graph.place(node).y - canvas.getBoundingClientRect().top;"
        "const pixel = '#' + [...context.getImageData(x, y, 1, 1).data.slice(0, 3)].map(one => one.toString(16).padStart(2, '0')).join('');"
        "return pixel === getComputedStyle(document.documentElement).getPropertyValue('--box-text').trim()", name)


def test_keyboard_in_the_graph(lab, browser, leak):
    browser.open(page_of(lab, leak))
    browser.wait(".flame canvas")
    browser.script("document.getElementById('help').focus()")
    assert not outlined(browser, "all call paths")
    browser.keys("TAB")
    at_box(browser, "all call paths")
    browser.keys("ARROW_UP", "ARROW_LEFT")
    at_box(browser, "all call paths")
    browser.keys("ARROW_DOWN", "ARROW_DOWN")
    tree = browser.script("const {tree} = heaptap.view.graphs.flames[0]; return Array.from(tree.childList, "
                          "node => tree.texts[tree.name[node]])")
    largest, other = tree[1:3]
    at_box(browser, largest)
    assert "level 3" in browser.text(".unseen") and "share " in browser.text(".unseen")
    browser.shoot("keyboard")
    browser.keys("ARROW_RIGHT")
    at_box(browser, other)
    assert not outlined(browser, largest)
    browser.keys("ARROW_RIGHT", "ARROW_DOWN")
    at_box(browser, other)
    browser.keys("ENTER")
    wait_until(lambda: set(names(browser)) == {other, "main"}, "the table has what is below the box")
    at_box(browser, other)
    browser.keys("ARROW_LEFT")
    at_box(browser, other)  # its neighbour cannot be seen
    browser.keys("ARROW_UP")
    at_box(browser, "main")
    browser.keys("ESCAPE", "ESCAPE")
    wait_until(lambda: "zoom" not in browser.driver.current_url, "the whole picture")
    at_box(browser, "main")
    # What is drawn anew keeps the focus, also that of a button.
    browser.press("2")
    wait_until(lambda: "view=bottom-up" in browser.driver.current_url, "the key chooses a view")
    at_box(browser, "all call paths")
    browser.script("document.querySelector('[data-value=butterfly]').focus()")
    wait_until(lambda: browser.script("return document.querySelector('.tooltip').hidden"), "no tooltip without the focus")
    browser.keys("ENTER")
    wait_until(lambda: browser.script("return heaptap.view.graphs.flames.length") == 2, "callers and callees")
    assert browser.script("return document.activeElement.dataset.value") == "butterfly"


def test_keyboard_after_a_click(lab, browser, leak):
    """No outline for people with a mouse; the keys go on from what was clicked. Callers are above in their own graph."""
    browser.open(page_of(lab, leak) + "#view=butterfly&focus=do_something")
    browser.wait(".flame canvas")
    browser.script("document.querySelector('.flame').focus({focusVisible: true})")
    at_box(browser, "all call paths")
    browser.keys("ARROW_UP", "ARROW_UP")
    at_box(browser, "main")
    browser.keys("ARROW_DOWN")
    at_box(browser, "do_something")
    browser.keys("ARROW_UP", "ENTER")
    wait_until(lambda: "focus=main" in browser.driver.current_url, "callers and callees of main")
    browser.choose("View", "icicle")
    browser.wait(".flame canvas")
    browser.click_box("main")
    wait_until(lambda: "zoom=0" in browser.driver.current_url, "zoomed")
    assert not outlined(browser, "main")
    browser.keys("ARROW_UP")
    at_box(browser, "all call paths")


def test_help(lab, browser, leak):
    browser.open(page_of(lab, leak) + "#search=main")
    browser.wait(".flame canvas")
    browser.press("?")
    browser.wait("dialog[open]")
    assert "Enter" in browser.text("dialog") and "↑ ↓ ← →" in browser.text("dialog")
    browser.shoot("help")
    browser.escape()
    wait_until(lambda: not browser.find("dialog[open]"), "the help is closed")
    assert "search=main" in browser.driver.current_url, "the key was for the help"
    browser.wait("#help").click()
    browser.wait("dialog[open] button").click()
    assert not browser.find("dialog[open]")


def two_dumps(lab):
    session = lab.heaptap("run", "--exact", "--", target("puppet"), talks=True, env=EXACT)
    session.answer()
    session.ask("keep 10 1000")
    session.ask("start 20 70000")
    assert session.ask(f"write string prof.dump {lab.path('base.prof')}") == "0"
    session.ask("keep 30 1000")
    session.ask("start 5 70000")
    assert session.ask(f"write string prof.dump {lab.path('later.prof')}") == "0"
    session.ends()
    return lab.path("base.prof"), lab.path("later.prof")


def test_a_difference(lab, browser):
    base, later = two_dumps(lab)
    document = json.loads(run(lab, "report", "--json", "--base", base, later))
    browser.open(page_of(lab, later, "--base", base))
    browser.wait(".flame canvas")
    assert browser.script("return heaptap.view.profile.subject.is_difference")
    total = browser.script("return heaptap.view.profile.paths.live_bytes.reduce((a, b) => a + b)")
    assert total == document["live"]["bytes"]
    assert [row for row in browser.rows() if row[0].startswith("+")]
    assert "Change" in browser.text(".facts")
    browser.shoot("difference")


def test_new_and_vanished_paths(lab, browser):
    """One path grows, one shrinks, one is new, one vanishes, and two thirds of the memory stay as they are."""
    grown, shrunk, new, gone, same = (((address, 0x2001), 10) for address in (0x1100, 0x1200, 0x1300, 0x1400, 0x1500))
    base, later = lab.path("base.prof"), lab.path("later.prof")
    write_dump(base, [(*grown, 1000), (*shrunk, 3000), (*gone, 400), (*same, 20000)])
    write_dump(later, [(*grown, 1500), (*shrunk, 2000), (*new, 300), (*same, 20000)])
    document = json.loads(run(lab, "report", "--json", "--base", base, later))
    assert len(document["call_paths"]) == 4
    for write in (["view", "-o"], ["report", "--html", "-o"]):
        page = lab.path("difference.html")
        run(lab, *write, page, "--base", base, later)
        browser.open(f"file://{page}")
        browser.wait(".flame canvas")
        total = browser.script("return heaptap.view.profile.paths.live_bytes.reduce((a, b) => a + b)")
        assert abs(total - document["live"]["bytes"]) < 0.1
        percents = {row[-1]: (row[0], row[1], row[2]) for row in browser.rows(".sums")}
        assert percents == {"x+0x100": ("+500", "+500", "+50.0%"), "x+0x200": ("-1000", "-1000", "-33.3%"),
                            "x+0x300": ("+300", "+300", "new"), "x+0x400": ("-400", "-400", "vanished"),
                            "x+0x1000": ("0", "-600", f"-{600 / 24400:.1%}")}, percents
        assert browser.rows(".new") == [["+300", "x+0x300 ← x+0x1000"]]
        assert browser.rows(".vanished") == [["-400", "x+0x400 ← x+0x1000"]]
        assert "New paths: 1, +300" in browser.text(".fates") and "Vanished paths: 1, -400" in browser.text(".fates")
        assert "23.8K" in browser.text(".facts") and "-2.5%" in browser.text(".facts")
    browser.shoot("new_and_vanished")
    browser.wait('[data-column="percent"]').click()
    wait_until(lambda: [row[2] for row in browser.rows(".sums")] == ["new", "+50.0%", "-2.5%", "-33.3%", "vanished"], "the order")
    browser.choose("Rows", "path")
    wait_until(lambda: ["+500", "+50.0%"] in [row[:2] for row in browser.rows(".sums")], "percent of paths")
    browser.script("document.querySelector('.new tbody tr').click()")
    wait_until(lambda: browser.rows(".sums") == [["+300", "new", "10", "x+0x300 ← x+0x1000"]], "the new path alone")
    assert not browser.rows(".vanished")


def test_a_server(lab, browser):
    """Debian's redis under load, as README shows it."""
    programs.redis(lab.folder, lambda command: lab.heaptap("run", "--lg-sample", "12", "--", *command))
    (dump,) = lab.dumps(kind="f")
    browser.open(page_of(lab, dump.path))
    browser.wait(".flame canvas")
    assert {"main", "aeMain", "processCommand"} <= set(browser.boxes())
    browser.hover_box("processCommand")
    browser.wait_text(".tooltip", "processCommand")
    browser.shoot("redis")
    table = {row[-1]: row[1] for row in browser.rows()}
    document = json.loads(run(lab, "report", "--json", dump.path))
    through = sum(path["live"]["bytes"] for path in document["call_paths"]
                  if "processCommand" in [frame["function"] for frame in path["frames"]])
    assert abs(browser.boxes()["processCommand"][0] - through) < 1
    assert "processCommand" in table


HOSTILE = "<img src=x onerror=document.title='hit'>\"'</script><script>document.title='hit'</script>"


def write_dump(path, paths, library="/usr/bin/x"):
    """A dump with these [(frames, objects, bytes)]."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("heap_v2/1\n")
        total = f"{sum(path[1] for path in paths)}: {sum(path[2] for path in paths)}"
        file.write(f"  t*: {total} [{total}]\n")
        for frames, objects, size in paths:
            file.write(f"@ {' '.join(map(hex, frames))}\n  t*: {objects}: {size} [{objects}: {size}]\n")
        file.write(f"\nMAPPED_LIBRARIES:\n1000-7fff000 r-xp 00000000 00:00 0 {library}\n")


def test_names_are_text(lab, browser):
    path = lab.path("<i>hostile.prof")
    write_dump(path, [((0x1234, 0x2345), 1, 100)], f"/tmp/{HOSTILE}")
    run(lab, "view", "-o", lab.path("page.html"), path)
    browser.open(f"file://{lab.path('page.html')}")
    browser.wait("tbody tr")
    browser.hover_box(names(browser)[0])
    assert "<i>hostile" in browser.text("h1")
    assert any(name.startswith("script>+0x") for name in names(browser)), "the last part of a path"
    assert "<img src=x" in browser.text(".tooltip")
    browser.script("document.querySelector('.flame').focus({focusVisible: true})")
    browser.keys("ARROW_DOWN")
    browser.wait_text(".unseen", "script>+0x")
    assert "hit" not in browser.driver.title
    assert not browser.find("tbody img, h1 i, .tooltip img, .unseen *")


def test_without_source_paths(lab, leak):
    with_paths = run(lab, "report", "--html", leak)
    without = run(lab, "report", "--html", "--no-source-paths", leak)
    folder = os.path.dirname(os.path.dirname(leak))
    assert f"{os.path.dirname(target('wiki_leak'))}/" in with_paths
    assert f"{os.path.dirname(target('wiki_leak'))}/" not in without.replace(leak, "") and folder
    assert "wiki_leak.c" in without


def random_numbers(state=1):
    """Knuth's linear congruential generator."""
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state >> 33


@pytest.mark.product
@pytest.mark.whole_machine
def test_a_hundred_thousand_paths(lab, browser, held):
    """Twenty frames each: ten thousand paths of sixteen frames, each with ten ways to go on."""
    path = lab.path("many.prof")
    random = random_numbers()
    paths = []
    for outer in range(10000):
        callers = [0x1001 + 16 * (next(random) % (2 + depth * depth)) for depth in range(16)]
        for _ in range(10):
            callees = [0x1001 + 16 * (next(random) % 5000) for _ in range(4)]
            paths.append((tuple(reversed(callers + callees)), 1, 64 + outer % 1000))
    write_dump(path, paths)
    run(lab, "view", "-o", lab.path("many.html"), path)
    ready = math.inf
    # Other work on the machine delays a load, and never hastens it.
    for _ in range(LOADS):
        browser.open(f"file://{lab.path('many.html')}")
        browser.wait(".flame canvas")
        ready = min(ready, browser.script("return heaptap.readyMilliseconds"))
    frames = sorted(browser.script(
        "const {tree, graph} = heaptap.view.graphs.flames[0]; const frames = [];"
        "for (const node of [...tree.childList.slice(0, 20), 0]) {graph.zoom(node, false); "
        "frames.push(graph.frameMilliseconds);} return frames"))
    frame = frames[len(frames) // 2]
    held("page with 100,000 paths, ms until it is drawn", f"{READY_MILLISECONDS:.0f}", f"{ready:.0f}")
    held(f"frame of a zoom with 100,000 paths, ms (longest: {frames[-1]:.1f})", f"{FRAME_MILLISECONDS:.1f}", f"{frame:.1f}")
    browser.shoot("hundred_thousand_paths")
    assert ready < READY_MILLISECONDS
    assert frame < FRAME_MILLISECONDS


def test_size_and_network(lab, leak):
    """The page is small and refers to nothing outside."""
    page = run(lab, "report", "--html", leak)
    data = page[page.index('id="profile">'):].split("</script>")[0]
    assert len(page) - len(data) < EMPTY_PAGE_BYTES
    assert "default-src 'none'" in page
    assert "src=" not in page.replace(data, "").split("<script")[0] and "href=" not in page.split("<script")[0]


def test_only_its_own_script_runs(lab, browser, leak):
    """The policy has the hashes of the script and of the style, so what a name could bring into the page does nothing."""
    page = run(lab, "report", "--html", leak)
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)[1]
    for directive, element in (("script-src", "script"), ("style-src", "style")):
        (text,) = re.findall(f"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert "unsafe" not in policy
    foreign = ("<script>window.hit = 1</script><img src='x' onerror='window.hit = 1'>"
               "<style>#app { color: rgb(1, 2, 3) }</style><p id='foreign' style='color: rgb(1, 2, 3)'></p>")
    path = lab.path("foreign.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(page.replace('<div id="app">', f'{foreign}<div id="app">', 1))
    browser.open(f"file://{path}")
    browser.wait(".flame canvas")
    assert browser.script("return window.hit ?? 0") == 0
    colors = browser.script("return ['#app', '#foreign'].map(one => getComputedStyle(document.querySelector(one)).color)")
    assert "rgb(1, 2, 3)" not in colors
    refused = browser.complaints()
    assert [kind for kind in ("inline script", "inline event handler", "inline style", "image")
            if not any(kind in line for line in refused)] == [], refused


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


def test_bad_input(lab, leak):
    assert_one_clear_line(lab.heaptap("view", lab.path("none.prof")), 1, "none.prof")
    assert_one_clear_line(lab.heaptap("view", "-o", "/no/such/folder/x.html", leak), 1, "/no/such/folder")


def test_the_page_of_the_daemon(lab, browser, daemon):
    address = daemon.wait_said(r"^heaptap: recording; .* and (http://127\.0\.0\.1:\d+)")[1]
    puppet = keeping_puppet(lab, env=EXACT)
    daemon.wait_recorded(puppet.pid)
    puppet.ask("keep 100 1000")
    browser.open(address)
    wait_until(lambda: any(row[0] == str(puppet.pid) for row in browser.rows()), "the process has a row")
    browser.shoot("processes")
    browser.search("no such name")
    wait_until(lambda: not browser.rows(), "the filter hides it")
    browser.search("pup")
    wait_until(lambda: browser.rows(), "the filter shows it")
    filtered = f"{address}/#search=pup"
    assert browser.driver.current_url == filtered
    browser.find("tbody tr")[0].click()
    browser.wait_text("h1", f"puppet (PID {puppet.pid})")
    browser.wait(".flame canvas")
    assert "main" in browser.boxes()
    assert "search=" not in browser.driver.current_url, "the filter was for processes"
    browser.shoot("process")
    browser.driver.back()
    browser.wait_text("h1", "Processes")
    assert browser.driver.current_url == filtered and browser.script("return document.getElementById('search').value") == "pup"
    # A link has the filter; another address in the same page too.
    link = f"{address}/#search={urllib.parse.quote(HOSTILE)}"
    browser.open(link)
    wait_until(lambda: browser.find("thead") and not browser.rows(), "the filter of the link")
    assert browser.script("return document.getElementById('search').value") == HOSTILE and "hit" not in browser.driver.title
    browser.script("location.hash = arguments[0]", "search=PUPP&sort=pid")
    wait_until(lambda: [row[0] for row in browser.rows()] == [str(puppet.pid)], "the filter of the new address")
    assert browser.script("return document.querySelector('[aria-sort=descending]').textContent") == "PID ▼"
    browser.search("no such name")
    wait_until(lambda: not browser.rows(), "the filter hides it")
    assert "No process has such a name" in browser.text(".scroll .empty")
    browser.shoot("processes_filtered")
    browser.escape()
    wait_until(lambda: browser.rows(), "no filter")
    assert not browser.find(".scroll .empty")
    assert browser.driver.current_url == f"{address}/#sort=pid"
    browser.open(f"{address}/#pid=1")
    browser.wait_text("[role=alert]", "Process 1")
    browser.open(f"{address}/#pid=../../x")
    browser.wait_text("[role=alert]", "names no process")
    os.kill(puppet.pid, signal.SIGKILL)
    puppet.wait()
    browser.open(address)
    wait_until(lambda: any("signal 9" in row[-1] for row in browser.rows()), "the end of the process")
    # The page asks until it is left, also after the daemon's end. The answers 404 above are in the console.
    browser.open("about:blank")
    browser.complaints()
