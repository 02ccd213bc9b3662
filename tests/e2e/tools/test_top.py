# SPDX-License-Identifier: Apache-2.0
"""heaptap top in a terminal of tmux: a person types keys and reads the screen.

Recording is exact; error bounds: none.
"""

import html
import os
import subprocess

import pytest

import pictures
from harness import HEAPTAP, wait_until
from history import wait_known
from lab import assert_one_clear_line
from security import keeping_puppet

DAEMON = ["--exact", "--history-interval", "1s"]
EXACT = {"MALLOC_CONF": "prof:true,lg_prof_sample:0"}


class Terminal:
    """A terminal of its own tmux server."""

    def __init__(self, folder, *command, width=80, height=24, kind="screen", end="; echo status $?; read line"):
        self._socket = os.path.join(folder, "tmux")
        words = " ".join(map(str, command))
        # The shell survives the terminal's C-c, which goes to all of its processes.
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height),
                   "-e", "LC_ALL=C.UTF-8", "-e", "HEAPTAP_TEST=1", f"export TERM={kind}; trap : INT; {words}{end}")

    def _tmux(self, *words):
        # readline, which newer versions of pytest load, sets LINES and COLUMNS behind Python's back. A program that has them
        # is not told of other sizes.
        env = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
        done = subprocess.run(["tmux", "-S", self._socket, *words], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type(self, *keys):
        self._tmux("send-keys", *keys)

    def write(self, text):
        self._tmux("send-keys", "-l", text)

    def screen(self):
        return self._tmux("capture-pane", "-p")

    def wait(self, text):
        try:
            wait_until(lambda: text in self.screen(), f"the screen shows {text!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows:\n{self.screen()}") from None
        return self.screen()

    def wait_without(self, text):
        wait_until(lambda: text not in self.screen(), f"the screen does not show {text!r}")

    def resize(self, width, height):
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def end(self):
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False)


@pytest.fixture
def terminal(lab):
    opened = []

    def open_terminal(daemon, *arguments, **options):
        opened.append(Terminal(lab.folder, HEAPTAP, "top", "--delay", "0.2", "--socket", daemon.socket, *arguments, **options))
        return opened[-1]
    yield open_terminal
    for each in opened:
        each.end()


@pytest.fixture
def puppets(lab, daemon):
    started = [keeping_puppet(lab, env=EXACT) for _ in range(2)]
    for number, puppet in enumerate(started):
        daemon.wait_recorded(puppet.pid)
        puppet.ask(f"keep {100 * (number + 1)} 10000")
    # The collector's list of processes may be one of a moment ago.
    daemon.settle()
    return started


def pids(screen):
    """The PIDs of the rows of puppets."""
    return [int(line.split()[0]) for line in screen.splitlines() if " puppet" in line]


def draw(screen, path):
    """A picture of a screen, for README."""
    lines = screen.splitlines()
    width, height = 8.4 * 80 + 24, 17 * len(lines) + 24
    rows = "".join(f'<text x="12" y="{26 + 17 * i}" xml:space="preserve">{html.escape(line)}</text>'
                   for i, line in enumerate(lines))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}">'
                   f'<rect width="100%" height="100%" rx="8" fill="#15171a"/>'
                   f'<g font-family="monospace" font-size="14" fill="#e8e6e1">{rows}</g></svg>\n')


def test_keys(lab, daemon, puppets, terminal):
    top = terminal(daemon)
    small, large = (puppet.pid for puppet in puppets)
    top.wait(f"{large} puppet")
    wait_until(lambda: pids(top.screen()) == [large, small], "the larger one comes first")
    top.type("r")
    wait_until(lambda: pids(top.screen()) == [small, large], "reversed")
    top.type("r", "/")
    top.write("nobody")
    top.wait("no process has such a name")
    top.type("Escape")
    wait_until(lambda: pids(top.screen()) == [large, small], "all again")
    top.type("h")
    top.wait("write a dump of the process")
    top.type("q")
    top.wait(f"{large} puppet")
    top.type("Enter")
    screen = top.wait("who holds most:")
    assert f"process {large}" in screen and "main" in screen
    top.type("Escape")
    screen = top.wait(f"{small} puppet")
    draw(screen, pictures.path_of("top.svg"))
    top.type("d")
    top.wait("wrote ")
    wait_until(lambda: [dump for dump in daemon.dumps() if dump.pid == large], "the dump is there")
    top.type("m")
    top.write("before lunch")
    top.wait("with: before lunch")
    wait_known(daemon, large)
    top.type("Enter")
    top.wait("marked")
    assert "mark of" in daemon.client("history", large) and "before lunch" in daemon.client("history", large)
    top.type("q")
    assert "status 0" in top.wait("status")


