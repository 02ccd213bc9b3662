# SPDX-License-Identifier: Apache-2.0
"""A killed collector loses nothing: the books continue in the kernel, and the next collector takes them over.

HEAPTAP_LONG=1: 60 kills. Recording is exact; error bounds: none.
"""

import contextlib
import errno
import glob
import os
import re
import signal

import pytest

import books
import control
import dumping
import symbols
from daemons import EXACT
from harness import LIBRARY, LONG, target, wait_until
from heap_v2 import Dump

KILLS = 60 if LONG else 6
# The pause between kills: some tenths of a second.
SAMPLES_BETWEEN_KILLS = 30000

# More processes than the daemon looks at while it starts its server. It waits at most 1.5 s for its looks at all of them
# (kFirstPatience); on a busy machine it has looked at some hundred by then.
SLEEPERS = 50
# A patience that ends soon, and the part of it that a collector gets which has not answered before (dump.cc,
# ShortLimits).
PATIENCE, SHORT_PATIENCE = 500, 50


def snapshot(lab, daemon, pid):
    path = lab.path(f"snapshot.{pid}")
    daemon.dump(pid, path)
    return Dump(path)


def final(daemon, pid):
    """The only dump at the process's death."""
    daemon.wait_ended(pid)
    return daemon.only_dump(pid, kind="f")


def saved_state(daemon, pid):
    """What the daemon has on disk about the process; "": nothing yet."""
    for path in glob.glob(os.path.join(daemon.state_folder, "recording", "*.json")):
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
            text = file.read()
            if f'"pid":{pid},' in text:
                return text
    return ""


@pytest.mark.product
@pytest.mark.endurance
def test_again_and_again_under_load(lab, start_daemon, held):
    """Eight threads allocate and free all the time; in the end each path's counts are right, live and freed. Every second
    collector is killed as soon as it has taken the process over. A block that a sweep of the books meets at the wrong
    moment is lost, and counted as lost."""
    daemon = start_daemon("--exact", "--dump-at-exit", "always", losses_allowed=("live_full",))
    # On a busy machine the program would go on without unwind tables after two seconds, and then each stack takes a
    # tally. The last dump of this one waits for them.
    first = lab.preloaded(target("exact_threads"), 1, env=EXACT)
    first.ends()
    final(daemon, first.pid)
    threads = lab.preloaded(target("exact_threads"), "-", talks=True, env=EXACT)
    daemon.wait_recorded(threads.pid)
    # A killed collector takes the raw stacks with it that it has not finished. A dump waits for them, and then the unwind
    # tables are in the kernel.
    snapshot(lab, daemon, threads.pid)
    samples = 0
    for _ in range(KILLS):
        enough = samples + SAMPLES_BETWEEN_KILLS
        wait_until(lambda enough=enough: daemon.processes().get(threads.pid, {}).get("samples", 0) >= enough,
                   "it has more samples")
        samples = daemon.processes()[threads.pid]["samples"]
        for _ in range(2):
            daemon.kill()
            daemon.start()
            assert daemon.wait_recorded(threads.pid)["samples"] >= samples
    threads.tell("stop")
    truth = [(path, *map(int, counts)) for path, *counts in (threads.answer().split() for _ in range(3))]
    dumps = [snapshot(lab, daemon, threads.pid)]
    threads.ends()
    dumps.append(final(daemon, threads.pid))
    (entry,) = [entry for entry in daemon.books() if entry["pid"] == threads.pid]
    lost = books.losses(entry).get("live_full", 0)
    for dump in dumps:
        # A stack whose walk waited for the mappings, which the program changes all the time, is finished by the
        # collector. One that was killed meanwhile leaves it cut, and counted so.
        counts = [re.match(r"heaptap: (\d+) samples? whose outer frames are missing", line) for line in dump.warnings]
        cut = sum(int(count[1]) for count in counts if count)
        missing = 0
        for path, objects, size_bytes, ever in truth:
            recorded = symbols.live(dump, path)
            assert recorded == (objects, size_bytes) or lost + cut > 0 and recorded[0] < objects, path
            missing += ever - sum(stack.ever.objects for stack in symbols.stacks_through(dump, path))
        assert lost <= missing <= lost + cut
    held(f"blocks lost in {KILLS} kills of the collector", "counted",
         f"{lost} of {sum(ever for *_, ever in truth)}")


