# SPDX-License-Identifier: Apache-2.0
"""The commands and /metrics show right and consistent figures of the processes that a daemon records.

Recording is exact; error bounds: none.
"""

import collections
import gzip
import json
import os
import re
import signal
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from books import TELLS_MEMORY
from daemons import EXACT
from harness import HEAPTAP, PATIENCE_SECONDS, environment, target, wait_until
from heap_v2 import Dump
from lab import assert_one_clear_line
from symbols import kept, live
from terminal import Terminal

DAEMON = ["--exact", "--rule", "comm=bounded max-live=100"]
LOSSES_ALLOWED = ("live_share",)
BLOCK = 1024  # the usable size of a block of 1000 bytes

# Figures of one process, by their names in `heaptap list --json`.
SERIES = {"live_bytes": "live_bytes", "live_objects": "live_objects", "peak_bytes": "peak_bytes",
          "allocated_bytes": "allocated_bytes_total", "allocated_objects": "allocated_objects_total",
          "samples": "samples_total", "contexts": "contexts"}
FAMILIES = {*SERIES.values(), "sample_period_bytes", "events_lost_total", "build_info", "targets", "events_total",
            "kernel_memory_most_bytes", "agent_ring_fill_ratio", "longest_pause_seconds", "dumps_total",
            "dump_errors_total", "beyond_bound_total", "dump_duration_seconds", "last_dump_timestamp_seconds",
            "unowned_events_lost_total"}
if TELLS_MEMORY:
    FAMILIES.add("kernel_memory_bytes")


@pytest.fixture
def puppet(lab, daemon):
    """A puppet with 100 live blocks, 150 allocated ones, and a peak of 120."""
    puppet = lab.preloaded_puppet(env=EXACT)
    for line in ("keep 20 1000", "drop", "keep 100 1000", "churn 30 1000"):
        puppet.ask(line)
    daemon.wait_recorded(puppet.pid)
    return puppet


def samples(daemon):
    """{family: [(labels, value)]} of /metrics, names without "heaptap_"."""
    found = collections.defaultdict(list)
    for family in text_string_to_metric_families(daemon.get("/metrics").body.decode()):
        for sample in family.samples:
            found[sample.name.removeprefix("heaptap_")].append((sample.labels, sample.value))
    return found


def list_and_metrics(daemon):
    """The list and the metrics of one moment: call paths may still be merged."""
    def same():
        before, found, after = daemon.processes(), samples(daemon), daemon.processes()
        return before == after and (before, found)
    return wait_until(same, "nothing changes")


def test_list_has_the_truth(daemon, puppet):
    entry = daemon.processes()[puppet.pid]
    assert (entry["live_objects"], entry["live_bytes"]) == (100, 100 * BLOCK)
    assert (entry["allocated_objects"], entry["allocated_bytes"]) == (150, 150 * BLOCK)
    assert (entry["samples"], entry["lg_sample"], entry["losses"]) == (150, 0, {})
    # Two call paths; until their unwind tables are loaded, each sample has its own.
    assert entry["contexts"] >= 2
    assert (entry["command"], entry["executable"], entry["owner"]) == ("puppet", os.path.realpath(target("puppet")), 0)
    row = daemon.row(puppet.pid)
    shown = {"COMMAND": "puppet", "LIVE": "100.0K", "SAMPLES": "150", "LG": "0", "LOSSES": "0"}
    assert {name: row[name] for name in shown} == shown


def test_list_fits_into_the_terminal(lab, daemon, puppet):
    """What people ask for least goes first; a pipe gets everything."""
    everything = daemon.client("list").splitlines()[0].split()
    for columns, gone in ((200, set()), (80, {"CONTEXTS", "SAMPLES", "LG", "ACTIVE"})):
        with Terminal(["list", "--socket", daemon.socket], lab.folder, columns=columns) as terminal:
            assert terminal.wait() == 0
            shown = terminal.text().splitlines()
        assert max(map(len, shown)) <= columns
        assert set(everything) - set(shown[0].split()) <= gone
        assert f"{puppet.pid}  puppet" in shown[1] and {"LIVE", "PEAK", "RSS", "LOSSES"} <= set(shown[0].split())
        assert columns > 80 or "CONTEXTS" not in shown[0]


