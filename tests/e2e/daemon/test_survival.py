# SPDX-License-Identifier: Apache-2.0
"""How a daemon's recording continues, ends, starts again, and is refused."""

import json
import os
import signal
import subprocess

import pytest

import control
import symbols
from daemons import EXACT, Daemon
from descriptors import descriptors
from harness import HEAPTAP, LIBRARY, PATIENCE_SECONDS, wait_until
from lab import assert_one_clear_line

DAEMON = ["--exact"]
KEPT_BYTES = 112  # the usable size of a block of 100 bytes


def recorded_puppet(lab, daemon, kept):
    puppet = lab.preloaded_puppet(env=EXACT)
    puppet.ask(f"keep {kept} 100")
    assert_recorded(daemon, puppet, kept)
    return puppet


def assert_recorded(daemon, puppet, kept):
    """The process is recorded with this many live blocks."""
    entry = daemon.processes()[puppet.pid]
    assert (entry["live_objects"], entry["live_bytes"]) == (kept, kept * KEPT_BYTES)


def assert_as_it_was_found(lab, puppet):
    """The process is not recorded: it has no probes, and its control block names no collector."""
    # The kernel removes the probes of pinned links a little after the last pin.
    wait_until(lambda: set(control.semaphores(puppet.pid, LIBRARY).values()) == {0}, "all probes are gone")
    block = control.control(puppet.pid, LIBRARY)
    assert (block.collector_pid, block.collector_lg_sample) == (0, control.NO_RATE)
    listed = subprocess.run([HEAPTAP, "list", "--json"],
                            capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    (entry,) = [entry for entry in json.loads(listed.stdout)["processes"] if entry["pid"] == puppet.pid]
    assert "collector_pid" not in entry
    assert puppet.ask("keep 1 100") == "kept 1"


def programs_of(daemon):
    """The ids of the eBPF programs that the collector holds."""
    ids = {int(fields["prog_id"]) for fields in descriptors(daemon.process.pid) if "prog_id" in fields}
    assert len(ids) > 10
    return ids


def wait_until_gone(programs):
    def left():
        listed = subprocess.run(["/usr/sbin/bpftool", "-j", "prog"], capture_output=True, check=True)
        return programs & {program["id"] for program in json.loads(listed.stdout)}
    wait_until(lambda: not left(), "its programs are gone from the kernel")


def test_a_second_one(lab, daemon):
    """The first daemon goes on."""
    puppet = recorded_puppet(lab, daemon, 100)
    second = lab.heaptap(*daemon.command())
    assert_one_clear_line(second, 1, daemon.pin_folder, "another collector uses it", "--pin-dir")
    assert daemon.process.alive()
    assert_recorded(daemon, puppet, 100)


def test_a_second_one_at_the_same_socket(lab, daemon):
    other = Daemon(lab.folder)
    other.socket = daemon.socket
    assert_one_clear_line(other.launch(), 1, daemon.socket)
    assert not os.path.exists(other.pin_folder), "what it had begun is left in the kernel"
    recorded_puppet(lab, daemon, 100)


def test_sigterm_leaves_the_recording(lab, start_daemon):
    daemon = start_daemon("--exact")
    puppet = recorded_puppet(lab, daemon, 100)
    daemon.stop(signal.SIGTERM)
    daemon.wait_said(r"^heaptap: the recording continues in the kernel \(\S+\): ")
    puppet.ask("keep 20 100")
    daemon.start("--map-size", "losses=1000")
    daemon.wait_said(r"^heaptap: took over a recording of \d+ process(es)?$")
    assert_recorded(daemon, puppet, 120)
    said = daemon.wait_said(r"^heaptap: the maps keep their sizes; to change them, end the recording first: (.*)$")
    # The command that it names ends this recording, wherever it and its state are.
    daemon.stop(signal.SIGTERM)
    command = daemon.wait_said(r"^heaptap: the recording continues in .*, (heaptap daemon --end\b.*) ends it$").group(1)
    assert said.group(1) == command == f"heaptap daemon --end --pin-dir {daemon.pin_folder} --state-dir {daemon.state_folder}"
    environment = {**os.environ, "PATH": f"{os.path.dirname(HEAPTAP)}:{os.environ['PATH']}"}
    result = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False,
                            timeout=PATIENCE_SECONDS)
    assert result.returncode == 0 and "the recording has ended" in result.stderr, result
    assert not os.path.exists(daemon.pin_folder)
    assert_as_it_was_found(lab, puppet)


def test_sigint_ends_it(lab, start_daemon):
    daemon = start_daemon("--exact")
    puppet = recorded_puppet(lab, daemon, 100)
    programs = programs_of(daemon)
    daemon.stop(signal.SIGINT)
    daemon.wait_said(r"^heaptap: the recording has ended$")
    assert not os.path.exists(daemon.pin_folder)
    assert_as_it_was_found(lab, puppet)
    wait_until_gone(programs)


@pytest.mark.parametrize("leave", (Daemon.stop, Daemon.kill))
def test_end_without_a_collector(lab, start_daemon, leave):
    """heaptap daemon --end ends a recording whose collector has ended or was killed."""
    daemon = start_daemon("--exact")
    puppet = recorded_puppet(lab, daemon, 100)
    programs = programs_of(daemon)
    leave(daemon)
    assert os.path.exists(daemon.pin_folder)
    daemon.end()
    assert_as_it_was_found(lab, puppet)
    wait_until_gone(programs)


