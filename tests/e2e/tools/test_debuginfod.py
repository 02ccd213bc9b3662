# SPDX-License-Identifier: Apache-2.0
"""Debug information from servers, with a server of the test's own."""

import os
import re
import shutil
import signal
import subprocess

import pytest

from debuginfod import DebugServer, build_id_of
from harness import target, wait_until
from lab import assert_one_clear_line
from pprof_bytes import place_in
from terminal import Terminal

DAEMON = ["--exact"]
LIBRARY = "/usr/lib/x86_64-linux-gnu/libdebuginfod.so.1"
# With the files of their lines, which only debug information has.
NAMES = ("do_something wiki_leak.c:", "do_something_else wiki_leak.c:")


@pytest.fixture
def server():
    made = DebugServer()
    yield made
    made.end()


class Places:
    """A stripped program, its debug file, and the environment of a user who asks the server."""

    def __init__(self, lab, server, name="wiki_leak"):
        self.program = lab.copy(name, "stripped")
        self.whole, self.debug = target(name), lab.path("stripped.debug")
        self.build_id = build_id_of(self.program)
        subprocess.run(["objcopy", "--only-keep-debug", self.program, self.debug], check=True)
        subprocess.run(["strip", self.program], check=True)
        self.cache = lab.path("cache")
        self.env = {"DEBUGINFOD_URLS": server.url, "DEBUGINFOD_CACHE_PATH": self.cache}


@pytest.fixture
def places(lab, server):
    return Places(lab, server)


@pytest.fixture
def dump(lab, places):
    lab.heaptap("run", "--exact", "--", places.program).ends()
    return lab.dumps()[0].path


def report(lab, places, *arguments, said=()):
    """The output of a command that succeeds and says these lines."""
    session = lab.heaptap("report", *arguments, env=places.env)
    session.records = False
    session.ends()
    assert len(session.lines()) == len(said)
    for line, words in zip(session.lines(), said):
        assert re.search(words, line), line
    return session.stdout()


def test_names_and_lines(lab, server, places, dump):
    server.serve(places.build_id, places.debug)
    assert not any(name in report(lab, places, dump) for name in NAMES)
    assert server.requests == []  # off by default
    text = report(lab, places, "--debuginfod", dump)
    assert all(name in text for name in NAMES)
    # Libraries may be asked for too.
    assert server.requests.count(f"/buildid/{places.build_id}/debuginfo") == 1
    assert os.listdir(os.path.join(places.cache, places.build_id)) != []
    asked = len(server.requests)
    assert report(lab, places, "--debuginfod", dump) == text
    assert len(server.requests) == asked  # from the cache


@pytest.mark.parametrize("served", ("other", "text", "nothing"))
def test_what_servers_send_is_checked(lab, server, places, dump, served):
    """A file of another build-id or no file at all: the report is as without it."""
    if served == "other":
        server.serve(places.build_id, target("puppet"))
    elif served == "text":
        server.files[f"/buildid/{places.build_id}/debuginfo"] = b"<html>" * 100000
    assert report(lab, places, "--debuginfod", dump) == report(lab, places, dump)


def test_the_program_of_another_machine(lab, server, places):
    """A profile that knows files by their build-id: the program itself is fetched, too."""
    pprof, moved = lab.path("profile.pb"), lab.path("moved")
    with open(pprof, "wb") as file:
        file.write(place_in(places.program, places.whole, "do_something", places.build_id))
    shutil.move(places.program, moved)
    server.serve(places.build_id, places.debug)
    server.serve(places.build_id, moved, "executable")
    assert NAMES[0] not in report(lab, places, pprof, said=["missing here or have changed"])
    assert NAMES[0] in report(lab, places, "--debuginfod", pprof)
    # Of another build: it is not taken.
    shutil.rmtree(places.cache)
    server.serve(places.build_id, target("puppet"), "executable")
    assert NAMES[0] not in report(lab, places, "--debuginfod", pprof, said=["missing here or have changed"])


def test_dumps_with_symbols(lab, server, daemon):
    places = Places(lab, server, "puppet")
    server.serve(places.build_id, places.debug)
    puppet = lab.preloaded(places.program, talks=True)
    puppet.answer()
    puppet.ask("keep 100 65536")
    daemon.wait_recorded(puppet.pid)
    arguments = ("dump", puppet.pid, "--socket", daemon.socket, "-o", "-")
    for more, known in (((), False), (("--debuginfod",), True)):
        session = lab.heaptap(*arguments, "--symbolized", *more, env=places.env)
        session.records = False
        session.ends()
        assert ("keep_blocks" in session.stdout()) == known
    assert_one_clear_line(lab.heaptap(*arguments, "--debuginfod", env=places.env), 2, "needs --symbolized")


def test_no_server(lab, server, places, dump):
    """What cannot be asked costs names and a message, not the report."""
    places.env["DEBUGINFOD_URLS"] = "http://127.0.0.1:1"
    session = lab.heaptap("report", "--debuginfod", dump, env=places.env)
    session.records = False
    session.ends()
    lines = session.lines()
    assert 1 <= len(lines) <= 3
    assert any(f"stripped (build-id {places.build_id}): Connection refused" in line for line in lines)
    assert "live" in session.stdout()


def test_bad_use(lab, places, dump):
    for command in (["report", dump], ["view", dump], ["diff", dump, dump],
                    ["dump", "1", "--symbolized", "-o", lab.path("x")]):
        for urls in (None, "", "  "):
            env = {} if urls is None else {"DEBUGINFOD_URLS": urls}
            assert_one_clear_line(lab.heaptap(*command, "--debuginfod", env=env), 2, "DEBUGINFOD_URLS is not set")
    without = ["unshare", "-m", "sh", "-c", f'mount --bind /dev/null {LIBRARY} && exec "$@"', "sh"]
    session = lab.heaptap("report", "--debuginfod", dump, env=places.env, before=without)
    assert_one_clear_line(session, 1, "install libdebuginfod1")
    assert not [name for name in os.listdir(lab.folder) if name.endswith(".html")]


def test_interrupt(lab, server, places, dump):
    server.serve(places.build_id, places.debug)
    server.may_answer.clear()
    session = lab.heaptap("report", "--debuginfod", dump, env=places.env)
    session.records = False
    wait_until(lambda: server.requests, "the server is asked")
    session.signal(signal.SIGINT)
    assert session.wait() == -signal.SIGINT
    assert session.stdout() == ""


def test_a_terminal_sees_how_far_it_is(lab, server, places, dump):
    server.serve(places.build_id, places.debug)
    server.may_answer.clear()
    with Terminal(["report", "--debuginfod", dump], lab.folder, places.env) as terminal:
        terminal.wait_for(r"\rheaptap: fetching debug information of stripped: [0-9.]+[A-Z]* of [0-9.]+[A-Z]*\x1b\[K")
        server.may_answer.set()
        assert terminal.wait() == 0
        # The line is gone before the report begins.
        last = terminal.text().rindex("\r\x1b[K")
        assert "fetching" not in terminal.text()[last:]
        assert all(name in terminal.text()[last:] for name in NAMES)