def test_metrics_have_what_list_has(lab, daemon, puppet):
    bounded = lab.preloaded_puppet("bounded", env=EXACT)
    daemon.wait_recorded(bounded.pid)  # its rule holds from then on
    bounded.ask("keep 500 1000")
    daemon.client("dump", puppet.pid)
    processes, found = list_and_metrics(daemon)
    for process in (puppet, bounded):
        entry = processes[process.pid]
        labels = {"pid": str(process.pid), "command": entry["command"]}
        for name, family in SERIES.items():
            assert (labels, entry[name]) in found[family], name
        assert (labels, 1 << entry["lg_sample"]) in found["sample_period_bytes"]
    assert processes[bounded.pid]["losses"] == {"live_share": 400}
    assert ({"pid": str(bounded.pid), "command": "bounded", "reason": "live_share"}, 400) in found["events_lost_total"]
    assert not [labels for labels, value in found["events_lost_total"] if labels["pid"] == str(puppet.pid) and value]

    (dump,) = daemon.dumps(puppet.pid)
    assert ({"trigger": "manual"}, 1) in found["dumps_total"]
    ((_, written),) = found["last_dump_timestamp_seconds"]
    assert abs(written - os.stat(dump.path).st_mtime) < 1
    ((_, count),) = found["dump_duration_seconds_count"]
    assert count == sum(value for _, value in found["dumps_total"])
    assert found["dump_errors_total"] == [({}, 0)]
    assert found["targets"][0][1] >= 2
    # 128 MiB of stacks, as many bytes of live objects, and rings.
    most = found["kernel_memory_most_bytes"][0][1]
    assert 256 << 20 < most < 2 << 30
    if TELLS_MEMORY:
        assert 1 << 20 < found["kernel_memory_bytes"][0][1] < most
    assert 0 <= found["agent_ring_fill_ratio"][0][1] <= 1
    assert sum(value for _, value in found["events_total"]) > 0
    version = subprocess.run([HEAPTAP, "--version"], capture_output=True, text=True, check=True).stdout
    assert found["build_info"][0][0]["version"] in version
    # Any other family is new and needs a check here.
    assert {re.sub("_seconds_(sum|count)$", "_seconds", name) for name in found} == FAMILIES


def test_a_command_names_a_process(lab, daemon):
    """As ps -o comm shows it, where a PID is expected."""
    one = lab.preloaded_puppet("single", env=EXACT)
    one.ask("keep 10 1000")
    daemon.wait_recorded(one.pid)
    assert json.loads(daemon.client("stats", "single", "--json"))["process"]["pid"] == one.pid
    daemon.client("rate", "single", "12")
    assert daemon.processes()[one.pid]["lg_sample"] == 12
    daemon.client("active", "single", "off")
    assert daemon.client("dump", "single").strip() in [dump.path for dump in daemon.dumps(one.pid)]
    assert daemon.client("diff", "single", "--seconds", "0.1").startswith(f"single (PID {one.pid}) in ")
    one.signal(signal.SIGKILL)


def test_printed_commands_can_be_copied(lab, daemon, puppet):
    """They name the socket, which is not the usual one; with HEAPTAP_SOCKET they need not."""
    for env, words in ({}, f" --socket {daemon.socket}"), ({"HEAPTAP_SOCKET": daemon.socket}, ""):
        socket = () if env else ("--socket", daemon.socket)
        session = lab.heaptap("report", puppet.pid, *socket, env=env)
        session.records = False
        session.ends()
        commands = session.stdout().split("\nnext:\n")[1].splitlines()
        assert [line.strip() for line in commands] == [
            f"heaptap report --tree {puppet.pid}{words}", f"heaptap diff {puppet.pid} --seconds 60{words}",
            f"heaptap view {puppet.pid}{words}"]


def test_a_process_that_has_ended(lab, daemon):
    """The message for a name that is not recorded any more says when it ended, and what is left of it."""
    for way, how, left in (("exit 0", "exit 0", r"its last moment: heaptap report \d+@last --socket "),
                           ("abort", "signal 6", "its last dump: heaptap report /")):
        name = way.replace(" ", "")
        gone = lab.preloaded_puppet(name, env=EXACT)
        gone.ask("keep 10 1000")
        daemon.wait_recorded(gone.pid)
        if way == "abort":
            gone.signal(signal.SIGABRT)
        else:
            gone.tell(way)
        gone.wait()
        assert daemon.ended()[0]["pid"] == gone.pid
        for word in (name, gone.pid):
            session = lab.heaptap("report", word, "--socket", daemon.socket, cwd="/")
            assert_one_clear_line(session, 3, rf"heaptap: {name} \(PID {gone.pid}\) ended \d+s ago \({how}\); {left}")


def test_stats(daemon, puppet):
    document = json.loads(daemon.client("stats", puppet.pid, "--json"))
    entry = daemon.processes()[puppet.pid]
    for name in (*SERIES, "pid", "command", "lg_sample", "losses"):
        assert document["process"][name] == entry[name], name
    assert document["allocator"]["lg_sample"] == 0
    assert document["allocator"]["statistics"]["sampled_objects"] == 100
    text = dict(re.split(r" {2,}", line, maxsplit=1) for line in daemon.client("stats", puppet.pid).splitlines())
    shown = {"live": "100.0K in 100 objects", "allocated": "150.0K in 150 objects", "samples": "150"}
    assert {name: text[name] for name in shown} == shown