def test_end_with_nothing_to_end(start_daemon):
    daemon = start_daemon()
    daemon.stop(signal.SIGINT)
    end = daemon.launch("--end")
    end.ends()
    assert end.lines() == [f"heaptap: there is no recording in {daemon.pin_folder}"]


def test_a_folder_that_is_not_root_s_alone(lab, start_daemon, request):
    daemon = start_daemon()
    daemon.stop(signal.SIGINT)
    request.addfinalizer(lambda: os.rmdir(daemon.pin_folder))
    for mode, owner in ((0o755, 0), (0o770, 0), (0o700, 65534)):
        os.mkdir(daemon.pin_folder)
        os.chmod(daemon.pin_folder, mode)
        os.chown(daemon.pin_folder, owner, owner)
        assert_one_clear_line(lab.heaptap(*daemon.command()), 1, daemon.pin_folder, "root alone")
        assert os.listdir(daemon.pin_folder) == []
        os.rmdir(daemon.pin_folder)
    os.symlink("/sys/fs/bpf", daemon.pin_folder)
    assert_one_clear_line(lab.heaptap(*daemon.command()), 1, daemon.pin_folder)
    os.unlink(daemon.pin_folder)
    os.mkdir(daemon.pin_folder)


def test_an_interrupted_beginning(lab, start_daemon):
    """The remains of a collector that was killed before everything was pinned are removed, and a new recording begins."""
    daemon = start_daemon("--exact")
    puppet = recorded_puppet(lab, daemon, 100)
    daemon.kill()
    (layout,) = os.listdir(daemon.pin_folder)
    os.unlink(os.path.join(daemon.pin_folder, layout, "whole"))
    daemon.start()
    assert "took over" not in daemon.process.stderr()
    puppet.ask("keep 7 100")
    assert_recorded(daemon, puppet, 7)


def test_the_ended_are_still_listed(lab, start_daemon):
    """A killed daemon's list of the processes that have ended is that of the next one, which adds to it."""
    daemon = start_daemon("--exact")
    first = recorded_puppet(lab, daemon, 100)
    first.ends()
    entry = daemon.wait_ended(first.pid)
    assert (entry["live_objects"], entry["status"]) == (100, 0)
    daemon.kill()
    daemon.start()
    assert daemon.ended() == [{**entry, "process_id": 0}]
    second = recorded_puppet(lab, daemon, 50)
    second.ends()
    daemon.wait_ended(second.pid)
    assert [ended["pid"] for ended in daemon.ended()] == [second.pid, first.pid]
    assert daemon.client("list", "--ended").count("puppet") == 2


def test_an_upgrade(lab, start_daemon):
    """A recording of another layout is ended with a last dump of each process; living processes are recorded again, and the
    next start takes over only the new recording."""
    daemon = start_daemon("--exact")
    lives = recorded_puppet(lab, daemon, 100)
    dies = recorded_puppet(lab, daemon, 50)
    states = os.path.join(daemon.state_folder, "recording")
    wait_until(lambda: daemon.saved_pids() >= {lives.pid, dies.pid}, "what was mapped is in writing")
    daemon.stop()
    lives.ask("keep 10 100")
    dies.ends()
    # Pretends that another version made this recording.
    (layout,) = os.listdir(daemon.pin_folder)
    other = "0" * len(layout)
    os.rename(os.path.join(daemon.pin_folder, layout), os.path.join(daemon.pin_folder, other))
    with open(os.path.join(states, "layout"), "w", encoding="ascii") as file:
        file.write(other + "\n")

    daemon.start()
    daemon.wait_said(rf"^heaptap: ended the recording of another heaptap version \({other}\) with a last dump of each "
                     r"of its \d+ processes; a new recording begins$")
    assert os.listdir(daemon.pin_folder) == [layout]
    for puppet, kept in ((lives, 110), (dies, 50)):
        assert symbols.live(daemon.only_dump(puppet.pid, kind="f"), "keep_blocks") == (kept, kept * KEPT_BYTES)
    lives.ask("keep 7 100")
    assert_recorded(daemon, lives, 7)
    assert lives.ask("drop") == "dropped 117"
    assert_recorded(daemon, lives, 0)
    daemon.restart()
    assert_recorded(daemon, lives, 0)
    assert [len(daemon.dumps(puppet.pid)) for puppet in (lives, dies)] == [1, 1]


def test_a_beginning_that_fails(lab, start_daemon):
    """A failed start leaves nothing in the kernel, except an earlier recording."""
    daemon = start_daemon("--exact")
    puppet = recorded_puppet(lab, daemon, 100)
    daemon.stop()
    assert daemon.launch("--library", "/bin/true").wait() == 2
    daemon.start()
    assert_recorded(daemon, puppet, 100)
    daemon.stop(signal.SIGINT)
    assert_one_clear_line(daemon.launch("--library", "/bin/true"), 2, "/bin/true", "no sampled allocator")
    assert not os.path.exists(daemon.pin_folder)
    assert_as_it_was_found(lab, puppet)
