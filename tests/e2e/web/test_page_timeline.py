# SPDX-License-Identifier: Apache-2.0
"""The timeline of the daemon's page: a person chooses a moment and a range, marks, follows a link, looks at a service.

Recording is exact; error bounds: none.
"""

import json
import re
import signal

from selenium.webdriver.common.action_chains import ActionChains

from harness import wait_until
from history import SIZE, document, functions, moment, start, wait_live
from pages import address_of

DAEMON = ["--exact", "--listen", "127.0.0.1:0", "--history-interval", "100ms"]


def of_all(daemon, puppet):
    """The address of the whole history, in which each of its points has room."""
    return f"{address_of(daemon)}/#pid={puppet.pid}&span=all"


def place(browser, point):
    """As soon as the timeline is drawn, which the browser does when it has told its size."""
    wait_until(lambda: browser.script("return heaptap.timeline.picture.width > 0"), "the timeline is drawn")
    at = browser.script("return heaptap.timeline.place(arguments[0])", point)
    return int(at["x"]), int(at["y"])


def points(browser):
    return browser.script("return heaptap.timeline.history.points.map(point => point.live_bytes)")


def click_point(browser, point):
    actions = ActionChains(browser.driver)
    actions.w3c_actions.pointer_action.move_to_location(*place(browser, point))
    actions.w3c_actions.pointer_action.click()
    actions.perform()


def drag(browser, first, last):
    actions = ActionChains(browser.driver)
    pointer = actions.w3c_actions.pointer_action
    pointer.move_to_location(*place(browser, first))
    pointer.pointer_down()
    pointer.move_to_location(*place(browser, last))
    pointer.pointer_up()
    actions.perform()


def live(browser):
    return browser.text(".facts dd")


def legend(browser):
    """The texts of the legend's buttons, without their numbers."""
    return browser.script("return [...document.querySelectorAll('.legend button')].map(one => one.lastChild.textContent)")


def pressed(browser):
    return browser.script("return [...document.querySelectorAll('.legend [aria-pressed=true]')].map(one => one.lastChild.textContent)")


def click_number(browser, layer):
    find = "return heaptap.timeline.placeOfNumber(arguments[0])"
    at = wait_until(lambda: browser.script(find, layer), "the number is drawn")
    actions = ActionChains(browser.driver)
    actions.w3c_actions.pointer_action.move_to_location(int(at["x"]), int(at["y"]))
    actions.w3c_actions.pointer_action.click()
    actions.perform()


def set_visibility(browser, state):
    """As if the person looked at another tab ("hidden"), or came back ("visible"). A hidden timeline stays as it is, even if
    an answer is on its way, so that its points do not move under the mouse of a test."""
    browser.script(f"Object.defineProperty(document, 'visibilityState', {{configurable: true, get: () => '{state}'}});"
                   "document.dispatchEvent(new Event('visibilitychange'))")


