# SPDX-License-Identifier: Apache-2.0
"""The client commands without a daemon: figures from the process itself, orders to its control block, and one clear line
for the rest."""

import json
import re
import signal
import subprocess

import pytest

from harness import HEAPTAP, PATIENCE_SECONDS, environment


def command(lab, *arguments):
    """Runs a command with a socket that does not exist."""
    session = lab.heaptap(*arguments, "--socket", lab.path("no-socket"))
    session.records = False
    session.wait()
    return session


def listed_by(lab, *arguments):
    """heaptap list, at the usual socket: at another one it expects a daemon."""
    session = lab.heaptap("list", *arguments)
    session.records = False
    session.ends()
    return session


def stats(lab, pid):
    session = command(lab, "stats", pid, "--json")
    session.ends()
    return json.loads(session.stdout())["allocator"]


@pytest.mark.without_bpf
def test_list(lab):
    puppet = lab.preloaded_puppet()
    stranger = lab.program("sleep", "1000")
    listed = listed_by(lab, "--json")
    assert len(listed.stderr().splitlines()) == 1
    assert "no daemon" in listed.stderr()
    processes = {process["pid"]: process for process in json.loads(listed.stdout())["processes"]}
    assert stranger.pid not in processes
    mine = processes[puppet.target_pid]
    assert (mine["command"], mine["lg_sample"], mine["active"]) == ("puppet", 19, True)
    assert isinstance(mine["mapped"], int)
    lines = listed_by(lab).stdout().splitlines()
    assert lines[0].split() == ["PID", "COMMAND", "LG", "ACTIVE", "MAPPED", "COLLECTOR", "ALLOCATOR"]
    row = next(line.split() for line in lines if line.split()[0] == str(puppet.target_pid))
    assert row[1:4] == ["puppet", "19", "on"]
    assert row[5:] == ["-", "heaptap"]


@pytest.mark.without_bpf
@pytest.mark.parametrize("arguments", (["--help"], ["help", "run"], ["list"], ["list", "--json"], ["doctor", "--json"]),
                         ids=" ".join)
