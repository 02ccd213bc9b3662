# SPDX-License-Identifier: Apache-2.0
"""The page without a mouse: keys of the page, the flame graph's outline, help.

Recording is exact; error bounds: none.
"""

from selenium.webdriver.common.action_chains import ActionChains

from harness import wait_until
from pages import names, page_of, write_dump


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


def test_names_and_paths_are_copied(lab, browser, leak):
    browser.open(page_of(lab, leak))
    browser.wait(".flame canvas")
    browser.script("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    browser.press("c")
    browser.wait_text(".copied", "Point at a box or a row first")

    def copies(key, text):
        browser.press(key)
        browser.wait_text(".copied", f"Copied: {text}")
        assert browser.script("return window.copied") == text

    browser.hover_box("do_something")
    copies("c", "do_something")
    copies("C", "do_something ← main")
    browser.shoot("copied")
    # The keyboard's box, and in the other direction too.
    browser.choose("View", "bottom-up")
    browser.script("document.querySelector('.flame').focus({focusVisible: true})")
    browser.keys("ARROW_DOWN", "ARROW_DOWN")
    wait_until(lambda: "main" in browser.text(".tooltip"), "the caller")
    copies("c", "main")
    copies("C", "do_something ← main")
    browser.choose("Rows", "path")
    browser.script("document.querySelector('tbody tr').focus()")
    copies("c", "do_something ← main")


def focused(browser):
    return browser.script("const one = document.activeElement; return one.dataset.value ?? one.id ?? one.className")


def tabs_before_the_graph(browser):
    """How often Tab is pressed, from the beginning of the page on, until the keyboard is on the graph."""
    browser.script("document.activeElement.blur(); getSelection().removeAllRanges(); document.body.tabIndex = -1; document.body.focus()")
    for count in range(1, 60):
        browser.keys("TAB")
        if browser.script("return document.activeElement.matches('.flame')"):
            return count
    raise AssertionError("Tab never reaches the graph")


def test_a_group_of_buttons_is_one_stop(lab, browser, leak):
    browser.open(page_of(lab, leak))
    browser.wait(".flame canvas")
    # Four groups, a box to tick, the search, and the help.
    assert tabs_before_the_graph(browser) == 8
    browser.script("document.querySelector('[aria-label=View] [aria-checked=true]').focus()")
    browser.keys("ARROW_RIGHT")
    wait_until(lambda: "view=bottom-up" in browser.driver.current_url, "the arrow chooses the next one")
    assert focused(browser) == "bottom-up"
    browser.keys("ARROW_LEFT", "ARROW_LEFT")
    wait_until(lambda: "view=butterfly" in browser.driver.current_url, "before the first one is the last one")
    assert focused(browser) == "butterfly"
    browser.keys("HOME")
    wait_until(lambda: "view=" not in browser.driver.current_url, "the first one")
    stops = browser.script("return [...document.querySelectorAll('.choice')].map(group => group.querySelectorAll('[tabindex=\"0\"]').length)")
    assert set(stops) == {1}
    # What cannot be chosen can be reached, so that a screen reader says why.
    browser.script("document.querySelector('[aria-label=Rows] [data-value=thread]').focus()")
    browser.keys("ARROW_RIGHT")
    assert focused(browser) == "size"
    assert "table=size" not in browser.driver.current_url and browser.find('[data-value=size][aria-disabled=true]')


WIDTHS = ("return ['.graph', '.side', '.panes', '.sums th:last-child'].map(one => document.querySelector(one).getBoundingClientRect().width)")


def split_now(browser):
    return browser.script("return Number(document.getElementById('split').getAttribute('aria-valuenow'))")


def test_the_split_moves(lab, browser):
    """With the keyboard and the mouse; the browser remembers it."""
    deep = lab.path("deep.prof")
    write_dump(deep, [(tuple(0x1100 + 16 * level for level in range(60)), 1, 100)])
    address = page_of(lab, deep)
    browser.open(address)
    browser.wait(".flame canvas")
    browser.script("localStorage.clear()")
    browser.open(address)
    split = browser.wait("[role=separator]")
    usual = browser.script(WIDTHS)
    wait_until(lambda: abs(split_now(browser) - 100 * (1 - usual[1] / usual[2])) < 1, "where it is")
    first = split_now(browser)
    assert split.get_attribute("aria-orientation") == "vertical"
    browser.script("arguments[0].focus()", split)
    browser.keys("ARROW_LEFT", "ARROW_LEFT")
    wait_until(lambda: split_now(browser) == first - 4, "it has moved")
    moved = browser.script(WIDTHS)
    assert moved[0] < usual[0] and moved[1] > usual[1] and abs(moved[2] - usual[2]) < 1
    assert browser.script("return document.querySelector('.flame canvas').clientWidth") < moved[0], "the graph follows"
    # What is drawn anew keeps it, and the focus.
    browser.press("2")
    wait_until(lambda: "view=bottom-up" in browser.driver.current_url, "another view")
    assert browser.script("return document.activeElement.id") == "split" and split_now(browser) == first - 4
    browser.open(address)
    browser.wait(".flame canvas")
    wait_until(lambda: split_now(browser) == first - 4, "it is remembered")
    browser.script("document.getElementById('split').focus()")
    browser.keys("HOME")
    wait_until(lambda: split_now(browser) == 20, "the least")
    browser.keys("ARROW_LEFT")
    assert split_now(browser) == 20
    browser.keys("END")
    wait_until(lambda: split_now(browser) == 80, "the most")
    actions = ActionChains(browser.driver)
    actions.w3c_actions.pointer_action.move_to(browser.wait("#split"))
    actions.w3c_actions.pointer_action.pointer_down()
    actions.w3c_actions.pointer_action.move_to_location(640, 500)
    actions.w3c_actions.pointer_action.pointer_up()
    actions.perform()
    wait_until(lambda: abs(split_now(browser) - 50) <= 1, "half and half")
    browser.shoot("split")
    browser.keys("ENTER")
    wait_until(lambda: browser.script(WIDTHS) == usual, "where it was")
    try:
        # One above the other.
        browser.resize(800, 900)
        wait_until(lambda: browser.wait("#split").get_attribute("aria-orientation") == "horizontal", "the panes are stacked")
        at = split_now(browser)
        browser.script("document.getElementById('split').focus()")
        browser.keys("ARROW_UP")
        wait_until(lambda: split_now(browser) == at - 2, "it has moved")
    finally:
        browser.resize(1280, 720)
    wait_until(lambda: browser.script(WIDTHS) == usual, "side by side it is another one")
    browser.script("localStorage.clear()")


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
