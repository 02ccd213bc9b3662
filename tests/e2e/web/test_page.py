# SPDX-License-Identifier: Apache-2.0
"""The page in Debian's Chromium: one file and as the daemon serves it. A person clicks, searches and follows a
link; the figures are those of heaptap report --json. Pictures of all states go to build/screenshots/.

Recording is exact; error bounds: none.
"""

import base64
import hashlib
import json
import os
import re
import signal
import urllib.parse

import pytest

import programs
from harness import target, wait_until
from lab import assert_one_clear_line
from pages import HOSTILE, names, page_of, run, write_dump
from security import keeping_puppet

DAEMON = ["--exact", "--listen", "127.0.0.1:0", "--rule", "comm=puppet", "--rule", "record=off"]
EXACT = {"MALLOC_CONF": "prof:true,lg_prof_sample:0"}
# Of the program of jemalloc's wiki.
TOTAL, OBJECTS = 6926352, 120
EMPTY_PAGE_BYTES = 400 << 10


@pytest.fixture
def callers(lab):
    """C++ with inlined functions and the standard library."""
    session = lab.heaptap("run", "--exact", "--", target("cpp_program"))
    session.ends()
    return lab.dumps()[0].path


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
    # main calls two functions.
    assert "wiki_leak.c, several lines" in browser.text(".tooltip")
    browser.hover_box("do_something")
    browser.wait_text(".tooltip", "wiki_leak.c:10")
    browser.shoot("tooltip")


def test_a_row_filters_everything(lab, browser, leak):
    browser.open(page_of(lab, leak))
    browser.wait("tbody tr")
    browser.click_row("do_something_else")
    wait_until(lambda: set(browser.boxes()) == {"main", "do_something_else"}, "only paths through the function")
    assert "do_something_else" in browser.text(".chips")
    assert f"Objects{browser.boxes()['do_something_else'][1]}mean" in browser.text(".facts"), "the figures of the head too"
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


def test_what_was_typed_can_be_undone(lab, browser, leak):
    """The field stays while the page is drawn again."""
    browser.open(page_of(lab, leak))
    browser.search("do_something$")
    browser.wait_text(".matches", "match")
    browser.chord("CONTROL", "z")
    browser.wait_text(".chips", "Click a box")
    assert browser.script("return document.activeElement.value") == ""
    # A letter in the middle: the cursor stays behind it.
    browser.search("do_smething")
    browser.wait_text(".matches", "0 (0.0%) match")
    for _ in range(len("mething")):
        browser.keys("ARROW_LEFT")
    browser.press("o")
    browser.wait_text(".matches", "(100.0%) match")
    assert browser.script("return document.activeElement.selectionStart") == len("do_so")


def test_typing_draws_when_it_rests(lab, browser, leak):
    browser.open(page_of(lab, leak))
    browser.wait("#search")
    browser.script("""
        const {view} = heaptap, field = document.querySelector('#search');
        window.drawn = 0;
        const {draw} = view;
        view.draw = (...words) => { window.drawn++; return draw.apply(view, words); };
        for (const letter of 'do_something$') {
          field.value += letter;
          field.dispatchEvent(new Event('input'));
        }""")
    browser.wait_text(".matches", "match")
    assert browser.script("return window.drawn") == 1
    # A key with a meaning does not wait: Escape takes back what was just typed, and nothing else.
    browser.script("arguments[0].value = 'main'; arguments[0].dispatchEvent(new Event('input'))", browser.find("#search")[0])
    browser.wait("#search").click()
    browser.escape()
    browser.wait_text(".chips", "Click a box")
    assert browser.script("return document.querySelector('#search').value") == ""


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
    # The figures of each kind of rows are those of the report.
    sums = {}
    for path in json.loads(run(lab, "report", "--json", leak))["call_paths"]:
        inner = path["frames"][0]
        objects = round(path["live"]["objects"])
        for kind, name in (("line", f"{inner['function']} wiki_leak.c:{inner['line']}"), ("path", inner["function"] + " ← main"),
                           ("library", "wiki_leak")):
            sums.setdefault(kind, {}).setdefault(name, 0)
            sums[kind][name] += objects
    assert {kind: sorted(figures.values()) for kind, figures in sums.items()} == {
        "line": [40, 80], "path": [40, 80], "library": [OBJECTS]}
    for kind, figures in sums.items():
        browser.choose("Rows", kind)
        wait_until(lambda of=figures: all(any(row[-1].startswith(name) for row in browser.rows()) for name in of), f"rows: {kind}")
        shown = {name: next(row for row in browser.rows() if row[-1].startswith(name))[0] for name in figures}
        assert shown == {name: str(objects) for name, objects in figures.items()}
        browser.shoot(f"rows_{kind}")


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