def test_output_that_cannot_be_written(lab, arguments):
    """A full disk is a failure with a line, also for JSON output."""
    with open("/dev/full", "wb") as full:
        result = subprocess.run([HEAPTAP, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, cwd=lab.folder,
                                env=environment(lab.folder), timeout=PATIENCE_SECONDS, check=False)
    assert result.returncode == 1, result.stderr
    assert result.stderr.splitlines()[-1] == "heaptap: cannot write the whole output to stdout"


@pytest.mark.without_bpf
def test_orders_reach_the_process(lab):
    puppet = lab.preloaded_puppet()
    pid = puppet.target_pid
    for order, field, value in ((("active", pid, "off"), "active", False), (("rate", pid, "12"), "lg_sample", 12),
                                (("active", pid, "on"), "active", True),
                                (("rate", pid, "default"), "lg_sample", 19)):
        session = command(lab, *order)
        notice = f"New allocations of process {pid} are not recorded until heaptap active {pid} on; frees still are.\n"
        said = notice if order[0] == "active" and order[2] == "off" else ""
        assert (session.wait(), session.stdout()) == (0, said), session.stderr()
        assert stats(lab, pid)[field] == value
    text = command(lab, "stats", pid).stdout()
    assert re.search(r"(?m)^command +puppet$", text), text
    assert re.search(r"(?m)^prof.active +on$", text), text


@pytest.mark.without_bpf
def test_a_command_names_a_process(lab):
    """As ps -o comm shows it, where a PID is expected; two of that name are told apart by their PIDs."""
    pids = [lab.preloaded_puppet("twin").target_pid]
    assert command(lab, "stats", "twin").stdout().splitlines()[0].split() == ["pid", str(pids[0])]
    command(lab, "rate", "twin", "12").ends()
    command(lab, "active", "twin", "off").ends()
    assert (stats(lab, pids[0])["lg_sample"], stats(lab, pids[0])["active"]) == (12, False)
    pids.append(lab.preloaded_puppet("twin").target_pid)
    twice = command(lab, "stats", "twin")
    twice.ends(2)
    (line,) = twice.lines()
    assert line.endswith(f"are called twin: choose one of the PIDs {min(pids)}, {max(pids)}")


@pytest.mark.without_bpf
def test_the_socket_of_the_environment(lab):
    """HEAPTAP_SOCKET is the socket of all commands that have --socket, which comes first."""
    path = lab.path("somewhere")
    for arguments, named in ((["list"], path), (["dump", "1"], path), (["list", "--socket", "/other"], "/other")):
        session = lab.heaptap(*arguments, env={"HEAPTAP_SOCKET": path})
        session.records = False
        session.ends(1)
        (line,) = session.lines()
        assert line.startswith(f"heaptap: no daemon at {named}; ")


@pytest.mark.without_bpf
def test_errors_are_one_line(lab):
    gone = lab.program("true")
    gone.wait()
    stranger = lab.program("sleep", "1000")
    for status, arguments, words in (
            (3, ("stats", gone.pid), "no process"), (3, ("active", gone.pid, "on"), "no process"),
            (3, ("rate", gone.pid, "12"), "no process"), (3, ("stats", stranger.pid), "LD_PRELOAD"),
            (3, ("active", stranger.pid, "on"), "LD_PRELOAD"), (3, ("rate", stranger.pid, "12"), "LD_PRELOAD"),
            (1, ("list",), "no daemon at"), (1, ("list", "--ended"), "heaptap daemon"),
            (1, ("report", "missing.heap"), "there is no file missing.heap, and no daemon at"),
            (1, ("view", "missing.heap"), "there is no file missing.heap, and no daemon at"),
            (3, ("stats", "nobody"), "is called nobody"), (3, ("rate", "nobody", "12"), "is called nobody"),
            (3, ("active", "nobody", "on"), "is called nobody"), (2, ("diff", "a@now", "a@2m"), "earlier moment first"),
            (2, ("report", "a@2m", "--base", "a@now"), "later than"), (1, ("dump", stranger.pid), "heaptap attach -p"),
            (1, ("dump", "--all"), "heaptap daemon"), (1, ("diff", stranger.pid), "heaptap daemon"),
            (2, ("rate", stranger.pid, "47"), "0 to 46"), (2, ("active", stranger.pid, "maybe"), "on nor off"),
            (2, ("dump",), "--all"), (2, ("dump", "1", "2", "-o", "x"), "%p"), (2, ("diff", "x"), "two dumps"),
            (1, ("diff", "none", "none"), "No such file"), (1, ("diff", "/dev/null", "/dev/null"), "empty")):
        session = command(lab, *arguments)
        session.ends(status)
        assert session.stdout() == ""
        assert len(session.stderr().splitlines()) == 1, session.stderr()
        assert words in session.stderr()


def test_another_collector_is_named(lab):
    puppet = lab.preloaded_puppet()
    collector = lab.attach(puppet.target_pid)
    for order in (("active", puppet.target_pid, "off"), ("rate", puppet.target_pid, "12")):
        session = command(lab, *order)
        session.ends(1)
        assert f"recorded by another heaptap (process {collector.pid})" in session.stderr()
    listed = json.loads(listed_by(lab, "--json").stdout())["processes"]
    mine = next(process for process in listed if process["pid"] == puppet.target_pid)
    assert mine["collector_pid"] == collector.pid


def test_diff_of_dumps_names_what_grew(lab):
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 100 64")
    session.signal(signal.SIGUSR1)
    session.wait_said(r"wrote .*\.m0\.heap")
    session.ask("keep 50 1000")
    session.tell("exit 0")
    session.ends()
    before, after = (dump.path for kind in "mf" for dump in lab.dumps(kind=kind))
    document = json.loads(command(lab, "diff", before, after, "--json").stdout())
    grown = document["call_paths"][0]
    assert (grown["bytes"], grown["objects"]) == (50 * 1024, 50)
    names = [name for frame in grown["frames"] for name in frame["names"]]
    assert "main" in names
    text = command(lab, "diff", before, after).stdout()
    assert re.search(r"^  live +\+50\.0K in \+50 objects: 6\.\dK in 10\d objects before, ", text, re.M), text
    assert re.search(r"^   1\. \+50\.0K, \+50 objects, 50 samples changed\n(.*\n)* +main", text, re.M), text