def test_a_moment_a_range_a_mark(lab, browser, daemon):
    puppet = start(lab, daemon)
    for count in (100, 300):
        puppet.ask(f"keep {count} {SIZE}")
        wait_live(daemon, puppet.pid, (100 if count == 100 else 400) * SIZE)
    browser.resize(1280, 720)
    browser.open(of_all(daemon, puppet))
    browser.wait(".timeline canvas")
    wait_until(lambda: live(browser) == "400.0K", "the live profile")
    browser.shoot("timeline")

    set_visibility(browser, "hidden")
    held = points(browser)
    early = held.index(100 * SIZE)
    late = held.index(400 * SIZE)
    click_point(browser, early)
    wait_until(lambda: live(browser) == "100.0K", "the profile of that moment")
    assert " at " in browser.text("h1")
    link = browser.driver.current_url
    drag(browser, early, late)
    wait_until(lambda: live(browser) == "+300.0K", "what was allocated in the range")
    assert "keep_blocks" in browser.boxes()
    browser.shoot("timeline-range")
    # Numbers are those of the command.
    shown = json.loads(daemon.client("history", puppet.pid, "--json"))
    assert {point["live_bytes"] for point in shown["points"]} >= {100 * SIZE, 400 * SIZE}

    # By keyboard: an earlier moment, then a range.
    click_point(browser, late)
    wait_until(lambda: live(browser) == "400.0K", "the later moment")
    browser.keys("ARROW_LEFT")
    wait_until(lambda: live(browser) in ("100.0K", "400.0K") and "from=" not in browser.driver.current_url, "one point earlier")

    browser.open(link)
    browser.wait(".timeline canvas")
    wait_until(lambda: live(browser) == "100.0K", "the link shows the same moment")
    browser.wait("#now").click()
    wait_until(lambda: live(browser) == "400.0K", "now")

    field = browser.wait("#mark")
    field.send_keys("before <b>lunch</b>")
    field.submit()
    wait_until(lambda: "before <b>lunch</b>" in [mark["text"] for mark in browser.script(
        "return heaptap.timeline?.history.marks ?? []")], "the mark is in the timeline")
    assert "before <b>lunch</b>" in daemon.client("history", puppet.pid)

    browser.wait("#service").click()
    browser.wait_text("h1", "puppet at")
    assert "service=puppet" in browser.driver.current_url
    picture = "return document.querySelector('.timeline canvas').toDataURL()"
    light = browser.script(picture)
    browser.darken(True)
    wait_until(lambda: browser.script(picture) != light, "it is drawn in the other colours")
    browser.shoot("timeline-service-dark")
    browser.darken(False)
    browser.open("about:blank")


# At the edges of the picture, between them, and behind the first point with all that is live: whether something is drawn.
DRAWN = """
    const {left, width, height} = heaptap.timeline.picture;
    const canvas = document.querySelector('.timeline canvas');
    const context = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', {willReadFrequently: true});
    context.drawImage(canvas, 0, 0);
    const {points} = heaptap.timeline.history;
    const most = points.findIndex(point => point.live_bytes === points.at(-1).live_bytes);
    const behind = Math.min(heaptap.timeline.toX(most), left + width - 4) + 2;
    return [left + 2, left + width / 2, left + width - 2, behind].map(
        x => context.getImageData(x, height - 4, 1, 1).data[3] > 0)"""


def test_the_axis_is_the_chosen_span(lab, browser, daemon):
    """Seconds of a history are little of an hour, and less of a day; in all of the history they have the whole width."""
    puppet = start(lab, daemon)
    keep_changing(daemon, puppet, 100)
    browser.open(f"{address_of(daemon)}/#pid={puppet.pid}")
    browser.wait(".timeline canvas")
    set_visibility(browser, "hidden")
    widths = {}
    for span in ("hour", "day", "weeks", "all"):
        browser.choose("Time", span)
        wait_until(lambda s=span: (f"span={s}" in browser.driver.current_url or s == "hour") and browser.script(
            "return document.querySelector('[aria-label=Time] [aria-checked=true]').dataset.value") == s, "the span")
        history = browser.script("const {since, until, points} = heaptap.timeline.history; return [since, until, points[0].time]")
        first, last = place(browser, 0), place(browser, len(points(browser)) - 1)
        widths[span] = last[0] - first[0]
        left, width = browser.script("const {left, width} = heaptap.timeline.picture; return [left, width]")
        left += browser.script("return document.querySelector('.timeline canvas').getBoundingClientRect().left")
        if span == "all":
            assert (first[0], last[0]) == (int(left), int(left + width))
            assert browser.script(DRAWN)[3]
        else:
            seconds = {"hour": 3600, "day": 86400, "weeks": 14 * 86400}[span]
            assert abs(history[1] - history[0] - seconds) < 0.01
            assert abs(first[0] - (left + width * (history[2] - history[0]) / seconds)) <= 1
            assert browser.script(DRAWN)[:2] == [False, False], "nothing is known of that time"
        browser.shoot(f"timeline-span-{span}")
    assert widths["hour"] <= width / 60, "less than a minute"
    assert max(widths["day"], widths["weeks"]) <= 1
    browser.open("about:blank")


