# SPDX-License-Identifier: Apache-2.0
"""The page by thread, size and age, and how the resident memory divides. Figures are those of heaptap report --by.

Recording is exact; error bounds: none.
"""

import json
import signal

import pytest

from harness import target, wait_until
from pages import HOSTILE, human, names, page_of, run, write_dump

DAEMON = ["--exact", "--listen", "127.0.0.1:0", "--history-interval", "100ms"]
EXACT = {"MALLOC_CONF": "prof:true,lg_prof_sample:0"}
CLASSES = ("thread", "size", "age")
COVERAGE = ["live", "cached", "fragmentation", "allocator metadata", "stacks", "files", "other mappings"]


def command(lab, daemon, *arguments):
    return run(lab, *arguments, "--socket", daemon.socket)


def started(lab, daemon):
    """40 blocks of 1000 bytes in the thread "worker", which are older than a second, and in the main thread 20 of these
    and 3 of 70000."""
    puppet = lab.preloaded(target("puppet"), talks=True, env=EXACT)
    puppet.answer()
    daemon.wait_recorded(puppet.pid)
    puppet.ask("in 1 name worker")
    puppet.ask("in 1 keep 40 1000")
    wait_until(lambda: "younger" not in command(lab, daemon, "report", "--by", "age", "--focus", "keep_blocks", puppet.pid),
               "the blocks of the worker are a second old")
    puppet.ask("keep 20 1000")
    puppet.ask("keep 3 70000")
    return puppet


@pytest.fixture
def blocks(daemon, recordings):
    """A dump of such a process with blocks."""
    def record(lab):
        process, path = started(lab, daemon), lab.path("blocks.pb.gz")
        command(lab, daemon, "dump", process.pid, "--format", "blocks", "-o", path)
        process.signal(signal.SIGKILL)
        return path
    return recordings.once("blocks", record)


def by(lab, what, dump, *more):
    """{name: (bytes, objects)} of live memory by thread, size or age, as the report has it."""
    sums = {}
    for path in json.loads(run(lab, "report", "--json", "--by", what, *more, dump))["call_paths"]:
        root = path["frames"][-1]["place"]
        size, objects = sums.get(root, (0, 0))
        sums[root] = (size + round(path["live"]["bytes"]), objects + round(path["live"]["objects"]))
    return {name: sums[name] for name in sums if sums[name] != (0, 0)}


def root_of(browser):
    """Bytes and objects of the whole flame graph."""
    return tuple(browser.script("const {tree} = heaptap.view.graphs.flames[0]; return [tree.bytes[0], tree.objects[0]]"))


def shown(browser):
    """{name: [figure, samples]} of the table."""
    return {row[-1]: row[:-1] for row in browser.rows(".sums")}


def test_tables_are_those_of_the_report(lab, browser, blocks):
    browser.open(page_of(lab, blocks))
    browser.wait(".flame canvas")
    whole = root_of(browser)
    for what in CLASSES:
        expected = by(lab, what, blocks)
        browser.choose("Rows", what)
        browser.choose("Unit", "bytes")
        wait_until(lambda rows=expected: set(shown(browser)) == set(rows), f"rows by {what}")
        assert {name: row[0] for name, row in shown(browser).items()} == {
            name: human(size) for name, (size, _) in expected.items()}
        figures = [expected[name][0] for name in names(browser)]
        assert figures == sorted(figures, reverse=True), "the largest first"
        browser.choose("Unit", "objects")
        wait_until(lambda rows=expected: {name: row[0] for name, row in shown(browser).items()} == {
            name: f"{objects:,}" for name, (_, objects) in rows.items()}, f"objects by {what}")
        # Each row is a filter of everything, and takes itself back.
        for name, sums in expected.items():
            browser.click_row(name)
            wait_until(lambda of=sums: root_of(browser) == of, f"the graph has {name} only")
            assert names(browser) == [name]
            assert name in browser.text(".chip")
            assert human(sums[0]) in browser.text(".facts") or f"{sums[1]:,}" in browser.text(".facts")
            browser.click_row(name)
            wait_until(lambda: root_of(browser) == whole, "everything again")
            assert not browser.find(".chip")
        browser.shoot(f"by_{what}")
    # Sizes and ages have an order of their own.
    browser.choose("Rows", "size")
    browser.wait('[data-column="name"]').click()
    sizes = [int(name.split()[2]) for name in names(browser)]
    assert sizes == sorted(sizes) and len(sizes) > 1


