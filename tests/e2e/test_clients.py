# SPDX-License-Identifier: Apache-2.0
"""The commands that ask a daemon, where there is none: what a process says of itself, orders to its control block, and
one clear line for the rest."""

import json
import os
import signal

from harness import Case


class WithoutDaemon(Case):
    needs_bpf = False

    def command(self, *arguments):
        """The finished command; its socket does not exist."""
        session = self.heaptap(*arguments, "--socket", os.path.join(self.folder, "no-socket"))
        session.records = False
        session.wait()
        return session

    def stats(self, pid):
        session = self.command("stats", pid, "--json")
        self.assertEqual(session.wait(), 0, session.stderr())
        return json.loads(session.stdout())["allocator"]

    def test_list(self):
        puppet = self.preloaded_puppet()
        stranger = self.program("sleep", "1000")
        listed = self.command("list", "--json")
        self.assertEqual(listed.wait(), 0, listed.stderr())
        self.assertEqual(len(listed.stderr().splitlines()), 1)
        self.assertIn("no daemon", listed.stderr())
        processes = {process["pid"]: process for process in json.loads(listed.stdout())["processes"]}
        self.assertNotIn(stranger.pid, processes)
        mine = processes[puppet.target_pid]
        self.assertEqual((mine["command"], mine["lg_sample"], mine["active"]), ("puppet", 19, True))
        self.assertIsInstance(mine["mapped"], int)
        lines = self.command("list").stdout().splitlines()
        self.assertRegex(lines[0], r"^ *PID  COMMAND .* COLLECTOR$")
        row = next(line.split() for line in lines if line.split()[0] == str(puppet.target_pid))
        self.assertEqual(row[1:10], ["puppet", "-", "-", "-", "-", "-", "-", "19", "-"])
        self.assertEqual(row[10], "on")

    def test_orders_reach_the_process(self):
        puppet = self.preloaded_puppet()
        pid = puppet.target_pid
        for order, field, value in ((("active", pid, "off"), "active", False), (("rate", pid, "12"), "lg_sample", 12),
                                    (("active", pid, "on"), "active", True),
                                    (("rate", pid, "default"), "lg_sample", 19)):
            session = self.command(*order)
            self.assertEqual((session.wait(), session.stdout()), (0, ""), session.stderr())
            self.assertEqual(self.stats(pid)[field], value)
        text = self.command("stats", pid).stdout()
        self.assertRegex(text, r"(?m)^command +puppet$")
        self.assertRegex(text, r"(?m)^prof.active +on$")

    def test_errors_are_one_line(self):
        gone = self.program("true")
        gone.wait()
        stranger = self.program("sleep", "1000")
        for status, arguments, words in (
                (3, ("stats", gone.pid), "no process"), (3, ("active", gone.pid, "on"), "no process"),
                (3, ("rate", gone.pid, "12"), "no process"), (3, ("stats", stranger.pid), "LD_PRELOAD"),
                (3, ("active", stranger.pid, "on"), "LD_PRELOAD"), (3, ("rate", stranger.pid, "12"), "LD_PRELOAD"),
                (1, ("list", "--ended"), "heaptap daemon"), (1, ("dump", stranger.pid), "heaptap attach -p"),
                (1, ("dump", "--all"), "heaptap daemon"), (1, ("diff", stranger.pid), "heaptap daemon"),
                (2, ("rate", stranger.pid, "64"), "0 to 63"), (2, ("active", stranger.pid, "maybe"), "on nor off"),
                (2, ("dump",), "--all"), (2, ("dump", "1", "2", "-o", "x"), "%p"), (2, ("diff", "x"), "two dumps"),
                (1, ("diff", "none", "none"), "No such file"), (1, ("diff", "/dev/null", "/dev/null"), "empty")):
            with self.subTest(arguments=arguments):
                session = self.command(*arguments)
                self.assertEqual(session.wait(), status, session.stderr())
                self.assertEqual(session.stdout(), "")
                self.assertEqual(len(session.stderr().splitlines()), 1, session.stderr())
                self.assertIn(words, session.stderr())


class WithACollector(Case):
    def command(self, *arguments):
        session = self.heaptap(*arguments)
        session.records = False
        session.wait()
        return session

    def test_another_collector_is_named(self):
        puppet = self.preloaded_puppet()
        collector = self.attach(puppet.target_pid)
        missing = os.path.join(self.folder, "no-socket")
        for order in (("active", puppet.target_pid, "off"), ("rate", puppet.target_pid, "12")):
            session = self.command(*order, "--socket", missing)
            self.assertEqual(session.wait(), 1, session.stderr())
            self.assertIn(f"recorded by heaptap {collector.pid}", session.stderr())
        listed = json.loads(self.command("list", "--json", "--socket", missing).stdout())["processes"]
        mine = next(process for process in listed if process["pid"] == puppet.target_pid)
        self.assertEqual(mine["collector_pid"], collector.pid)

    def test_diff_of_dumps_names_what_grew(self):
        session = self.puppet_under_heaptap("--exact")
        session.ask("keep 100 64")
        session.signal(signal.SIGUSR1)
        session.wait_said(r"wrote .*\.m0\.heap")
        session.ask("keep 50 1000")
        session.tell("exit 0")
        self.assertEqual(session.wait(), 0)
        before, after = (dump.path for kind in "mf" for dump in self.dumps(kind=kind))
        document = json.loads(self.command("diff", before, after, "--json").stdout())
        grown = document["call_paths"][0]
        self.assertEqual((grown["bytes"], grown["objects"]), (50 * 1024, 50))
        names = [name for frame in grown["frames"] for name in frame["names"]]
        self.assertIn("main", names)
        text = self.command("diff", before, after).stdout()
        self.assertRegex(text, r"^total \+\S+ in \+\d+ objects: ")
