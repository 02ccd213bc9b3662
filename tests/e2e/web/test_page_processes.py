# SPDX-License-Identifier: Apache-2.0
"""The table of the daemon's processes: units and control groups, the filter, and where the focus of the keyboard is.

Recording is exact; error bounds: none.
"""

import json
import os

from selenium.webdriver.common.action_chains import ActionChains

from harness import wait_until
from history import wait_known
from pages import address_of, human
from security import keeping_puppet

DAEMON = ["--exact", "--listen", "127.0.0.1:0", "--history-interval", "100ms"]
# How often the table has been drawn anew.
COUNT_DRAWINGS = ("window.drawings = 0; new MutationObserver(() => window.drawings++)"
                  ".observe(document.querySelector('.scroll'), {childList: true})")


def pids(browser):
    return [row[0] for row in browser.rows()]


def wait_row(browser, pid):
    wait_until(lambda: str(pid) in pids(browser), f"process {pid} has a row")


def focused_pid(browser):
    """Of the row with the focus; None: it is elsewhere."""
    return browser.script("return document.activeElement.matches('tbody tr') ? document.activeElement.cells[0].textContent : null")


def wait_drawings(browser, count):
    browser.script(COUNT_DRAWINGS)
    wait_until(lambda: browser.script("return window.drawings") >= count, "the table is drawn anew")


def focus_row(browser, pid):
    browser.script("[...document.querySelectorAll('tbody tr')].find(row => row.cells[0].textContent === arguments[0])"
                   ".focus({focusVisible: true})", str(pid))


def test_resident_memory(lab, browser, daemon):
    """Beside the live memory, so that a process is seen that holds much more than its blocks."""
    puppet = keeping_puppet(lab)
    daemon.wait_recorded(puppet.pid)
    browser.open(address_of(daemon))
    wait_row(browser, puppet.pid)
    heads = browser.script("return [...document.querySelectorAll('th')].map(cell => cell.textContent.split(' ')[0])")
    assert heads[heads.index("Live") + 1] == "RSS"

    def resident():
        (process,) = [one for one in json.loads(daemon.get("/processes.json").body)["processes"] if one["pid"] == puppet.pid]
        with open(f"/proc/{puppet.pid}/statm", encoding="ascii") as file:
            return process["resident_bytes"], os.sysconf("SC_PAGESIZE") * int(file.read().split()[1])
    told, real = resident()
    assert abs(told - real) < 0.2 * real
    wait_until(lambda: human(resident()[0]) in [row[heads.index("RSS")] for row in browser.rows() if row[0] == str(puppet.pid)],
               "the table has it")
    browser.shoot("processes_resident")
    puppet.ends()
    wait_until(lambda: any(row[0] == str(puppet.pid) and row[heads.index("RSS")] == "-" for row in browser.rows()), "its end")
    browser.open("about:blank")


def test_units_and_control_groups(lab, browser, daemon, new_cgroup):
    cgroup = new_cgroup("-web.service")
    unit = cgroup.path.strip("/").removesuffix(".service")
    slice_group = new_cgroup("-batch.slice")
    web = keeping_puppet(lab, preexec_fn=cgroup.enter)
    batch = keeping_puppet(lab, preexec_fn=slice_group.enter)
    for puppet in (web, batch):
        daemon.wait_recorded(puppet.pid)
    browser.open(address_of(daemon))
    wait_row(browser, batch.pid)
    column = browser.script("return [...document.querySelectorAll('th')].findIndex(cell => cell.textContent === 'Unit or cgroup')")
    places = {row[0]: row[column] for row in browser.rows()}
    assert places[str(web.pid)] == unit
    assert places[str(batch.pid)] == slice_group.path.strip("/")
    assert cgroup.path in browser.script("return [...document.querySelectorAll('td.name')].map(cell => cell.title)")
    assert "unit or cgroup" in browser.script("return document.getElementById('search').placeholder")
    browser.shoot("processes_units")
    browser.darken(True)
    browser.shoot("processes_units_dark")
    browser.darken(False)
    browser.search("-WEB.serv")
    wait_until(lambda: pids(browser) == [str(web.pid)], "the filter by control group")
    browser.search("-batch")
    wait_until(lambda: pids(browser) == [str(batch.pid)], "the filter by the other one")
    browser.search(unit)
    wait_until(lambda: pids(browser) == [str(web.pid)], "the filter by unit")
    web.ends()
    wait_until(lambda: "exit" in (browser.rows() or [[""]])[0][-1], "its end")
    assert browser.rows()[0][column] == unit, "it keeps its unit"
    batch.ends()
    browser.open("about:blank")


