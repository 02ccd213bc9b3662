# SPDX-License-Identifier: Apache-2.0
"""A collector that is killed loses nothing: the books go on in the kernel, and the next one takes them over.

HEAPTAP_LONG=1: it is killed for 60 s instead of 12 s. Recording is exact; error bounds: none.
"""

import errno
import json
import os
import signal
import time

import symbols
from daemon import EXACT
from harness import LONG, TIME_SCALE, target, wait_until
from heap_v2 import Dump

SECONDS = 60 if LONG else 12
KILL_EVERY_SECONDS = 2

# Of a dump request that nobody answers.
AT_ONCE_SECONDS = 2 * TIME_SCALE


def take_snapshot(lab, daemon, pid):
    path = lab.path(f"snapshot.{pid}")
    daemon.dump(pid, path)
    return Dump(path)


def saved(daemon):
    """PIDs of which a next collector finds in writing what was mapped."""
    pids = set()
    folder = os.path.join(daemon.state_folder, "recording")
    for name in os.listdir(folder):
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                pids.add(json.load(file).get("pid"))
    return pids


def kill(process):
    process.signal(signal.SIGKILL)
    process.ends(-signal.SIGKILL)


def wait_for_final(lab, daemon, pid):
    """The dump at death; there is one only."""
    wait_until(lambda: [entry for entry in daemon.ended() if entry["pid"] == pid], f"{pid} is closed")
    return lab.only_dump(pid, kind="f")


def test_every_two_seconds_under_load(lab, start_daemon, held):
    """Eight threads allocate and free all the time; in the end each path's counts are the truth, live and dead."""
    daemon = start_daemon("--exact", "--dump-at-exit", "always")
    threads = lab.preloaded(target("exact_threads"), "-", talks=True, env=EXACT)
    end = time.monotonic() + SECONDS
    kills = 0
    while time.monotonic() < end:
        wait_until(lambda: threads.pid in daemon.processes(), "it is recorded")
        before = daemon.processes()[threads.pid]["samples"]
        time.sleep(KILL_EVERY_SECONDS)
        daemon.kill()
        kills += 1
        daemon.start()
        after = daemon.processes()[threads.pid]["samples"]
        assert after > before
    threads.tell("stop")
    truth = [threads.answer().split() for _ in range(3)]
    snapshot = take_snapshot(lab, daemon, threads.pid)
    threads.ends()
    final = wait_for_final(lab, daemon, threads.pid)
    for dump in (snapshot, final):
        for path, objects, size, ever in truth:
            assert symbols.live(dump, path) == (int(objects), int(size)), path
            assert sum(stack.ever.objects for stack in symbols.stacks_through(dump, path)) == int(ever), path
    assert len([entry for entry in daemon.books() if entry["pid"] == threads.pid]) == 1
    blocks = sum(int(path[3]) for path in truth)
    held("blocks miscounted after kills of the collector", 0, f"0 of {blocks}, {kills} kills")


def test_while_none_runs(lab, start_daemon):
    """What processes do in the gap is found by the next collector, each as if there had been no gap."""
    daemon = start_daemon("--exact", "--dump-at-exit", "always")
    older = {way: lab.preloaded_puppet(env=EXACT) for way in ("goes on", "ends", "killed", "exec")}
    parent = lab.preloaded(target("steered"), talks=True, env=EXACT)
    parent.answer()
    for puppet in (*older.values(), parent):
        puppet.ask("keep 100 100")
    for puppet in (*older.values(), parent):
        wait_until(lambda pid=puppet.pid: daemon.processes()[pid]["live_objects"] >= 100, "all is counted")
        # What a next one needs if the process dies in the gap.
        wait_until(lambda pid=puppet.pid: pid in saved(daemon), "it is in writing")
    daemon.kill()

    for puppet in older.values():
        puppet.ask("keep 200 100")
    older["ends"].ends()
    kill(older["killed"])
    older["exec"].tell(f"exec {target('puppet')}")
    assert older["exec"].answer() == f"ready {older['exec'].pid}"
    older["exec"].ask("keep 7 100")
    child = int(parent.ask("fork keep 5 100").split()[0])
    younger = {way: lab.preloaded_puppet(env=EXACT) for way in ("goes on", "ends", "killed")}
    for puppet in younger.values():
        puppet.ask("keep 50 100")
    younger["ends"].ends()
    kill(younger["killed"])
    assert lab.dumps() == []

    daemon.start()
    for pid, kept in ((older["ends"].pid, 300), (older["killed"].pid, 300), (child, 5)):
        assert symbols.live(wait_for_final(lab, daemon, pid), "keep_blocks") == (kept, kept * 112)
    for way in ("ends", "killed"):
        # Nobody ever saw what it had mapped: its call paths stay addresses.
        assert wait_for_final(lab, daemon, younger[way].pid).total == (50, 50 * 112)
    for puppet, kept in ((older["goes on"], 300), (younger["goes on"], 50), (older["exec"], 7), (parent, 100)):
        assert symbols.live(take_snapshot(lab, daemon, puppet.pid), "keep_blocks") == (kept, kept * 112)
    finals = [dump.path for dump in lab.dumps()]
    assert len(finals) == 5

    # Once only: the next one after that finds nothing to do for them.
    daemon.restart()
    assert [dump.path for dump in lab.dumps()] == finals
    for puppet, kept in ((older["goes on"], 300), (younger["goes on"], 50), (older["exec"], 7), (parent, 100)):
        puppet.ends()
        assert symbols.live(wait_for_final(lab, daemon, puppet.pid), "keep_blocks") == (kept, kept * 112)


def test_dumps_asked_for_while_none_runs(lab, start_daemon):
    daemon = start_daemon("--exact")
    puppet = lab.preloaded_puppet(env={"MALLOC_CONF": "prof:true,lg_prof_sample:0"})
    puppet.ask("keep 100 100")
    assert puppet.ask("dump with.txt") == "mallctl 0"
    daemon.kill()
    begin = time.monotonic()
    assert puppet.ask("dump without.txt") == f"mallctl {errno.EAGAIN}"
    assert time.monotonic() - begin < AT_ONCE_SECONDS
    puppet.ask("keep 100 100")
    daemon.start()
    assert puppet.ask("dump again.txt") == "mallctl 0"
    assert symbols.live(Dump(lab.path("again.txt")), "keep_blocks") == (200, 200 * 112)
