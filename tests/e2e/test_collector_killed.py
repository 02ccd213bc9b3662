# SPDX-License-Identifier: Apache-2.0
"""A collector that is killed loses nothing: the books go on in the kernel, and the next one takes them over.

HEAPTAP_LONG=1: it is killed for 60 s instead of 12 s. Recording is exact; error bounds: none.
"""

import errno
import json
import os
import re
import signal
import time

import symbols
from daemon import EXACT, DaemonCase
from harness import target, wait_until
from heap_v2 import Dump

SECONDS = 60 if os.environ.get("HEAPTAP_LONG") == "1" else 12
KILL_EVERY_SECONDS = 2

# Of a dump request that nobody answers.
AT_ONCE_SECONDS = 2


class CollectorKilled(DaemonCase):
    def kept(self, dump, function="keep_blocks"):
        stacks = symbols.stacks_through(dump, function)
        return sum(stack.total.objects for stack in stacks), sum(stack.total.bytes for stack in stacks)

    def snapshot(self, daemon, pid):
        path = os.path.join(self.folder, f"snapshot.{pid}")
        daemon.dump(pid, path)
        return Dump(path)

    def saved(self, daemon):
        """PIDs of which a next collector finds in writing what was mapped."""
        pids = set()
        folder = os.path.join(daemon.state_folder, "recording")
        for name in os.listdir(folder):
            if name.endswith(".json"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    pids.add(json.load(file).get("pid"))
        return pids

    def kill(self, process):
        process.signal(signal.SIGKILL)
        self.assertEqual(process.wait(), -signal.SIGKILL)

    def wait_for_final(self, daemon, pid):
        """The dump at death; there is one only."""
        wait_until(lambda: [entry for entry in daemon.ended() if entry["pid"] == pid], f"{pid} is closed")
        return self.only_dump(pid, kind="f")

    def test_every_two_seconds_under_load(self):
        """Eight threads allocate and free all the time; in the end each path's counts are the truth, live and dead."""
        daemon = self.daemon("--exact", "--dump-at-exit", "always")
        threads = self.preloaded(target("exact_threads"), "-", talks=True, env=EXACT)
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
            self.assertGreater(after, before)
        threads.tell("stop")
        truth = [threads.answer().split() for _ in range(3)]
        snapshot = self.snapshot(daemon, threads.pid)
        self.assertEqual(threads.wait(), 0)
        final = self.wait_for_final(daemon, threads.pid)
        for dump in (snapshot, final):
            for path, objects, size, ever in truth:
                stacks = symbols.stacks_through(dump, path)
                self.assertEqual((sum(stack.total.objects for stack in stacks),
                                  sum(stack.total.bytes for stack in stacks),
                                  sum(stack.ever.objects for stack in stacks)),
                                 (int(objects), int(size), int(ever)), path)
        (books,) = [entry for entry in daemon.books() if entry["pid"] == threads.pid]
        allocated = sum(int(path[3]) for path in truth)
        print(f"        {kills} kills, {allocated} blocks")

    def test_while_none_runs(self):
        """What processes do in the gap is found by the next collector, each as if there had been no gap."""
        daemon = self.daemon("--exact", "--dump-at-exit", "always")
        older = {way: self.preloaded_puppet(env=EXACT) for way in ("goes on", "ends", "killed", "exec")}
        parent = self.preloaded(target("steered"), talks=True, env=EXACT)
        parent.answer()
        for puppet in (*older.values(), parent):
            puppet.ask("keep 100 100")
        for puppet in (*older.values(), parent):
            wait_until(lambda pid=puppet.pid: daemon.processes()[pid]["live_objects"] >= 100, "all is counted")
            # What a next one needs if the process dies in the gap.
            wait_until(lambda pid=puppet.pid: pid in self.saved(daemon), "it is in writing")
        daemon.kill()

        for puppet in older.values():
            puppet.ask("keep 200 100")
        self.assertEqual(older["ends"].wait(), 0)
        self.kill(older["killed"])
        older["exec"].tell(f"exec {target('puppet')}")
        self.assertEqual(older["exec"].answer(), f"ready {older['exec'].pid}")
        older["exec"].ask("keep 7 100")
        child = int(parent.ask("fork keep 5 100").split()[0])
        younger = {way: self.preloaded_puppet(env=EXACT) for way in ("goes on", "ends", "killed")}
        for puppet in younger.values():
            puppet.ask("keep 50 100")
        self.assertEqual(younger["ends"].wait(), 0)
        self.kill(younger["killed"])
        self.assertEqual(self.dumps(), [])

        daemon.start()
        for pid, kept in ((older["ends"].pid, 300), (older["killed"].pid, 300), (child, 5)):
            self.assertEqual(self.kept(self.wait_for_final(daemon, pid)), (kept, kept * 112))
        for way in ("ends", "killed"):
            # Nobody ever saw what it had mapped: its call paths stay addresses.
            self.assertEqual(self.wait_for_final(daemon, younger[way].pid).total, (50, 50 * 112))
        for puppet, kept in ((older["goes on"], 300), (younger["goes on"], 50), (older["exec"], 7), (parent, 100)):
            self.assertEqual(self.kept(self.snapshot(daemon, puppet.pid)), (kept, kept * 112))
        finals = [dump.path for dump in self.dumps()]
        self.assertEqual(len(finals), 5)

        # Once only: the next one after that finds nothing to do for them.
        daemon.restart()
        self.assertEqual([dump.path for dump in self.dumps()], finals)
        for puppet, kept in ((older["goes on"], 300), (younger["goes on"], 50), (older["exec"], 7), (parent, 100)):
            self.assertEqual(puppet.wait(), 0)
            self.assertEqual(self.kept(self.wait_for_final(daemon, puppet.pid)), (kept, kept * 112))

    def test_dumps_asked_for_while_none_runs(self):
        daemon = self.daemon("--exact")
        puppet = self.preloaded_puppet(env={"MALLOC_CONF": "prof:true,lg_prof_sample:0"})
        puppet.ask("keep 100 100")
        self.assertEqual(puppet.ask("dump with.txt"), "mallctl 0")
        daemon.kill()
        begin = time.monotonic()
        self.assertEqual(puppet.ask("dump without.txt"), f"mallctl {errno.EAGAIN}")
        self.assertLess(time.monotonic() - begin, AT_ONCE_SECONDS)
        puppet.ask("keep 100 100")
        daemon.start()
        self.assertEqual(puppet.ask("dump again.txt"), "mallctl 0")
        self.assertEqual(self.kept(Dump(os.path.join(self.folder, "again.txt"))), (200, 200 * 112))