def test_filters_combine(lab, browser, blocks):
    """A thread, a size and an age at once; a link has them; chips take them away one by one. The worker has one size and one
    age, and the main thread has the rest of that size."""
    threads, size = by(lab, "thread", blocks), by(lab, "size", blocks)["blocks of 1024 bytes"]
    (worker,) = (name for name in threads if name.endswith(" worker"))
    held = threads[worker]
    browser.open(page_of(lab, blocks))
    browser.wait(".flame canvas")
    browser.choose("Rows", "thread")
    browser.click_row(worker)
    browser.wait_text(".chips", worker)
    browser.choose("Rows", "size")
    browser.click_row("blocks of 1024 bytes")
    wait_until(lambda: root_of(browser) == held, "the blocks of the worker")
    browser.click_row("blocks of 1024 bytes")
    browser.wait_text(".chips", worker)
    browser.click(".chip")
    wait_until(lambda: not browser.find(".chip"), "no filter")
    browser.click_row("blocks of 1024 bytes")
    browser.choose("Rows", "thread")
    wait_until(lambda: len(browser.rows(".sums")) == 2, "two threads have such blocks")
    assert {row[0] for row in browser.rows(".sums")} == {human(held[0]), human(size[0] - held[0])}
    browser.click_row(worker)
    wait_until(lambda: root_of(browser) == held, "both filters")
    browser.choose("Rows", "age")
    wait_until(lambda: len(browser.rows(".sums")) == 1, "one age")
    (age,) = names(browser)
    browser.click_row(age)
    wait_until(lambda: len(browser.find(".chip")) == 3, "three filters")
    assert root_of(browser) == held and "keep_blocks" in browser.boxes()
    browser.hover_box("keep_blocks")
    browser.wait_text(".tooltip", human(held[0]))
    browser.wait_text(".tooltip", age)
    browser.shoot("three_filters")
    link = browser.driver.current_url
    browser.open(link)
    wait_until(lambda: len(browser.find(".chip")) == 3 and root_of(browser) == held, "the link shows the same")
    for left in (2, 1, 0):
        browser.escape()
        wait_until(lambda count=left: len(browser.find(".chip")) == count, "one filter less")
    # An address may ask for what there is not.
    address = link.split("#", maxsplit=1)[0]
    for fragment in ("thread=nobody", "size=7", "thread=%3Cb%3E&size=1024&age=0"):
        browser.open(f"{address}#{fragment}")
        browser.wait(".chip")
        wait_until(lambda: "no call path has such memory" in browser.text(".graph"), "nothing")
        assert not browser.rows()
    browser.shoot("nothing_left")
    browser.open(f"{address}#size=-1&age=7&size=1e3")
    browser.wait(".flame canvas")
    assert not browser.find(".chip")


def test_a_filter_keeps_the_zoomed_box(lab, browser, blocks):
    browser.open(page_of(lab, blocks) + "#view=bottom-up")
    browser.wait(".flame canvas")
    browser.click_box("keep_blocks")
    browser.wait(".chip")
    browser.choose("Rows", "size")
    wait_until(lambda: set(names(browser)) == {"blocks of 1024 bytes", "blocks of 81920 bytes"}, "sizes in the box")
    browser.click_row("blocks of 1024 bytes")
    wait_until(lambda: len(browser.find(".chip")) == 2, "the size and the zoom")
    assert browser.script("const {tree, graph} = heaptap.view.graphs.flames[0]; return tree.texts[tree.name[graph.zoomed]]") == "keep_blocks"
    held = by(lab, "size", blocks, "--focus", "keep_blocks")["blocks of 1024 bytes"]
    assert [row[0] for row in browser.rows(".sums")] == [human(held[0])]