def test_the_focus_stays(lab, browser, daemon):
    first, second = keeping_puppet(lab, count=100), keeping_puppet(lab, count=10)
    for puppet in (first, second):
        daemon.wait_recorded(puppet.pid)
    browser.open(address_of(daemon))
    wait_row(browser, second.pid)
    focus_row(browser, second.pid)
    wait_drawings(browser, 2)
    assert focused_pid(browser) == str(second.pid)
    # Its place changes, and the focus goes with it.
    second.ask("keep 1000 1000")
    wait_until(lambda: pids(browser).index(str(second.pid)) < pids(browser).index(str(first.pid)), "the larger one is first")
    assert focused_pid(browser) == str(second.pid)
    # The head of a column, with Enter.
    browser.script("document.querySelector('[data-column=pid]').focus()")
    browser.keys("ENTER")
    wait_until(lambda: "sort=pid" in browser.driver.current_url, "sorted")
    assert browser.script("return document.activeElement.dataset.column") == "pid"
    wait_drawings(browser, 2)
    assert browser.script("return document.activeElement.dataset.column") == "pid"
    # The filter keeps what is typed.
    browser.search("pup")
    wait_drawings(browser, 1)
    assert browser.script("return document.activeElement.id") == "search"

    table = browser.driver.current_url
    for leave in (browser.escape, browser.driver.back):
        focus_row(browser, second.pid)
        browser.keys("ENTER")
        browser.wait(".flame canvas")
        assert browser.script("return document.activeElement.textContent") == "← Processes"
        leave()
        browser.wait_text("h1", "Processes")
        wait_until(lambda: focused_pid(browser) == str(second.pid), "the row of the process")
        assert browser.driver.current_url == table, "the filter and the order of the table"
    # What is on is taken back first.
    browser.open(f"{address_of(daemon)}/#pid={first.pid}&focus=main")
    browser.wait(".flame canvas")
    browser.escape()
    wait_until(lambda: "focus=" not in browser.driver.current_url, "no filter")
    assert browser.find(".flame canvas")
    browser.escape()
    browser.wait_text("h1", "Processes")
    browser.open("about:blank")


def test_a_slow_click(lab, browser, daemon):
    """The button of the mouse is pressed while the table would be drawn anew."""
    puppet = keeping_puppet(lab)
    daemon.wait_recorded(puppet.pid)
    wait_known(daemon, puppet.pid)
    browser.open(address_of(daemon))
    wait_row(browser, puppet.pid)
    # A place, because the table may be drawn anew until the button is down.
    place = browser.script("const box = [...document.querySelectorAll('tbody tr')].find(row => row.cells[0].textContent === arguments[0])"
                           ".cells[0].getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2].map(Math.round)",
                           str(puppet.pid))
    answers = "return performance.getEntriesByType('resource').filter(entry => entry.name.endsWith('/processes.json')).length"
    before = browser.script(answers)
    browser.script(COUNT_DRAWINGS)
    pressed = ActionChains(browser.driver)
    pressed.w3c_actions.pointer_action.move_to_location(*place)
    pressed.w3c_actions.pointer_action.pointer_down()
    pressed.perform()
    drawn = browser.script("return window.drawings")
    wait_until(lambda: browser.script(answers) >= before + 2, "new figures")
    assert browser.script("return window.drawings") == drawn, "the row stays under the mouse"
    ActionChains(browser.driver).release().perform()
    browser.wait_text("h1", f"puppet (PID {puppet.pid})")
    assert f"pid={puppet.pid}" in browser.driver.current_url
    browser.driver.back()
    browser.wait_text("h1", "Processes")
    wait_drawings(browser, 2)
    assert str(puppet.pid) in pids(browser)
    browser.open("about:blank")


def test_a_focused_process_ends(lab, browser, daemon):
    """Its row stays, as that of an ended one; the focus too."""
    puppet = keeping_puppet(lab)
    daemon.wait_recorded(puppet.pid)
    browser.open(address_of(daemon))
    wait_row(browser, puppet.pid)
    focus_row(browser, puppet.pid)
    puppet.ends()
    wait_until(lambda: any(row[0] == str(puppet.pid) and "exit" in row[-1] for row in browser.rows()), "its end")
    assert focused_pid(browser) == str(puppet.pid)
    browser.open("about:blank")


def growths(browser, pid):
    """The text and the title of a process's growth."""
    return browser.script("const column = [...document.querySelectorAll('th')].findIndex(cell => cell.textContent === 'Growth/min');"
                          "const row = [...document.querySelectorAll('tbody tr')].find(row => row.cells[0].textContent === arguments[0]);"
                          "return [row.cells[column].textContent, row.cells[column].title]", str(pid))


def test_growth_that_is_not_known(lab, browser, daemon):
    """A process that has just begun does not grow by all that it has allocated."""
    puppet = keeping_puppet(lab, count=1000)
    daemon.wait_recorded(puppet.pid)
    wait_known(daemon, puppet.pid)
    browser.open(address_of(daemon))
    wait_row(browser, puppet.pid)
    wait_drawings(browser, 2)
    text, title = growths(browser, puppet.pid)
    assert text == "-" and "less than half a minute" in title
    browser.open("about:blank")


def test_only_the_running_ones(lab, browser, daemon):
    running, ended = keeping_puppet(lab), keeping_puppet(lab)
    for puppet in (running, ended):
        daemon.wait_recorded(puppet.pid)
    ended.ends()
    browser.open(address_of(daemon))
    for puppet in (running, ended):
        wait_row(browser, puppet.pid)
    browser.wait("#running").click()
    wait_until(lambda: pids(browser) == [str(running.pid)], "the ended one is left out")
    assert "running=true" in browser.driver.current_url
    browser.shoot("processes_running")
    wait_drawings(browser, 2)
    assert pids(browser) == [str(running.pid)]
    # It is kept while a process is looked at.
    focus_row(browser, running.pid)
    browser.keys("ENTER")
    browser.wait(".flame canvas")
    browser.escape()
    wait_until(lambda: pids(browser) == [str(running.pid)], "the switch is still on")
    browser.wait("#running").click()
    wait_row(browser, ended.pid)
    browser.open("about:blank")