def test_growth_and_pause(lab, daemon, puppets, terminal):
    top = terminal(daemon, "--sort", "growth")
    top.wait("GROWTH/mv")
    small, large = puppets
    top.wait(f"{small.pid} puppet")
    for puppet in puppets:
        wait_known(daemon, puppet.pid)  # what grew before is not growth
    small.ask("keep 3000 10000")
    wait_until(lambda: "+" in top.screen() and pids(top.screen())[:1] == [small.pid], "what grows comes first")
    top.type("Space")
    screen = top.wait("PAUSED")
    row = next(line for line in screen.splitlines() if f"{large.pid} puppet" in line)
    large.ask("keep 9000 10000")
    assert row.split()[2] in top.screen()
    top.type("Space")
    wait_until(lambda: pids(top.screen())[:1] == [large.pid], "it goes on")


@pytest.mark.parametrize("width, height, columns", (
    (40, 10, "PID COMMAND LIVEv GROWTH/"), (20, 5, "PID COMMAND"),
    (200, 50, "PID COMMAND LIVEv GROWTH/m RSS PEAK ALLOC/s LOST")))
def test_sizes(lab, daemon, puppets, terminal, width, height, columns):
    """Both rows, with the columns that there is room for; keys in the last line."""
    top = terminal(daemon)
    top.wait("puppet")
    rows = [puppets[1].pid, puppets[0].pid]
    top.resize(width, height)

    def is_drawn():
        head, titles, *lines = top.screen().split("\n")[:height]
        return (head.startswith("heaptap top") and titles.split()[:len(columns.split())] == columns.split()
                and pids("\n".join(lines)) == rows and lines[-1].startswith("Enter "))
    wait_until(is_drawn, "drawn again")
    top.type("Enter")
    top.wait(f"(PID {rows[0]})")
    top.type("Escape", "q")
    top.wait("status 0")


@pytest.mark.parametrize("kind", ("vt100", "ansi", "xterm-256color"))
def test_kinds_of_terminals(lab, daemon, puppets, terminal, kind):
    """The same screen in each, without what the terminal does not understand."""
    top = terminal(daemon, kind=kind)
    wait_until(lambda: pids(top.screen()) == [puppets[1].pid, puppets[0].pid], "both rows")
    head, *lines = top.screen().splitlines()
    assert head.startswith("heaptap top") and any(line.split()[:2] == ["PID", "COMMAND"] for line in lines), top.screen()
    assert all(character.isprintable() for line in lines for character in line)
    top.type("q")
    screen = top.wait("status 0")
    assert bool(pids(screen)) == (kind in ("vt100", "ansi")), "others have a second screen, and show the first one again"


def test_one_process(lab, daemon, puppets, terminal):
    top = terminal(daemon, str(puppets[0].pid))
    screen = top.wait("who holds most:")
    assert f"process {puppets[0].pid}" in screen and "keep_blocks" in screen
    assert str(puppets[1].pid) not in screen
    top.type("q", "q")
    top.wait("status 0")


def test_once(lab, daemon, puppets):
    output = daemon.client("top", "--once")
    assert pids(output) == [puppets[1].pid, puppets[0].pid]
    assert "who holds most:" in daemon.client("top", "--once", puppets[0].pid)


def test_the_daemon_goes_away(lab, start_daemon, terminal):
    daemon = start_daemon("--exact")
    puppet = keeping_puppet(lab, env=EXACT)
    daemon.wait_recorded(puppet.pid)
    top = terminal(daemon)
    top.wait("puppet")
    daemon.kill()
    screen = top.wait("no daemon at")
    assert daemon.socket[:40] in screen.replace("\n", "") and pids(screen) == [puppet.pid], "the last figures stay"
    daemon.start()
    # The last line has the keys again, without a key.
    screen = top.wait("Enter paths")
    assert "no daemon at" not in screen
    puppet.ask("keep 100 100000")
    wait_until(lambda: any(line.split()[0] == str(puppet.pid) and "M" in line for line in top.screen().splitlines()
                           if " puppet" in line), "new figures")
    top.type("q")
    top.wait("status 0")


def test_the_terminal_is_restored(lab, daemon, puppets, terminal):
    """After a signal, the terminal echoes again."""
    top = terminal(daemon, end="; stty -a | tr ' ;' '\\n\\n' | grep -x -e echo -e -echo; read line")
    top.wait("puppet")
    top.type("C-c")
    wait_until(lambda: {"echo", "-echo"} & set(top.screen().split()), "the shell's answer")
    assert "-echo" not in top.screen().split()
    assert not pids(top.screen()), "the screen is as it was before"


def test_bad_input(lab, daemon):
    assert_one_clear_line(lab.heaptap("top", "--socket", daemon.socket), 1, "--once")
    assert_one_clear_line(lab.heaptap("top", "--once", "--socket", lab.path("none")), 1, "no daemon")
    assert_one_clear_line(lab.heaptap("top", "--once", "nobody", "--socket", daemon.socket), 3, "nobody")
    assert_one_clear_line(lab.heaptap("top", "--sort", "x"), 2, "--sort")


@pytest.mark.parametrize("kind", ("nonsense", "dumb"))
def test_a_terminal_that_cannot_draw(lab, daemon, terminal, kind):
    top = terminal(daemon, kind=kind)
    assert "status 1" in top.wait("status") and f"the terminal {kind} cannot be drawn on" in top.screen()