def test_orders(lab, daemon):
    """Daemon and process show the same state."""
    process = lab.preloaded_puppet(env={"MALLOC_CONF": "prof:true,lg_prof_sample:0"})
    process.ask("keep 1 1000")
    daemon.wait_recorded(process.pid)
    for word, value in (("off", "false"), ("on", "true")):
        assert ("are not recorded until" in daemon.client("active", process.pid, word)) == (word == "off")
        assert process.ask("read bool prof.active") == f"0 {value}"
        assert daemon.row(process.pid)["ACTIVE"] == word
    # The process can switch sampling itself, without an event.
    assert process.ask("write bool prof.active false") == "0"
    wait_until(lambda: daemon.row(process.pid)["ACTIVE"] == "off", "list shows what the process has said")
    assert process.ask("write bool prof.active true") == "0"
    assert daemon.client("rate", process.pid, "12") == ""
    assert process.ask("read size prof.lg_sample") == "0 12"
    assert daemon.processes()[process.pid]["lg_sample"] == 12
    daemon.client("rate", process.pid, "default")
    assert daemon.processes()[process.pid]["lg_sample"] == 0


def test_dump_all(lab, daemon, puppet):
    """Into the daemon's folder, and into the user's own files, by PID."""
    other = lab.preloaded_puppet(env=EXACT)
    other.ask("keep 7 1000")
    daemon.wait_recorded(other.pid)
    paths = daemon.client("dump", "--all").splitlines()
    for process, objects in ((puppet, 100), (other, 7)):
        (dump,) = daemon.dumps(process.pid)
        assert dump.path in paths
        assert kept(dump.read()) == objects
    daemon.client("dump", "--all", "-o", lab.path("mine.%p"))
    assert [kept(Dump(lab.path(f"mine.{process.pid}"))) for process in (puppet, other)] == [100, 7]


@pytest.mark.parametrize("form, pattern", (
    ("heap_v2", rb"heap_v2/1\n"), ("gperftools", rb"heap profile: +100: +102400 \["),
    ("collapsed", rb"(?m)\A(.*\n)*.*;main;obey;keep_blocks 102400$"), ("jeprof", rb"--- symbol\nbinary=puppet\n")),
    ids=lambda value: value if isinstance(value, str) else "")
def test_forms_of_a_dump(lab, daemon, puppet, form, pattern):
    daemon.client("dump", puppet.pid, "--format", form, "-o", lab.path("dump"))
    with open(lab.path("dump"), "rb") as file:
        assert re.match(pattern, file.read())


def test_a_dump_for_go_tool_pprof(lab, daemon, puppet):
    """The binary format."""
    daemon.client("dump", puppet.pid, "--format", "pprof", "-o", lab.path("dump"))
    with gzip.open(lab.path("dump")) as file:
        assert b"keep_blocks" in file.read()


def test_diff_of_some_seconds(lab, daemon, puppet):
    """Shows exactly what grew during the given seconds."""
    diff = subprocess.Popen([HEAPTAP, "diff", str(puppet.pid), "--seconds", "1", "--json", "--socket", daemon.socket],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(lab.folder))
    grown = 0
    while diff.poll() is None:
        puppet.ask("keep 10 3000")
        grown += 10
    output, errors = diff.communicate(timeout=PATIENCE_SECONDS)
    assert diff.returncode == 0, errors
    paths = json.loads(output)["call_paths"]
    (path,) = [path for path in paths if "keep_blocks" in str(path["frames"])]
    assert 0 < path["objects"] <= grown
    assert path["bytes"] == path["objects"] * 3072
    assert live(Dump(snapshot(lab, daemon, puppet)), "keep_blocks")[0] == 100 + grown


def snapshot(lab, daemon, puppet):
    daemon.dump(puppet.pid, lab.path("snapshot"))
    return lab.path("snapshot")


@pytest.mark.whole_machine
def test_list_names_processes_without_the_library(lab, start_daemon):
    """A statically linked program, whose LD_PRELOAD does nothing. A daemon that is restricted expects no library in others."""
    with open(lab.path("main.c"), "w", encoding="ascii") as file:
        file.write("#include <unistd.h>\nint main(void) { return (int)pause(); }\n")
    subprocess.run(["gcc", "-static", "main.c", "-o", "static"], cwd=lab.folder, check=True)
    program = lab.preloaded(lab.path("static"))

    def named(daemon):
        result = subprocess.run([HEAPTAP, "list", "--socket", daemon.socket], env=environment(daemon.folder),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
        return [line for line in result.stderr.splitlines() if f" process {program.pid} " in line]

    everyones = start_daemon(everyone=True)
    assert named(everyones) == [
        f"heaptap: not recorded: process {program.pid} (static) has no library of heaptap, although its LD_PRELOAD names one, "
        "because it is statically linked"]
    everyones.stop()
    assert named(start_daemon()) == []
    program.signal(9)
    program.ends(-9)
