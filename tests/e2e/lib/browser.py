# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium, without a window: opens pages, uses them like a person, and takes pictures."""

import contextlib

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import harness
import pictures
from harness import wait_until


class Browser:
    def __init__(self, driver):
        self.driver = driver

    def open(self, address):
        self.driver.get("about:blank")  # a new fragment alone would not load the page anew
        self.driver.get(address)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def find(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, selector):
        """The first element, as soon as there is one."""
        wait_until(lambda: self.find(selector), f"the page shows {selector}")
        return self.find(selector)[0]

    def text(self, selector):
        return self.script("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def wait_text(self, selector, part):
        wait_until(lambda: part in self.text(selector), f"{part!r} in {selector}")

    def choose(self, group, value):
        """Clicks a button of a group."""
        self.wait(f'[aria-label="{group}"] [data-value="{value}"]').click()

    def search(self, text):
        field = self.wait("#search")
        field.clear()
        field.send_keys(text)

    def press(self, key):
        ActionChains(self.driver).send_keys(key).perform()

    def keys(self, *names):
        """Presses keys by their names in selenium: "ARROW_DOWN"."""
        for name in names:
            self.press(getattr(Keys, name))

    def chord(self, held, key):
        """Presses a key while another one is held, by its name in selenium."""
        ActionChains(self.driver).key_down(getattr(Keys, held)).send_keys(key).key_up(getattr(Keys, held)).perform()

    def escape(self):
        self.keys("ESCAPE")

    def rows(self, table=""):
        """The rows of all tables, or of this one, as lists of texts."""
        return self.script("return [...document.querySelectorAll(`${arguments[0]} tbody tr`)].map(row => "
                           "[...row.cells].map(cell => cell.textContent))", table)

    def click(self, selector):
        """The first such element, in one step: the page may draw it again at any time."""
        wait_until(lambda: self.script("const found = document.querySelector(arguments[0]); found?.click(); return found !== null",
                                       selector), f"{selector} is there")

    def click_row(self, name):
        """The row whose last cell has this text."""
        self.script("[...document.querySelectorAll('tbody tr')].find(row => row.lastChild.textContent === arguments[0])"
                    ".click()", name)

    def boxes(self, graph=0):
        """{name: (bytes, objects)} of the nodes in a flame graph; of several with one name, the first."""
        return {name: (size, objects) for name, size, objects in reversed(self.script(
            "const {tree} = heaptap.view.graphs.flames[arguments[0]];"
            "return Array.from(tree.name, (name, i) => [tree.texts[name], tree.bytes[i], tree.objects[i]]).slice(1)", graph))}

    def hover_box(self, name, graph=0):
        """Moves the mouse to a box and returns when the graph knows that the mouse is there: boxes move while a page finds
        its shape."""
        found = ("const {tree, graph} = heaptap.view.graphs.flames[arguments[1]];"
                 "const node = tree.name.findIndex(name => tree.texts[name] === arguments[0]);")

        def is_there():
            place = self.script(f"{found} return graph.width === graph.element.clientWidth ? graph.place(node) : null", name, graph)
            if place is None:
                return False  # the graph is drawn when the browser has told its size
            actions = ActionChains(self.driver)
            # A mouse that stays where it is says nothing.
            actions.w3c_actions.pointer_action.move_to_location(int(place["x"]) + 1, int(place["y"]))
            actions.w3c_actions.pointer_action.move_to_location(int(place["x"]), int(place["y"]))
            actions.perform()
            return self.script(f"{found} return graph.hovered === node", name, graph)

        wait_until(is_there, f"the mouse is at {name}")

    def click_box(self, name, graph=0):
        self.hover_box(name, graph)
        actions = ActionChains(self.driver)
        actions.w3c_actions.pointer_action.click()
        actions.perform()

    def resize(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def darken(self, is_dark):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]})

    def shoot(self, name):
        """Keeps a picture for people to look at."""
        assert self.driver.save_screenshot(pictures.path_of(f"{name}.png"))

    def complaints(self):
        """What the console says: errors of scripts, refused loads."""
        return [entry["message"] for entry in self.driver.get_log("browser")
                if "favicon" not in entry["message"] and "chrome://" not in entry["message"]]


@contextlib.contextmanager
def chromium(profile):
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--no-sandbox", "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = Service("/usr/bin/chromedriver")
    driver = webdriver.Chrome(service=service, options=options)
    # A browser takes a second to start, so tests share it.
    harness.spared.add(service.process.pid)
    try:
        browser = Browser(driver)
        browser.resize(1280, 720)
        yield browser
    finally:
        driver.quit()
        harness.spared.discard(service.process.pid)