def test_what_was_allocated_in_a_range(lab, browser, daemon):
    """By the whole process, which is all that the history has; no figure since the beginning stands for it."""
    puppet = start(lab, daemon)
    # Until its unwind tables are loaded, stacks may be cut, which makes other paths of them.
    puppet.ask(f"churn 10 {SIZE}")
    daemon.settle()
    keep_changing(daemon, puppet, 100)
    before = document(daemon, puppet.pid)["points"][-1]
    puppet.ask(f"churn 200 {SIZE}")
    keep_changing(daemon, puppet, 200)
    wait_until(lambda: document(daemon, puppet.pid)["points"][-1]["allocated_bytes"] == before["allocated_bytes"] + 300 * SIZE,
               "the history has what was allocated")
    after = document(daemon, puppet.pid)["points"][-1]
    browser.open(f"{of_all(daemon, puppet)}&value=allocated")
    browser.wait_text(".facts dt", "Allocated")
    browser.open(f"{of_all(daemon, puppet)}&value=allocated&from={before['time']}&at={after['time']}")
    wait_until(lambda: live(browser) == "+100.0K", "the change of live memory, not what was allocated")
    assert "Allocated300.0Kfreed 200.0K; paths not known" in browser.text(".facts")
    for value in ("allocated", "freed"):
        (button,) = browser.find(f'[aria-label="Measure"] [data-value="{value}"][aria-disabled="true"]')
        assert "not by call path" in button.get_attribute("title") == button.get_attribute("aria-description")
    browser.shoot("timeline-allocated")
    browser.click('tbody tr[data-row="focus:keep_blocks"]')
    browser.wait_text(".facts", "Allocated?not known by call path")
    # Of one moment nothing is known either.
    browser.open(f"{of_all(daemon, puppet)}&value=freed&at={after['time']}")
    wait_until(lambda: live(browser) == "200.0K" and browser.text(".facts dt") == "Live", "what was live")
    assert browser.find('[aria-label="Measure"] [data-value="freed"][aria-disabled="true"]')
    browser.open("about:blank")


# Boxes in pixels: [left, top, right, bottom].
BOXES = ("return [...document.querySelectorAll(arguments[0])].map(one => one.getBoundingClientRect())"
         ".map(box => [box.left, box.top, box.right, box.bottom])")


def test_small_windows(lab, browser, daemon):
    """Nothing overlaps or is beyond the edge, and there is room for the picture, for some rows of boxes, and for the legend."""
    puppet = start(lab, daemon)
    puppet.ask(f"keep 100 {SIZE}")
    puppet.ask(f"start 50 {SIZE}")
    wait_live(daemon, puppet.pid, 150 * SIZE)
    wait_until(lambda: {"keep_blocks", "start_blocks"} <= functions(document(daemon, puppet.pid)), "names")
    try:
        for width, height in ((1024, 768), (800, 600), (1024, 500), (480, 800)):
            browser.resize(width, height)
            browser.open(f"{address_of(daemon)}/#pid={puppet.pid}")
            browser.wait(".legend button")
            browser.wait(".flame canvas")
            wait_until(lambda w=width: browser.script("return innerWidth") == w, "the window has the size")
            browser.shoot(f"timeline-{width}x{height}")
            assert browser.script("return document.documentElement.scrollWidth <= innerWidth")
            controls = browser.script(BOXES, ".timeline-bar > *, .toolbar .choice, .toolbar > :not(.choices)")
            for i, (left, top, right, bottom) in enumerate(controls):
                assert 0 <= left < right <= width, "inside the window"
                for other in controls[:i]:
                    assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1], "no two overlap"
            for selector, least in ((".timeline canvas", 55), (".flame", 60), (".scroll", 80)):
                (left, top, right, bottom) = browser.script(BOXES, selector)[0]
                assert bottom - top >= least, (width, height, selector)
                assert 0 <= left and right <= width
            for left, _, right, _ in browser.script(BOXES, ".legend > *"):
                assert right - left >= 60, "some letters of its name"
            parts = browser.script(BOXES, "header, .timeline, .toolbar, .panes")
            for (_, _, _, bottom), (_, top, _, _) in zip(parts, parts[1:]):
                assert bottom <= top, "one below the other"
            # What is below the window can be scrolled to.
            below = browser.script("return document.documentElement.scrollHeight")
            assert parts[-1][3] < below + 1
    finally:
        browser.resize(1280, 720)
    browser.open("about:blank")