def test_while_none_runs(lab, start_daemon):
    """The next collector finds everything that processes did in the gap."""
    daemon = start_daemon("--exact", "--dump-at-exit", "always")
    older = {way: lab.preloaded_puppet(env=EXACT) for way in ("goes on", "ends", "killed", "exec")}
    parent = lab.preloaded_puppet(env=EXACT)
    for puppet in (*older.values(), parent):
        puppet.ask("keep 100 100")
    for puppet in (*older.values(), parent):
        wait_until(lambda pid=puppet.pid: daemon.processes()[pid]["live_objects"] >= 100, "all is counted")
        # The state that the next collector needs if the process dies in the gap.
        wait_until(lambda pid=puppet.pid: pid in daemon.saved_pids(), "it is in writing")
    daemon.kill()

    for puppet in older.values():
        puppet.ask("keep 200 100")
    older["ends"].ends()
    older["killed"].tell("raise 9")
    older["killed"].ends(-signal.SIGKILL)
    older["exec"].tell(f"exec {target('puppet')}")
    assert older["exec"].answer() == f"ready {older['exec'].pid}"
    older["exec"].ask("keep 7 100")
    child = int(parent.ask("fork keep 5 100").split()[0])
    younger = {way: lab.preloaded_puppet(env=EXACT) for way in ("goes on", "ends", "killed")}
    for puppet in younger.values():
        puppet.ask("keep 50 100")
    younger["ends"].ends()
    younger["killed"].tell("raise 9")
    younger["killed"].ends(-signal.SIGKILL)
    pids = {puppet.pid for puppet in (*older.values(), *younger.values(), parent)} | {child}
    assert [dump for dump in daemon.dumps() if dump.pid in pids] == []

    daemon.start()
    for pid, kept in ((older["ends"].pid, 300), (older["killed"].pid, 300), (child, 5)):
        assert symbols.live(final(daemon, pid), "keep_blocks") == (kept, kept * 112)
    for way in ("ends", "killed"):
        # No collector saw its mappings, so its call paths are only addresses.
        assert final(daemon, younger[way].pid).total == (50, 50 * 112)
    for puppet, kept in ((older["goes on"], 300), (younger["goes on"], 50), (older["exec"], 7), (parent, 100)):
        assert symbols.live(snapshot(lab, daemon, puppet.pid), "keep_blocks") == (kept, kept * 112)
    finals = [dump.path for dump in daemon.dumps() if dump.pid in pids]
    assert len(finals) == 5

    # Only once: a third collector finds nothing to do for them.
    daemon.restart()
    assert [dump.path for dump in daemon.dumps() if dump.pid in pids] == finals
    for puppet, kept in ((older["goes on"], 300), (younger["goes on"], 50), (older["exec"], 7), (parent, 100)):
        puppet.ends()
        assert symbols.live(final(daemon, puppet.pid), "keep_blocks") == (kept, kept * 112)


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGKILL))
def test_a_program_that_begins_and_ends_while_none_runs(lab, start_daemon, number):
    """The program waits for the missing collector only once. Its log and its last dump do not wait after that, though its
    patience is endless by then; each has one line."""
    daemon = start_daemon("--library", LIBRARY)
    daemon.process.signal(number)
    daemon.process.wait()
    puppet = lab.preloaded_puppet(env={"MALLOC_CONF": "prof:true,prof_leak:true,prof_log:true,lg_prof_sample:0"})
    dumping.give_patience(puppet.pid)
    puppet.tell("write string prof.dump never.prof")
    wait_until(lambda: dumping.waits(puppet.pid).dump_answers == 1, "it waits for a collector")
    dumping.give_patience(puppet.pid, 0)
    assert puppet.answer() == str(errno.EAGAIN)
    dumping.give_patience(puppet.pid)
    puppet.ends()
    assert len(puppet.stderr().splitlines()) == 3, puppet.stderr()
    assert lab.dumps() == []
    daemon.start()


def test_the_next_one_keeps_the_rate_that_was_asked_for(lab, start_daemon):
    daemon = start_daemon("--library", LIBRARY)
    puppet = lab.preloaded_puppet(env={"MALLOC_CONF": "prof:true"})
    puppet.ask("keep 1 1000000")
    daemon.wait_recorded(puppet.pid)
    for asked, is_saved in ((14, '"asked_lg_sample":14'), ("default", '"asked_lg_sample":null')):
        daemon.client("rate", puppet.pid, asked)
        wait_until(lambda: is_saved in saved_state(daemon, puppet.pid), "the daemon has saved it")
        daemon.restart()
        daemon.wait_recorded(puppet.pid)
        lg_sample = 19 if asked == "default" else asked
        assert daemon.processes()[puppet.pid]["lg_sample"] == lg_sample
        assert puppet.ask("read size prof.lg_sample") == f"0 {lg_sample}"


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGKILL))
def test_the_end_of_a_program_waits_for_none(lab, start_daemon, number):
    """Its patience is endless. The next collector writes the dump."""
    daemon = start_daemon("--exact", "--library", LIBRARY, "--dump-at-exit", "always")
    puppet = lab.preloaded_puppet(env={"MALLOC_CONF": "prof:true,prof_leak:true,prof_final:true,lg_prof_sample:0"})
    puppet.ask("keep 100 100")
    daemon.wait_recorded(puppet.pid)
    daemon.process.signal(number)
    daemon.process.wait()
    dumping.give_patience(puppet.pid)
    puppet.ends()
    assert "the collector has ended" in puppet.stderr(), puppet.stderr()
    assert lab.dumps() == []
    daemon.start()
    # The dead one may not have saved its mappings yet, so its call paths may be only addresses.
    assert final(daemon, puppet.pid).total == (100, 100 * 112)


