# SPDX-License-Identifier: Apache-2.0
"""The page of a daemon that keeps no history: no timeline, but processes can be compared.

Recording is exact; error bounds: none.
"""

from harness import wait_until
from pages import address_of
from security import keeping_puppet

DAEMON = ["--exact", "--listen", "127.0.0.1:0", "--history", "none"]


def test_a_comparison_without_history(lab, browser, daemon):
    after, before = keeping_puppet(lab, count=5), keeping_puppet(lab, count=3)
    for puppet in (after, before):
        daemon.wait_recorded(puppet.pid)
    browser.open(f"{address_of(daemon)}/#pid={after.pid}")
    browser.wait(".comparison #compare").click()
    assert not browser.find(".timeline")
    wait_until(lambda: any(row[0] == str(before.pid) for row in browser.rows()), "the other process can be chosen")
    browser.script("[...document.querySelectorAll('tbody tr')].find(row => row.cells[0].textContent === arguments[0]).focus()",
                   str(before.pid))
    browser.keys("ENTER")
    browser.wait_text("h1", f"puppet (PID {after.pid}) compared with puppet (PID {before.pid})")
    browser.wait(".flame canvas")
    browser.open("about:blank")
    # The daemon's answer, that it has no history, is in the console.
    assert all("404" in line for line in browser.complaints())


def test_a_process_ends(lab, browser, daemon):
    """The daemon's list of ended processes tells it."""
    puppet = keeping_puppet(lab, count=5)
    daemon.wait_recorded(puppet.pid)
    browser.open(f"{address_of(daemon)}/#pid={puppet.pid}")
    browser.wait_text(".standing", "as of ")
    puppet.ends()
    browser.wait_text(".standing", ", exit 0")
    assert not browser.find("header nav a") and not browser.find("#compare")
    browser.open("about:blank")
    assert all("404" in line for line in browser.complaints())