def test_allocated_by_size_is_not_known(lab, browser, blocks):
    allocated = '[aria-label="Measure"] [data-value="allocated"]'
    browser.open(page_of(lab, blocks))
    browser.wait(".flame canvas")
    assert not browser.find("[aria-disabled]")
    browser.choose("Measure", "allocated")
    wait_until(lambda: "Allocated" in browser.text(".facts"), "what was allocated")
    whole = root_of(browser)
    browser.choose("Rows", "thread")
    wait_until(lambda: any(name.endswith(" worker") for name in names(browser)), "threads know it")
    threads = list(names(browser))
    sums = []
    for name in threads:
        browser.click_row(name)
        browser.wait(".chip")
        sums.append(root_of(browser))
        browser.escape()
        wait_until(lambda: not browser.find(".chip"), "no filter")
    assert (sum(one[0] for one in sums), sum(one[1] for one in sums)) == whole
    for value in ("size", "age"):
        button = browser.wait(f'[aria-label="Rows"] [data-value="{value}"]')
        assert button.get_attribute("aria-disabled") == "true" and "choose Live" in button.get_attribute("title")
        button.click()
    assert names(browser) == threads, "the buttons do nothing"
    browser.choose("Measure", "live")
    browser.choose("Rows", "size")
    wait_until(lambda: browser.find(f'{allocated}[aria-disabled="true"]'), "there is no such measure now")
    assert "only live memory is known" in browser.find(allocated)[0].get_attribute("title")
    browser.click(allocated)
    assert "Live" in browser.text(".facts")
    browser.shoot("measure_not_known")
    # A link that asks for both gets what is known.
    browser.open(browser.driver.current_url.split("#", maxsplit=1)[0] + "#value=allocated&size=1024")
    browser.wait(".flame canvas")
    assert "Live" in browser.text(".facts") and root_of(browser)[0] == by(lab, "size", blocks)["blocks of 1024 bytes"][0]


def test_what_a_profile_lacks(lab, browser, leak):
    """A dump knows threads, but no sizes; one without threads knows neither, and a difference nothing of that."""
    plain = lab.path("plain.prof")
    write_dump(plain, [((0x1234, 0x2345), 1, 100)])
    for arguments, lacking in (((leak,), ["size", "age"]), ((plain,), list(CLASSES)), (("--base", leak, leak), list(CLASSES))):
        browser.open(page_of(lab, arguments[-1], *arguments[:-1]))
        browser.wait("[aria-label=Rows]")
        disabled = browser.find('[aria-label="Rows"] [aria-disabled="true"]')
        assert [one.get_attribute("data-value") for one in disabled] == lacking
        assert all("not" in one.get_attribute("title") for one in disabled)
        assert not browser.find(".memory")
        address = browser.driver.current_url
        browser.open(f"{address}#table=age&size=1024")
        browser.wait_text(".chip", "blocks of 1024 bytes")
        browser.wait_text(".graph .empty", "difference" if "--base" in arguments else "sizes and ages")
    browser.open(page_of(lab, leak))
    browser.wait(".flame canvas")
    browser.shoot("lacking")


def focused(browser):
    return browser.script("const one = document.activeElement; return one.dataset.row ?? one.dataset.chip ?? one.tagName")