def test_a_server(lab, browser):
    """Debian's redis under load, as README shows it."""
    programs.redis(lab.folder, lambda command: lab.heaptap("run", "--lg-sample", "12", "--", *command,
                                                             env={"HEAPTAP_CONF": "prof_seed:1"}))
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


def test_what_was_freed(lab, browser):
    """Allocated less live, as the report has it."""
    path = lab.path("freed.prof")
    with open(path, "w", encoding="utf-8") as file:
        file.write("heap_v2/1\n  t*: 3: 400 [8: 1000]\n@ 0x1100 0x1200\n  t*: 3: 400 [6: 800]\n@ 0x1300\n  t*: 0: 0 [2: 200]\n"
                   "\nMAPPED_LIBRARIES:\n1000-7fff000 r-xp 00000000 00:00 0 /usr/bin/x\n")
    freed = json.loads(run(lab, "report", "--json", path))["freed"]
    browser.open(page_of(lab, path))
    browser.choose("Measure", "freed")
    wait_until(lambda: browser.text(".facts dt") == "Freed", "what was freed")
    assert (browser.text(".facts dd"), freed["bytes"], freed["objects"]) == ("600", 600, 5)
    assert browser.script("return heaptap.view.graphs.flames[0].tree.bytes[0]") == 600
    assert sorted(row[0] for row in browser.rows()) == ["0", "200", "400"]
    browser.shoot("freed")
    link = browser.driver.current_url
    browser.open(link)
    wait_until(lambda: browser.text(".facts dd") == "600", "the link shows the same")


def test_an_empty_profile(lab, browser):
    path = lab.path("empty.prof")
    for period, reason in ((524288, "no sample was taken"), (1, "nothing was allocated")):
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"heap_v2/{period}\n  t*: 0: 0 [0: 0]\n\nMAPPED_LIBRARIES:\n")
        browser.open(page_of(lab, path))
        browser.wait(".graph .empty")
        for place in (".graph .empty", ".side .empty"):
            assert browser.text(place) == f"The profile is empty: {reason}."
        assert ("exact" in browser.text(".facts")) == (period == 1)
        browser.shoot(f"empty_{period}")


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
    browser.click("tbody tr")
    browser.wait_text("h1", f"puppet (PID {puppet.pid})")
    browser.wait(".flame canvas")
    assert "main" in browser.boxes()
    assert "search=" not in browser.driver.current_url, "the filter was for processes"
    browser.shoot("process")
    # The other formats, under names that say what they are.
    links = browser.script("return [...document.querySelectorAll('header nav a')].map(link => [link.pathname + link.search, link.download])")
    assert links == [[f"/pid/{puppet.pid}/{path}", f"puppet.{puppet.pid}.{ending}"] for path, ending in (
        ("heap", "heap"), ("heap?format=pprof", "pb.gz"), ("collapsed", "collapsed.txt"), ("jeprof", "symbolized.heap"),
        ("allocator.json", "allocator.json"))]
    assert {daemon.get(path).status for path, _ in links} == {200}
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
    assert "No process matches the filter" in browser.text(".scroll .empty")
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
