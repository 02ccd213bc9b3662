# SPDX-License-Identifier: Apache-2.0
"""Two processes compared on the daemon's page: chosen in the table, swapped, as a link; the figures are those of
heaptap diff.

Recording is exact but for one process; error bounds: none.
"""

import json

from harness import wait_until
from history import SIZE, document as known, functions, start, wait_live
from pages import address_of
from security import keeping_puppet

DAEMON = ["--exact", "--listen", "127.0.0.1:0", "--history-interval", "100ms", "--rule", "comm=coarse lg-sample=12"]


def two_puppets(lab, daemon):
    """One path of both has grown, another one is new."""
    after, before = start(lab, daemon), start(lab, daemon)
    for puppet in (after, before):
        has_tables(daemon, puppet)
    after.ask(f"keep 300 {SIZE}")
    after.ask("start 20 70000")
    before.ask(f"keep 100 {SIZE}")
    return after, before


def has_tables(daemon, puppet):
    """Waits for the unwind tables: the history counts the samples before them among all others."""
    puppet.ask(f"churn 10 {SIZE}")
    puppet.ask("churn 10 70000")
    wait_until(lambda: daemon.get(f"/pid/{puppet.pid}/profile.json").status == 200, f"the profile of {puppet.pid}")


def held(daemon, puppet):
    return daemon.processes()[puppet.pid]["live_bytes"]


def wait_named(daemon, puppet):
    """Until the history has the names of all frames, which it looks up one file after the other."""
    wait_until(lambda: None not in functions(known(daemon, puppet.pid)), f"the names of {puppet.pid}")


def page_total(browser):
    return browser.script("return heaptap.view.profile.paths.live_bytes.reduce((a, b) => a + b, 0)")


def page_paths(browser):
    """[(bytes, objects, samples, error, names)] of the paths that changed, the innermost function first."""
    return sorted(map(tuple, browser.script(
        "const {paths, stacks, frames, texts} = heaptap.view.profile;"
        "const names = at => at < 0 ? [] : [texts[frames.function[stacks.frame[at]]], ...names(stacks.parent[at])];"
        "return paths.stack.map((stack, i) => [paths.live_bytes[i], paths.live_objects[i], paths.live_samples[i],"
        "  Math.sqrt(paths.live_variance[i]), names(stack).join(' ')]).filter(path => path[0] !== 0 || path[1] !== 0)")))


def diff_paths(document):
    """The same of heaptap diff --json."""
    def name(text):
        return text.split(" (", 1)[0] if isinstance(text, str) else text["function"]
    return sorted((path["bytes"], path["objects"], path["samples"], path["error"],
                   " ".join(name(text) for frame in path["frames"] for text in frame["names"]))
                  for path in document["call_paths"])


def diff(daemon, before, after):
    return json.loads(daemon.client("diff", f"{before.pid}@now", f"{after.pid}@now", "--json", "--top", 0))


def compare_in_the_page(browser, daemon, after, before):
    browser.open(f"{address_of(daemon)}/#pid={after.pid}")
    browser.wait("#compare").click()
    browser.wait_text("h1", f"Compare puppet (PID {after.pid}) with…")
    wait_until(lambda: any(row[0] == str(before.pid) for row in browser.rows()), "the other process can be chosen")
    assert str(after.pid) not in [row[0] for row in browser.rows()], "it is no other process"
    assert browser.script("return document.activeElement.id") == "search"
    assert not browser.wait("nav").is_displayed()
    browser.shoot("comparison_choice")
    browser.script("[...document.querySelectorAll('tbody tr')].find(row => row.cells[0].textContent === arguments[0]).click()",
                   str(before.pid))
    browser.wait(".comparison #swap")
    browser.wait(".flame canvas")


def test_the_figures_are_those_of_heaptap_diff(lab, browser, daemon):
    after, before = two_puppets(lab, daemon)
    for puppet in (after, before):
        wait_live(daemon, puppet.pid, held(daemon, puppet))
    wait_named(daemon, after)
    wait_named(daemon, before)
    document = diff(daemon, before, after)
    assert len(document["call_paths"]) == 2
    compare_in_the_page(browser, daemon, after, before)
    assert page_total(browser) == document["difference"]["bytes"] != 0
    assert page_paths(browser) == diff_paths(document)
    head = browser.text(".facts")
    assert "Change of live memory" in head and "Before" in head
    assert f"puppet (PID {after.pid}) compared with puppet (PID {before.pid})" == browser.text("h1")
    assert "New paths: " in browser.text(".fates")
    assert browser.script("return document.activeElement.textContent") == "← Processes"
    assert browser.script("return document.querySelector('.sums th:last-child').getBoundingClientRect().width") >= 180
    browser.shoot("comparison")
    browser.darken(True)
    browser.shoot("comparison_dark")
    browser.darken(False)

    # The other way round, and what has vanished then.
    browser.wait("#swap").click()
    browser.wait_text("h1", f"puppet (PID {before.pid}) compared with puppet (PID {after.pid})")
    assert page_total(browser) == -document["difference"]["bytes"]
    assert page_paths(browser) == diff_paths(diff(daemon, after, before))
    assert browser.rows(".vanished")
    browser.open("about:blank")


