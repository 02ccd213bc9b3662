# SPDX-License-Identifier: Apache-2.0
"""Requests of processes that are not recorded, that disturb others, or that have little stack."""

import errno
import re

from allocators import KI, assert_answers, said
from dumping import give_patience, waits
from harness import target
from heap_v2 import Dump

NOBODY = str(errno.EFAULT)


def test_child_of_an_attached_process(lab, heaptap):
    """The child has its parent's semaphores, but it is not recorded: its request fails without a wait. It has its parent's
    patience, which is endless."""
    process = lab.preloaded_puppet(env={"MALLOC_CONF": "prof:true,lg_prof_sample:0,lg_prof_interval:20"})
    give_patience(process.pid)
    session = lab.attach(process.target_pid, "-o", "collector")
    answer = process.ask(f"fork write string prof.dump child.prof;churn 100 {100 * KI}")
    assert re.search("^\\d+ churned 100$", answer), answer
    answer = process.ask("fork write string prof.dump child.prof")
    assert re.search(f"^\\d+ {NOBODY}$", answer), answer
    assert_answers(process, ("write string prof.dump parent.prof", "0"))
    heaptap.dump_named("parent.prof")
    process.popen.stdin.close()
    process.ends()
    session.ends()


def test_triggers_beside_another_process_s_collector(lab):
    """The collector receives requests of all processes with the library and refuses this one's, which would wait for ever
    otherwise; one line reports that, not one for each interval."""
    process = lab.preloaded_puppet(env={"MALLOC_CONF": "prof:true,lg_prof_sample:0,lg_prof_interval:16"})
    other = lab.heaptap("run", "-o", "collector", "--", target("puppet"), talks=True)
    other.answer()
    give_patience(process.pid)
    assert process.ask(f"churn 1000 {100 * KI}") == "churned 1000"
    assert waits(process.pid).dump_answers == 1
    assert len(said(process)) == 1, said(process)
    for one in (process, other):
        one.popen.stdin.close()
        one.ends()


def test_others_keep_their_profiles(lab):
    """A process that floods the ring with resets takes no room from the events of others."""
    # The collector is stopped meanwhile, so that the ring fills up.
    script = f"""kill -STOP $PPID
                 {target('resets')} 2000 & resets=$!
                 {target('wiki_leak')} & {target('wiki_leak')} &
                 wait $resets; kill -CONT $PPID; wait"""
    session = lab.heaptap("run", "--exact", "-o", "collector", "--map-size", "events=4096", "--", "sh", "-c", script,
                          env={"MALLOC_CONF": "prof:true"})
    # Only resets found no room.
    session.losses_allowed = ("events_full",)
    session.ends()
    assert sum(entry["losses"]["events_full"] for entry in session.books()) > 0, "there was room for all"
    leaks = [Dump(dump.path).total for dump in lab.dumps(kind="f")]
    assert leaks.count((120, 6926352)) == 2, leaks


def run_with(heaptap, where, conf):
    process = heaptap.start(target("small_stacks"), where, conf=conf)
    process.ends()
    assert process.stdout() == "error 0, 0 bytes written below the stack\n"


def test_triggers_in_a_thread(lab, heaptap):
    run_with(heaptap, "thread", "prof:true,lg_prof_sample:0,lg_prof_interval:20")
    assert len(lab.dumps(kind="i")) > 5


def test_high_water_in_a_thread(lab, heaptap):
    run_with(heaptap, "thread", "prof:true,lg_prof_sample:0,prof_gdump:true")
    assert len(lab.dumps(kind="u")) > 5


def test_dump_in_a_handler(lab, heaptap):
    run_with(heaptap, "handler", "prof:true,lg_prof_sample:0")
    assert len(lab.dumps(kind="m")) == 1