def test_the_keyboard_stays(lab, browser, blocks):
    """On the row after Enter, and on the next chip after one was removed, or else on the row that it was for."""
    (worker,) = (name for name in by(lab, "thread", blocks) if name.endswith(" worker"))
    browser.open(page_of(lab, blocks))
    browser.wait(".flame canvas")
    for table, row in (("function", "focus:keep_blocks"), ("thread", f"thread:{worker}"), ("size", "size:1024")):
        browser.choose("Rows", table)
        browser.wait(f'[data-row="{row}"]')
        browser.script("document.querySelector(`[data-row='${arguments[0]}']`).focus()", row)
        before = browser.driver.current_url
        browser.keys("ENTER")
        wait_until(lambda url=before: browser.driver.current_url != url, "a filter")
        assert focused(browser) == row
        if table != "size":
            browser.keys("ENTER")
            wait_until(lambda url=before: browser.driver.current_url == url, "no filter")
            assert focused(browser) == row
    browser.choose("Rows", "thread")
    browser.script("document.querySelector(`[data-row='${arguments[0]}']`).focus()", f"thread:{worker}")
    browser.keys("ENTER")
    wait_until(lambda: len(browser.find(".chip")) == 2, "two filters")
    browser.script("document.querySelector('[data-chip=size]').focus()")
    browser.keys("ENTER")
    wait_until(lambda: len(browser.find(".chip")) == 1, "one filter")
    assert focused(browser) == "thread"
    browser.shoot("keyboard_on_a_chip")
    browser.keys("ENTER")
    wait_until(lambda: not browser.find(".chip"), "no filter")
    assert focused(browser) == f"thread:{worker}"
    # From the chips, Tab goes through the graph to the kinds of rows and the rows.
    browser.choose("Rows", "path")
    browser.wait('[data-row^="path:"]')
    browser.script("document.querySelector('[data-row^=\"path:\"]').focus()")
    row = focused(browser)
    browser.keys("ENTER")
    browser.wait("[data-chip=zoom]")
    assert focused(browser) == row


def test_names_of_threads_are_text(lab, browser):
    """A thread's name has 15 bytes; a dump may have any text in a label."""
    session = lab.heaptap("run", "--exact", "--", target("puppet"), talks=True, env=EXACT)
    session.answer()
    session.ask("in 1 name <img/src=x>\"'&")
    session.ask("in 1 keep 5 1000")
    assert session.ask(f"write string prof.dump {lab.path('dump.prof')}") == "0"
    session.ends()
    browser.open(page_of(lab, lab.path("dump.prof")) + "#table=thread")
    wait_until(lambda: any("<img/src=x>" in name for name in names(browser)), "the thread has a row")
    (name,) = (name for name in names(browser) if "<img/src=x>" in name)
    browser.script("[...document.querySelectorAll('[data-row]')].find(row => row.dataset.row.includes('img')).focus()")
    browser.keys("ENTER")
    browser.wait_text(".chip", name)
    assert focused(browser) == f"thread:{name}"
    browser.driver.refresh()
    browser.wait_text(".chip", name)
    browser.open(page_of(lab, lab.path("dump.prof")) + "#thread=" + "".join(f"%{byte:02x}" for byte in HOSTILE.encode()))
    browser.wait_text(".chip", "<img src=x")
    assert not browser.find(".chips img, .sums img") and "hit" not in browser.driver.title


def coverage_of(browser):
    """[(name, text)] of the list."""
    return browser.script("return [...document.querySelectorAll('.memory li')].map(one => one.innerText)")