def test_a_layer_shows_its_path_alone(lab, browser, daemon):
    """By its number in the picture, by its entry of the legend, and with the keyboard; each takes it back too."""
    puppet = start(lab, daemon)
    # Until its unwind tables are loaded, stacks may be cut, which makes other paths of them.
    puppet.ask(f"churn 10 {SIZE}")
    daemon.settle()
    puppet.ask(f"keep 30720 {SIZE}")
    puppet.ask(f"start 10240 {SIZE}")
    wait_live(daemon, puppet.pid, 40960 * SIZE)
    # What only passes an allocation on, or starts the program, names no layer.
    wait_until(lambda: None not in functions(document(daemon, puppet.pid)), "names")
    browser.open(f"{address_of(daemon)}/#pid={puppet.pid}")
    browser.wait(".legend button")
    set_visibility(browser, "hidden")
    # Below them may be a block of churn_blocks that a point has seen.
    assert [entry.split(" ← ")[0] for entry in legend(browser)][:2] == ["keep_blocks", "start_blocks"]
    assert not any("libc_start" in entry for entry in legend(browser))
    click_number(browser, 1)
    wait_until(lambda: live(browser) == "10.0M", "one path alone")
    assert "start_blocks" in browser.boxes() and "keep_blocks" not in browser.boxes()
    assert pressed(browser) == [legend(browser)[1]]
    assert browser.text(".chip-text").startswith("path start_blocks ← ")
    browser.shoot("timeline-layer")
    link = browser.driver.current_url
    click_number(browser, 1)
    wait_until(lambda: live(browser) == "40.0M" and not pressed(browser), "all paths")

    browser.find(".legend button")[0].click()
    wait_until(lambda: live(browser) == "30.0M", "the other path alone")
    browser.find(".legend button")[0].click()
    wait_until(lambda: live(browser) == "40.0M", "all paths")
    browser.keys("ENTER")
    wait_until(lambda: live(browser) == "30.0M", "the other path, with the keyboard")
    assert browser.script("return document.activeElement.dataset.value") == "1", "the focus stays"
    # The legend is one stop of the Tab key; the arrow keys move inside.
    assert len(browser.find('.legend [tabindex="0"]')) == 1
    browser.keys("ARROW_RIGHT")
    assert browser.script("return [document.activeElement.dataset.value, document.activeElement.tabIndex]") == ["2", 0]
    assert len(browser.find('.legend [tabindex="0"]')) == 1 and "start_blocks" not in browser.text(".chip-text")
    browser.escape()
    wait_until(lambda: live(browser) == "40.0M", "all paths")

    browser.open(link)
    wait_until(lambda: live(browser) == "10.0M", "the link shows the same path")
    assert browser.text(".chip-text").startswith("path start_blocks ← ")
    browser.open("about:blank")


def test_names_that_come_later(lab, browser, daemon):
    """A layer that is shown alone stays so when the daemon has found more names of its path."""
    puppet = start(lab, daemon)
    puppet.ask(f"keep 100 {SIZE}")
    wait_live(daemon, puppet.pid, 100 * SIZE)
    wait_until(lambda: None not in functions(document(daemon, puppet.pid)), "names")
    browser.open(f"{address_of(daemon)}/#pid={puppet.pid}")
    browser.wait(".legend button")
    set_visibility(browser, "hidden")
    browser.script("heaptap.past.history.paths.forEach(path => path.frames[0].short = 'puppet+0x10');"
                   "heaptap.timeline.update(heaptap.past.history);"
                   "document.querySelector('.legend button').click()")
    assert legend(browser)[0].startswith("puppet+0x10 ← ") and live(browser) == "0"
    set_visibility(browser, "visible")
    wait_until(lambda: live(browser) == "100.0K", "the same layer")
    assert browser.text(".chip-text").startswith("path keep_blocks ← ")
    browser.driver.back()
    wait_until(lambda: not browser.find(".chip-text"), "all layers")
    browser.open("about:blank")