def test_a_program_that_ends_while_it_is_stopped(lab, start_daemon):
    """The program waits with its whole patience for one triggered dump, and then not again for its last dump."""
    daemon = start_daemon("--library", LIBRARY)
    puppet = lab.preloaded_puppet(env={"MALLOC_CONF": "prof:true,prof_gdump:true,prof_leak:true,lg_prof_sample:0"})
    daemon.wait_recorded(puppet.pid)
    dumping.give_patience(puppet.pid, PATIENCE)
    daemon.process.signal(signal.SIGSTOP)
    puppet.ask("keep 1000 10000")
    puppet.ends()
    limits = re.findall(r"the collector did not answer within (\d+) ms", puppet.stderr())
    assert limits[0] == str(PATIENCE) and set(limits[1:]) == {str(SHORT_PATIENCE)}, puppet.stderr()
    daemon.process.signal(signal.SIGCONT)


def test_dumps_asked_for_while_none_runs(lab, start_daemon):
    daemon = start_daemon("--exact")
    puppet = lab.preloaded_puppet(env={"MALLOC_CONF": "prof:true,lg_prof_sample:0"})
    puppet.ask("keep 100 100")
    assert puppet.ask("write string prof.dump with.txt") == "0"
    daemon.kill()
    # Before the whole patience was over, which is for collectors that exist.
    assert puppet.ask("write string prof.dump without.txt") == str(errno.EAGAIN)
    assert "without.txt" in puppet.stderr() and "the collector has ended" in puppet.stderr(), puppet.stderr()
    puppet.ask("keep 100 100")
    daemon.start()
    assert puppet.ask("write string prof.dump again.txt") == "0"
    assert symbols.live(Dump(lab.path("again.txt")), "keep_blocks") == (200, 200 * 112)


def test_the_next_one_is_known_when_it_says_that_it_records(lab, start_daemon):
    """Each process that was there names it: a process does not take the dead one for its collector."""
    daemon = start_daemon("--exact")
    script = f"for i in $(seq {SLEEPERS}); do sleep 1000 & all=\"$all $!\"; done; echo $all; read line; kill $all"
    shell = lab.preloaded("sh", "-c", script, talks=True, env=EXACT)
    pids = [shell.pid, *map(int, shell.answer().split())]
    wait_until(lambda: set(pids) <= set(daemon.processes()), "all are recorded")
    daemon.kill()
    daemon.launch(env={"LD_PRELOAD": target("libstop_at.so"), "STOP_AT": "sendto:READY=1", "NOTIFY_SOCKET": "/nobody"})
    os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED | os.WNOWAIT)
    collectors = [control.control(pid, LIBRARY).collector_pid for pid in pids]
    daemon.process.signal(signal.SIGCONT)
    shell.tell("end")
    assert len(pids) == 1 + SLEEPERS and set(collectors) == {daemon.process.pid}


def test_between_a_last_dump_and_the_end_of_the_books(lab, new_daemon):
    """The collector is killed right after the dump has its name; the next one closes the books with the same numbers."""
    env = {"LD_PRELOAD": target("libstop_at.so"), "STOP_AT": "linkat:.f.heap"}
    daemon = new_daemon("--exact", "--dump-at-exit", "always", env=env)
    daemon.start()
    puppet = lab.preloaded_puppet(env=EXACT)
    puppet.ask("keep 3 1000")
    daemon.wait_recorded(puppet.pid)
    puppet.ends()
    daemon.wait_dumps(1, pid=puppet.pid)
    daemon.kill()
    env.clear()
    daemon.start()
    wait_until(lambda: [entry for entry in daemon.process.books() if entry["pid"] == puppet.pid], "they are closed")
    assert {dump.read().total for dump in daemon.dumps(puppet.pid)} == {(3, 3 * 1024)}
    of_puppet = [entry for entry in daemon.books() if entry["pid"] == puppet.pid]
    assert all(entry == of_puppet[0] for entry in of_puppet)
    # No collector still records a process that is gone.
    assert [dump for dump in daemon.dumps() if dump.pid == 0] == []