def test_the_address_holds_a_comparison(lab, browser, daemon):
    after, before = two_puppets(lab, daemon)
    compare_in_the_page(browser, daemon, after, before)
    link = browser.driver.current_url
    assert f"pid={after.pid}" in link and f"base={before.pid}" in link
    browser.choose("View", "bottom-up")
    wait_until(lambda: "view=bottom-up" in browser.driver.current_url, "the same views")
    browser.driver.back()
    wait_until(lambda: browser.driver.current_url == link, "back to the first view")
    browser.driver.back()
    browser.wait_text("h1", "Compare puppet")
    browser.driver.back()
    browser.wait_text("h1", f"puppet (PID {after.pid})")
    browser.wait("#compare")
    browser.driver.forward()
    browser.wait_text("h1", "with…")
    # Escape, Cancel and End lead back to the process.
    browser.escape()
    browser.wait_text("h1", f"puppet (PID {after.pid})")
    browser.open(f"{address_of(daemon)}/#pid={after.pid}&base=choose")
    browser.wait("#cancel").click()
    browser.wait(".flame canvas")
    browser.open(link)
    browser.wait("#end-comparison").click()
    wait_until(lambda: "base=" not in browser.driver.current_url, "no comparison")
    browser.wait(".timeline canvas")
    # So does another process.
    browser.open(link)
    browser.wait(".comparison #compare").click()
    browser.wait_text("h1", "with…")
    browser.open("about:blank")


def test_what_cannot_be_compared(lab, browser, daemon):
    after, before = two_puppets(lab, daemon)
    address = address_of(daemon)
    before.ends()
    daemon.wait_ended(before.pid)
    browser.open(f"{address}/#pid={after.pid}&base={before.pid}")
    browser.wait_text("[role=alert]", f"Process {before.pid} cannot be compared: it has ended, or it is not recorded.")
    browser.shoot("comparison_gone")
    browser.wait("#compare").click()
    browser.wait_text("h1", "Compare puppet")
    assert str(before.pid) not in [row[0] for row in browser.rows()], "ended ones cannot be chosen"
    browser.open(f"{address}/#pid={after.pid}&base={after.pid}")
    browser.wait_text("[role=alert]", "cannot be compared with itself")
    browser.escape()
    browser.wait_text("h1", "Processes")
    browser.open("about:blank")
    # The answer that the process is gone is in the console.
    assert all("404" in line for line in browser.complaints())


def test_other_periods(lab, browser, daemon):
    """Two processes that are sampled differently can be compared; the page says so."""
    fine = keeping_puppet(lab, count=200)
    coarse = lab.preloaded(lab.copy("puppet", "coarse"), talks=True, env={"HEAPTAP_CONF": "prof_seed:1"})
    coarse.answer()
    daemon.wait_recorded(coarse.pid)
    wait_until(lambda: daemon.processes()[coarse.pid]["lg_sample"] == 12, "the rate of the rule")
    coarse.ask("churn 70000 64")
    coarse.ask(f"keep 500 {SIZE}")
    for puppet in (fine, coarse):
        wait_live(daemon, puppet.pid, round(held(daemon, puppet)))
    browser.open(f"{address_of(daemon)}/#pid={fine.pid}&base={coarse.pid}")
    browser.wait_text(".comparison", "Sampled differently: before one sample every 4.0K, after every allocation.")
    document = diff(daemon, coarse, fine)
    assert abs(page_total(browser) - document["difference"]["bytes"]) <= 1
    error = browser.script("return Math.sqrt(heaptap.view.profile.paths.live_variance.reduce((a, b) => a + b, 0))")
    expected = sum(path["error"] ** 2 for path in document["call_paths"]) ** 0.5
    assert expected > 0 and abs(error - expected) < 0.01 * expected
    browser.shoot("comparison_periods")
    browser.open("about:blank")