def test_an_ended_process(lab, browser, daemon):
    puppet = start(lab, daemon)
    puppet.ask(f"keep 50 {SIZE}")
    wait_live(daemon, puppet.pid, 50 * SIZE)
    puppet.ends()
    wait_until(lambda: json.loads(daemon.client("history", puppet.pid, "--json"))["processes"][0]["ended"], "its end")
    browser.open(address_of(daemon))
    browser.wait_text(".services", "puppet")
    wait_until(lambda: any(str(puppet.pid) == row[0] for row in browser.rows()), "the ended process is listed")
    browser.script("[...document.querySelectorAll('tbody tr')].find(row => row.cells[0].textContent === arguments[0]).click()",
                   str(puppet.pid))
    wait_until(lambda: live(browser) == "50.0K", "what it held")
    assert re.fullmatch(r"ended .+, exit 0", browser.text(".standing"))
    # Nothing is offered that only a running process answers.
    assert not browser.find("header nav a") and not browser.find("#compare") and not browser.find("#mark")
    browser.shoot("ended-process")
    browser.open("about:blank")
    # The first answer, that the process is gone, is in the console.
    assert all("404" in line for line in browser.complaints())


def test_a_process_ends_while_somebody_looks(lab, browser, daemon):
    """The figures stay those of the moment at which they were read, and the page says so."""
    puppet = start(lab, daemon)
    puppet.ask(f"keep 50 {SIZE}")
    wait_live(daemon, puppet.pid, 50 * SIZE)
    browser.open(f"{address_of(daemon)}/#pid={puppet.pid}")
    wait_until(lambda: live(browser) == "50.0K", "its profile")
    assert re.fullmatch(r"as of \d.*Read again", browser.text(".standing"))
    assert browser.find("header nav a") and browser.find("#compare") and browser.find("#mark")
    puppet.ask(f"keep 25 {SIZE}")
    wait_live(daemon, puppet.pid, 75 * SIZE)
    assert live(browser) == "50.0K"
    browser.wait("#read-again").click()
    wait_until(lambda: live(browser) == "75.0K", "what it holds now")
    assert browser.script("return document.activeElement.id") == "read-again"
    puppet.signal(signal.SIGKILL)
    assert puppet.wait() == -signal.SIGKILL
    wait_until(lambda: "ended" in browser.text(".standing"), "the page says that it has ended")
    standing = browser.text(".standing")
    assert re.fullmatch(r"as of \d.*; ended \d.*, signal 9Read again", standing)
    assert live(browser) == "75.0K"
    assert not browser.find("header nav a") and not browser.find("#compare") and not browser.find("#mark")
    browser.shoot("ended-while-looking")
    browser.open("about:blank")


COUNT_READINGS = """
    window.readings = 0;
    const {fetch} = window;
    window.fetch = (...words) => {
      if (String(words[0]).startsWith('/history.json?')) window.readings++;
      return fetch(...words);
    }"""
PLACES = ("return [...document.querySelectorAll('.timeline canvas, .timeline-bar button, #mark, .flame, .scroll')].map(one => {"
          "const box = one.getBoundingClientRect(); return [box.x, box.y, box.width, box.height]})")


def readings(browser):
    return browser.script("return window.readings")


def wait_later(daemon, pid, seconds):
    """Until the history has points of that many more seconds."""
    end = moment(daemon, pid) + seconds
    wait_until(lambda: moment(daemon, pid) > end, f"{seconds} more seconds of history")


