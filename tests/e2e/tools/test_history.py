# SPDX-License-Identifier: Apache-2.0
"""The history of the daemon: what a process held an hour ago, after it has ended.

Recording is exact, so figures of the history are those of the program; error bounds: none.
"""

import json
import math
import os
import re
import shutil

import pytest

from daemons import NOBODY
from harness import target, wait_until
from history import SIZE, document, functions, live, moment, start, wait_known, wait_live, when
from lab import assert_one_clear_line
from security import start_hostile

DAEMON = ["--exact", "--history-interval", "100ms"]


def test_growth_marks_and_end(lab, daemon):
    puppet = start(lab, daemon)
    puppet.ask(f"keep 100 {SIZE}")
    wait_live(daemon, puppet.pid, 100 * SIZE)
    first = when(moment(daemon, puppet.pid))
    assert daemon.client("mark", "release 7") == "" == daemon.client("mark", "of one", puppet.pid)
    puppet.ask(f"keep 400 {SIZE}")
    puppet.ask(f"deep 30 {SIZE}")
    wait_live(daemon, puppet.pid, 530 * SIZE)
    daemon.client("dump", puppet.pid)
    daemon.request("POST", f"/pid/{puppet.pid}/dump")
    wait_until(lambda: any(mark["kind"] == "dump" for mark in document(daemon, puppet.pid)["marks"]), "the dump's mark")
    second = when(moment(daemon, puppet.pid))
    puppet.signal(9)
    puppet.wait()
    wait_until(lambda: document(daemon, puppet.pid)["marks"][-1]["kind"] == "end", "its end is known")

    shown = document(daemon, puppet.pid)
    assert [(mark["kind"], mark["text"]) for mark in shown["marks"] if mark["kind"] != "dump"] == [
        ("start", "puppet"), ("mark", "release 7"), ("mark", "of one"), ("end", "signal 9")]
    # The last point may be of a process whose address space is gone already.
    assert [point["rss_bytes"] for point in shown["points"] if point["rss_bytes"] is not None][-1] > 500 * SIZE
    for point in shown["points"]:
        index = shown["points"].index(point)
        assert point["live_bytes"] == sum(row[2] for row in shown["rows"] if row[0] == index), "rows add up"

    # The views of a moment, by the names of its functions.
    report = json.loads(daemon.client("report", "--json", f"{puppet.pid}@{first}"))
    kept = [path["live"]["bytes"] for path in report["call_paths"]
            if "keep_blocks" in [frame["function"] for frame in path["frames"]]]
    # What lies outside 99 % is in the row of all others.
    assert [size // SIZE for size in kept] in ([100], [99]), report

    def has_names():
        text = daemon.client("diff", f"{puppet.pid}@{first}", f"{puppet.pid}@{second}")
        return "keep_blocks puppet.c:" in text and "keep_deep puppet.c:" in text
    # They are looked up after the points.
    wait_until(has_names, "the paths of both moments have names")
    growth = json.loads(daemon.client("diff", "--json", f"{puppet.pid}@{first}", f"{puppet.pid}@{second}"))
    assert growth["call_paths"][0]["bytes"] // SIZE in (400, 401), growth
    text = daemon.client("history", "puppet")
    assert "end of" in text and "signal 9" in text and "release 7" in text and "keep_blocks" in text, text
    assert "puppet" in daemon.client("history")


def test_scripts_of_one_interpreter_are_services_of_their_own(lab, daemon):
    """Two programs of python add up to nothing that anybody wants to know."""
    work = "import sys; kept = [bytes(60000) for i in range(int(sys.argv[1]))]; print(flush=True); sys.stdin.read()"
    programs = {}
    for name, count in (("orders.py", 10), ("billing.py", 50)):
        with open(lab.path(name), "w", encoding="ascii") as script:
            script.write(work)
        programs[name] = lab.preloaded("/usr/bin/python3", "-u", lab.path(name), count, talks=True)
    session = lab.preloaded("/usr/bin/python3", "-c", work, 1, talks=True)
    for program in (*programs.values(), session):
        wait_known(daemon, program.pid)
    listed = daemon.client("history")
    for name in (*programs, "python3"):
        assert re.search(rf"(?m)^{re.escape(name)} .* 1 +1$", listed), listed
    for name, program in programs.items():
        assert [process["pid"] for process in document(daemon, name)["processes"]] == [program.pid]
    assert [process["pid"] for process in document(daemon, "python3")["processes"]] == [session.pid]


def test_the_table_has_errors_and_the_paths_are_those_of_a_report(lab, daemon):
    """A growth of exact books has no mark, and call paths that differ in lines only are one."""
    puppet = start(lab, daemon)
    puppet.ask(f"keep 10 {SIZE}")
    wait_live(daemon, puppet.pid, 10 * SIZE)
    puppet.ask(f"keep 400 {SIZE}")
    wait_live(daemon, puppet.pid, 410 * SIZE)
    text = daemon.client("history", puppet.pid)
    assert re.search(r"(?m)^TIME +PROCESSES +LIVE +\+- +GROWTH +RSS$", text), text
    assert re.search(r"(?m)^\d\d-\d\d [\d:]+ +1 +410\.0K +0 +(\+|-)", text), text
    grown = text.split("what grew most")[1]
    assert len(re.findall(r"(?m)^  \+[\d.]+K  keep_blocks < ", grown)) == 1, text
    assert "~" not in text and max(map(len, text.splitlines())) <= 80, text


def keep_more_samples(daemon, puppet):
    """Keeps blocks until one more is a sample, and waits until the history has it."""
    def figure():
        return daemon.processes()[puppet.pid]["live_bytes"]

    def grows():
        puppet.ask(f"keep 4 {SIZE}")
        return figure() > before
    before = figure()
    wait_until(grows, "a block is a sample")
    wait_until(lambda: daemon.get(f"/history.json?pid={puppet.pid}").status == 200 and live(daemon, puppet.pid) > before,
               "the history has it")


def test_a_growth_of_few_samples_is_marked(lab, daemon):
    """One sample of a small block has an error as large as its weight."""
    puppet = start(lab, daemon)
    daemon.client("rate", puppet.pid, "16")
    keep_more_samples(daemon, puppet)
    keep_more_samples(daemon, puppet)
    text = daemon.client("history", puppet.pid)
    assert "~ less than twice its standard error" in text, text
    assert re.search(r"(?m)^\d\d-\d\d [\d:]+ .* \+[\d.]+K~ ", text), text
    assert re.search(r"(?m)^  \+[\d.]+K \+- [\d.]+K~  keep_blocks < ", text), text


def test_a_difference_has_the_error_of_two_dumps(lab, daemon):
    """The samples that both moments have add nothing to it, in the history as in dumps."""
    def look(name):
        held = daemon.processes()[puppet.pid]["live_bytes"]
        wait_until(lambda: abs(live(daemon, puppet.pid) - held) < 1000, "the history has it")
        daemon.client("dump", puppet.pid, "-o", lab.path(name))
        return when(moment(daemon, puppet.pid))

    def change(*words):
        answer = json.loads(lab.answer_of("diff", "--json", *words, "--socket", daemon.socket))
        (path,) = [path for path in answer["call_paths"] if ["keep_blocks"] in [frame["names"] for frame in path["frames"]]]
        return [path[name] for name in ("bytes", "objects", "samples", "error")]
    puppet = start(lab, daemon)
    daemon.client("rate", puppet.pid, "12")
    wait_known(daemon, puppet.pid)
    puppet.ask(f"keep 4000 {SIZE}")
    first = look("first")
    puppet.ask(f"keep 1000 {SIZE}")
    second = look("second")
    of_moments = change(f"{puppet.pid}@{first}", f"{puppet.pid}@{second}")
    of_dumps = change(lab.path("first"), lab.path("second"))
    assert of_moments == pytest.approx(of_dumps, rel=0.05), (of_moments, of_dumps)
    # That of all samples, old and new, would be three times as large.
    weight = SIZE / -math.expm1(-SIZE / 4096)
    assert of_moments[3] == pytest.approx(math.sqrt(of_moments[2] * weight * (weight - SIZE)), rel=0.05)
    assert of_moments[2] < 500, of_moments


def test_the_last_moment_of_a_process_that_has_ended(lab, daemon):
    puppet = start(lab, daemon)
    puppet.ask(f"keep 30 {SIZE}")
    wait_live(daemon, puppet.pid, 30 * SIZE)
    puppet.tell("exit 0")
    puppet.wait()
    assert daemon.ended()[0]["pid"] == puppet.pid
    text = daemon.client("report", f"{puppet.pid}@last")
    assert text.startswith(f"{puppet.pid}@last\n  live       30.0K in 30 objects"), text
    assert f"heaptap history {puppet.pid}" in text and "heaptap diff" not in text, text
    wait_until(lambda: document(daemon, puppet.pid)["marks"][-1]["kind"] == "end", "its end is known")
    session = lab.heaptap("report", f"{puppet.pid}@now", "--socket", daemon.socket)
    session.records = False
    assert_one_clear_line(session, 3, rf"no history of process {puppet.pid} at .*: it ended at .* \(exit 0\); its last "
                                      rf"moment is {puppet.pid}@last$")
    assert "0 in 0 objects" in daemon.client("diff", f"{puppet.pid}@last", f"{puppet.pid}@last")


def test_the_short_form_shows_what_grew(lab, daemon):
    puppet = start(lab, daemon)
    puppet.ask(f"keep 10 {SIZE}")
    wait_live(daemon, puppet.pid, 10 * SIZE)
    assert "what grew" not in daemon.client("report", "--top", puppet.pid)
    puppet.ask(f"keep 400 {SIZE}")
    wait_live(daemon, puppet.pid, 410 * SIZE)
    text = daemon.client("report", puppet.pid)
    held, grown = text.split("what grew most in the last ")
    assert re.search(r"(?m)^   1\. 410\.0K, 100\.0%, 410 objects, 410 samples$", held), text
    # The first moment may be before the first blocks, or in the middle of the others.
    ((grew, function),) = re.findall(r"(?m)^   1\. \+(\d+)\.0K, \+\d+ objects, .* changed\n +(\w+) puppet\.c:\d+$", grown)
    assert 0 < int(grew) <= 410 and function == "keep_blocks", text
    # Another process, with one moment at most.
    other = start(lab, daemon)
    assert "in the last" not in daemon.client("report", "--objects", other.pid)


def test_names_survive_an_upgrade(lab, daemon):
    """The program is replaced and its process ends: what was recorded keeps its names."""
    program = lab.copy(target("puppet"), "puppet")
    puppet = lab.preloaded(program, talks=True, env={"MALLOC_CONF": "lg_prof_sample:0"})
    puppet.answer()
    daemon.wait_recorded(puppet.pid)
    puppet.ask(f"keep 10 {SIZE}")
    wait_live(daemon, puppet.pid, 10 * SIZE)
    wait_until(lambda: "keep_blocks" in functions(document(daemon, puppet.pid)), "names are found")
    os.unlink(program)
    shutil.copy("/bin/true", program)
    puppet.ends()
    wait_until(lambda: document(daemon, puppet.pid)["processes"][0]["ended"], "its end is known")
    assert "keep_blocks" in functions(document(daemon, puppet.pid))


def test_processes_of_a_command_add_up(lab, daemon):
    puppets = [start(lab, daemon) for _ in range(3)]
    for puppet in puppets:
        puppet.ask(f"keep 10 {SIZE}")
    for puppet in puppets:
        wait_live(daemon, puppet.pid, 10 * SIZE)
    point = document(daemon, "puppet")["points"][-1]
    assert point["processes"] >= 3 and point["live_bytes"] >= 30 * SIZE


def test_another_user_sees_only_own_processes(lab, daemon):
    root, own = start(lab, daemon), start(lab, daemon, **NOBODY)
    wait_known(daemon, root.pid)
    wait_known(daemon, own.pid)
    daemon.client("mark", "secret", root.pid)
    os.chmod(lab.folder, 0o755)

    def ask(*arguments):
        session = lab.heaptap(*arguments, "--socket", daemon.socket, **NOBODY)
        session.records = False
        session.wait()
        return session
    assert ask("history", own.pid).stdout().startswith("puppet (PID")
    assert_one_clear_line(ask("history", root.pid), 3, f"no history of process {root.pid}")
    everything = ask("history", "puppet", "--json").stdout()
    assert [process["pid"] for process in json.loads(everything)["processes"]] == [own.pid]
    assert "secret" not in everything
    assert ask("mark", "mine", own.pid).stderr() == ""
    assert_one_clear_line(ask("mark", "of all"), 4, "a mark for all processes needs full access")
    assert_one_clear_line(ask("mark", "theirs", root.pid), 3, "is not recorded")


def test_hostile_names(lab, daemon):
    hostile = start_hostile(lab)
    daemon.wait_recorded(hostile.pid)
    wait_known(daemon, hostile.pid)
    daemon.client("mark", "\x1b[31mred\n", hostile.pid)
    for text in (daemon.client("history"), daemon.client("history", hostile.pid),
                 daemon.client("history", hostile.pid, "--json")):
        assert "\x1b" not in text
    assert "\\033[31mred" in daemon.client("history", hostile.pid)


BAD = [
    (["history", "nobody"], 3, "there is no history of nobody; heaptap history lists what there is"),
    (["history", "puppet", "--since", "soon"], 2, "--since soon: expected a moment"),
    (["history", "puppet", "--since", "now"], 2, "--since must be before --until"),
    (["history", "puppet", "--until", "2999-01-01"], 2, "is not in the past"),
    (["history", "puppet", "--since", "10d", "--until", "9d"], 3, "there is no history of puppet between these times"),
    (["report", "puppet@3d"], 3, "there is no history of puppet at "),
    (["report", "puppet@now", "--allocated"], 2, "--allocated: of puppet@now only what is live is known"),
    (["report", "puppet@now", "--freed", "--tree"], 2, "--freed: of puppet@now only what is live is known"),
    (["report", "puppet@now", "--alloc_objects"], 2, "leave out --alloc_objects"),
    (["report", "puppet@soon"], 2, "soon: expected a moment"),
    (["diff", "puppet@1s", "other.prof"], 2, "diff other.prof: expected NAME@MOMENT"),
    (["report", "--base", "puppet@1s", "{pid}"], 2, "a moment with a moment"),
    (["mark", ""], 2, "must have 1 to 200 bytes"),
    (["mark", "x" * 201], 2, "must have 1 to 200 bytes"),
    (["mark", "text", "1"], 3, "process 1 is not recorded"),
]


@pytest.fixture(name="one")
def one_process(lab, daemon):
    puppet = start(lab, daemon)
    wait_known(daemon, puppet.pid)
    return puppet


def test_bad_input(lab, daemon, one):
    for arguments, status, words in BAD:
        words_given = [word.format(pid=one.pid) for word in arguments]
        session = lab.heaptap(*words_given, "--socket", daemon.socket)
        session.records = False
        assert_one_clear_line(session, status, words)


def test_parameters_of_the_endpoint(daemon, one):
    for query in ("pid=x", "pid=0", f"pid={one.pid}&since=x", f"pid={one.pid}&since=nan", f"pid={one.pid}&points=1",
                  f"pid={one.pid}&points=99999", f"pid={one.pid}&at=1e400", f"pid={one.pid}&paths=-1"):
        answer = daemon.get(f"/history.json?{query}")
        assert answer.status == 400 and "must be" in json.loads(answer.body)["error"], (query, answer)
    shown = json.loads(daemon.get(f"/history.json?pid={one.pid}&since=-60&points=2&paths=0").body)
    assert len(shown["points"]) <= 2 and {row[1] for row in shown["rows"]} <= {0}


def test_wrong_options(lab):
    for arguments, words in ((["--history-bytes", "1000"], "expected at least 1M"),
                             (["--history-interval", "1ms"], "expected a duration from 100ms to 10m")):
        session = lab.heaptap("daemon", *arguments)
        session.records = False
        assert_one_clear_line(session, 2, words)
