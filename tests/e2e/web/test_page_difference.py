# SPDX-License-Identifier: Apache-2.0
"""The page of a difference between two dumps; the figures are those of heaptap report --json.

Recording is exact; error bounds: none.
"""

import json

from harness import target, wait_until
from pages import page_of, run, write_dump

EXACT = {"MALLOC_CONF": "prof:true,lg_prof_sample:0"}


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


def test_the_names_have_room(lab, browser):
    """Beside long figures, in all windows with panes side by side; and lists without an entry take no room of the table."""
    base, later = lab.path("base.prof"), lab.path("later.prof")
    one, other = ((address, *(0x2001 + 16 * level for level in range(30))) for address in (0x1100, 0x1200))
    write_dump(base, [(one, 1_000_000, 200_000_000_000), (other, 10, 900_000_000_000)])
    write_dump(later, [(one, 9_000_000, 900_000_000_000), (other, 10, 100_000_000_000)])
    try:
        for width in (1024, 1280, 1440, 1920):
            browser.resize(width, 720)
            browser.open(page_of(lab, later, "--base", base))
            browser.wait(".flame canvas")
            widths = browser.script("return [document.querySelector('.sums th:last-child').getBoundingClientRect().width,"
                                    "document.querySelector('.sums').clientWidth, document.querySelector('.sums').scrollWidth]")
            assert not browser.find(".panes.stacked")
            assert widths[0] >= 180 and widths[2] <= widths[1], (width, widths)
            side, fates = browser.script("return ['.side', '.fates'].map(one => document.querySelector(one).getBoundingClientRect().height)")
            assert fates < 0.2 * side, (width, fates, side)
    finally:
        browser.resize(1280, 720)


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