def keep_changing(daemon, puppet, total):
    puppet.ask(f"keep 100 {SIZE}")
    wait_live(daemon, puppet.pid, total * SIZE)


def test_new_points_appear(lab, browser, daemon):
    """The timeline of now goes on, and nothing else moves: not the focus, not what is typed, no part of the page."""
    puppet = start(lab, daemon)
    keep_changing(daemon, puppet, 100)
    browser.open(f"{address_of(daemon)}/#pid={puppet.pid}")
    browser.wait(".timeline canvas")
    browser.script("window.canvas = document.querySelector('.timeline canvas')")
    field = browser.wait("#mark")
    field.send_keys("half a wo")
    before = browser.script(PLACES)
    keep_changing(daemon, puppet, 200)
    wait_until(lambda: points(browser)[-1] == 200 * SIZE, "the new point, without a click")
    assert browser.script("return document.activeElement.id") == "mark"
    field.send_keys("rd")
    assert field.get_attribute("value") == "half a word"
    assert browser.script(PLACES) == before
    assert browser.script("return document.querySelector('.timeline canvas') === window.canvas")
    assert "live 200.0K" in browser.text(".timeline-note")
    # The profile is that of the moment at which it was read, until somebody asks for now.
    assert live(browser) == "100.0K"
    browser.wait("#now").click()
    wait_until(lambda: live(browser) == "200.0K", "the profile of now")
    assert browser.script("return document.activeElement.id") == "now"
    browser.open("about:blank")


# Answers wait for heaptap.letGo() from now on.
HOLD_ANSWERS = """
heaptap.held = 0;
const gate = new Promise(resolve => { heaptap.letGo = resolve; });
const read = window.fetch;
window.fetch = async (...words) => { const answer = await read(...words); heaptap.held++; await gate; return answer; };
"""


def test_an_answer_that_comes_when_nobody_looks(lab, browser, daemon):
    puppet = start(lab, daemon)
    keep_changing(daemon, puppet, 100)
    browser.open(of_all(daemon, puppet))
    browser.wait(".timeline canvas")
    browser.script(HOLD_ANSWERS)
    wait_until(lambda: browser.script("return heaptap.held") > 0, "an answer is on its way")
    set_visibility(browser, "hidden")
    shown = points(browser)
    browser.driver.execute_async_script("heaptap.letGo(); setTimeout(arguments[0])")
    assert points(browser) == shown
    set_visibility(browser, "visible")
    wait_until(lambda: points(browser) != shown, "it reads on")
    browser.open("about:blank")


def test_no_new_points_for_nobody(lab, browser, daemon):
    """Neither while the page is hidden, nor while a moment or a range of the past is chosen."""
    puppet = start(lab, daemon)
    keep_changing(daemon, puppet, 100)
    keep_changing(daemon, puppet, 200)
    browser.open(of_all(daemon, puppet))
    browser.wait(".timeline canvas")
    browser.script(COUNT_READINGS)
    wait_until(lambda: readings(browser) > 0, "the page reads")
    set_visibility(browser, "hidden")
    settled = readings(browser)
    wait_later(daemon, puppet.pid, 3)
    assert readings(browser) == settled
    set_visibility(browser, "visible")
    wait_until(lambda: readings(browser) > settled, "it reads on")

    set_visibility(browser, "hidden")
    held = points(browser)
    drag(browser, held.index(100 * SIZE), len(held) - 1 - held[::-1].index(200 * SIZE))
    wait_until(lambda: "from=" in browser.driver.current_url and live(browser).startswith("+"), "a range")
    set_visibility(browser, "visible")
    link = browser.driver.current_url
    chosen = points(browser)
    settled = readings(browser)
    wait_later(daemon, puppet.pid, 3)
    assert (readings(browser), points(browser), browser.driver.current_url) == (settled, chosen, link)
    browser.wait("#now").click()
    wait_until(lambda: readings(browser) > settled, "now, it reads on")
    browser.open("about:blank")