def assert_coverage(browser, pid):
    """The parts add up to the resident memory of the process, which is stopped, and the bar and the list show them."""
    parts = browser.script("return heaptap.view.profile.subject.coverage")
    assert [part["name"] for part in parts] == COVERAGE
    whole = sum(part["bytes"] for part in parts)
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        resident = 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
    assert whole == resident
    assert browser.script("return heaptap.view.profile.subject.resident_bytes") == whole
    for part, text in zip(parts, coverage_of(browser)):
        assert text.startswith(f"{part['name']} {human(part['bytes'])} {100 * part['bytes'] / whole:.1f}%"), (part, text)
        assert part["note"] in text
    widths = browser.script("return [...document.querySelectorAll('.memory-bar > span')].map(one => one.getBoundingClientRect().width)")
    sizes = [part["bytes"] for part in parts if part["bytes"] > 0]
    assert len(widths) == len(sizes)
    room = browser.script("return document.querySelector('.memory-bar').getBoundingClientRect().width")
    for width, size in zip(widths, sizes):
        assert width == pytest.approx(room * size / whole, abs=3 + 2 * len(sizes))
    patterns = browser.script("return [...document.querySelectorAll('.memory .sample')].map(one => getComputedStyle(one).backgroundImage)")
    assert len(set(patterns)) == len(parts), "told apart without colours"
    return parts


def test_how_the_resident_memory_divides(lab, browser, daemon):
    """On the daemon's page and in the file of a live process alike. Nothing below moves while moments are chosen."""
    process = started(lab, daemon)
    process.signal(signal.SIGSTOP)
    address = daemon.wait_said(r"^heaptap: recording; .* and (http://127\.0\.0\.1:\d+)")[1]
    browser.open(f"{address}/#pid={process.pid}")
    browser.wait(".timeline canvas")
    for is_dark in (False, True):
        browser.darken(is_dark)
        browser.shoot(f"coverage{'_dark' if is_dark else ''}")
    browser.darken(False)
    served = assert_coverage(browser, process.pid)
    place = "const box = document.querySelector('.timeline').getBoundingClientRect(); return [box.x, box.y, box.width, box.height]"
    # What a mouse finds in titles stands in the help too.
    browser.press("?")
    browser.wait("dialog[open]")
    for part in browser.script("return heaptap.view.profile.subject.coverage"):
        assert part["name"] + part["note"] in browser.text("dialog")
    browser.shoot("help_memory")
    browser.escape()
    wait_until(lambda: not browser.find("dialog[open]"), "the help is closed")
    before = browser.script(place)
    browser.choose("Unit", "objects")
    assert browser.script(place) == before
    browser.choose("Unit", "bytes")
    moment = browser.script("return heaptap.timeline.history.points[0].time")
    browser.script("location.hash = arguments[0]", f"pid={process.pid}&at={moment}&thread=gone")
    browser.wait(".memory.none")
    assert browser.script(place) == before
    browser.wait_text(".graph .empty", "does not tell threads apart")
    assert browser.text(".facts dd") == "?", "that is not 0"
    browser.shoot("coverage_unknown")
    for page in (["view", "-o"], ["report", "--html", "-o"]):
        path = lab.path("live.html")
        command(lab, daemon, *page, path, process.pid)
        browser.open(f"file://{path}")
        browser.wait(".memory")
        parts = assert_coverage(browser, process.pid)
        assert [part["note"] for part in parts] == [part["note"] for part in served]
        # Nothing is resident of what the program has not written to.
        assert 0 < parts[0]["bytes"] <= root_of(browser)[0]
        assert not browser.find("[aria-disabled]"), "all kinds of tables"
    browser.shoot("coverage_in_a_file")
    try:
        for width, height in ((3840, 2160), (1024, 768), (800, 600)):
            browser.resize(width, height)
            wait_until(lambda w=width: browser.script("return innerWidth") == w, "the window has the size")
            assert browser.script("return document.documentElement.scrollWidth <= innerWidth")
            assert browser.script("const rows = document.querySelector('.side .choice'); return rows.scrollWidth <= rows.clientWidth")
            browser.shoot(f"coverage_{width}x{height}")
    finally:
        browser.resize(1280, 720)
    path = lab.path("difference.html")
    dump = lab.path("earlier.prof")
    command(lab, daemon, "dump", process.pid, "--format", "heap_v2", "-o", dump)
    command(lab, daemon, "view", "-o", path, "--base", dump, process.pid)
    browser.open(f"file://{path}")
    browser.wait("header h1")
    assert not browser.find(".memory")
