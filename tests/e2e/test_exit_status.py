# SPDX-License-Identifier: Apache-2.0
"""heaptap run is transparent: status, streams and signals of the command are the command's own."""

import os
import signal

from harness import Case


class ExitStatus(Case):
    def test_status_is_passed_through(self):
        for status in (0, 1, 2, 42, 125, 255):
            with self.subTest(status=status):
                session = self.heaptap("run", "--", "/bin/sh", "-c", f"exit {status}")
                self.assertEqual(session.wait(), status, session.stderr())

    def test_death_by_signal_is_128_and_the_signal(self):
        for command, number in (("abort", signal.SIGABRT), ("segv", signal.SIGSEGV), ("raise 9", signal.SIGKILL),
                                ("raise 15", signal.SIGTERM)):
            with self.subTest(command=command):
                session = self.puppet_under_heaptap("--exact")
                session.ask("keep 100 64")
                session.tell(command)
                self.assertEqual(session.wait(), 128 + number, session.stderr())
                self.assertEqual(len(self.dumps(pid=session.target_pid, kind="f")), 1)

    def test_exit_without_atexit(self):
        session = self.puppet_under_heaptap("--exact")
        session.ask("keep 100 64")
        session.tell("_exit 3")
        self.assertEqual(session.wait(), 3)
        self.assertGreaterEqual(self.only_dump().total.objects, 100)

    def test_streams_pass_through(self):
        session = self.heaptap("run", "--", "/bin/sh", "-c", "cat; echo to-stderr >&2", stdin=self.text("to-stdout\n"))
        self.assertEqual(session.wait(), 0)
        self.assertEqual(session.stdout(), "to-stdout\n")
        self.assertIn("to-stderr", session.lines())

    def text(self, content):
        path = os.path.join(self.folder, "input")
        with open(path, "w", encoding="ascii") as file:
            file.write(content)
        return open(path, "rb")

    def test_signals_are_forwarded(self):
        """SIGINT and SIGTERM to heaptap reach the command, which decides; heaptap then writes the last dump."""
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number.name):
                session = self.puppet_under_heaptap("--exact")
                session.ask("keep 10 64")
                session.signal(number)
                self.assertEqual(session.popen.wait(60), 128 + number, session.stderr())
                self.assertEqual(len(self.dumps(pid=session.target_pid, kind="f")), 1)

    def test_a_command_that_handles_the_signal(self):
        script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"
        session = self.heaptap("run", "--", "/bin/sh", "-c", script, talks=True)
        self.assertEqual(session.answer(), "ready")
        session.signal(signal.SIGTERM)
        self.assertEqual(session.popen.wait(60), 9, session.stderr())


class ExecFailures(Case):
    def test_no_such_command_is_127(self):
        session = self.heaptap("run", "--", "/no/such/command")
        self.assert_one_clear_line(session, 127, "/no/such/command")

    def test_a_command_that_cannot_be_executed_is_126(self):
        path = os.path.join(self.folder, "not-executable")
        with open(path, "w", encoding="ascii") as file:
            file.write("text\n")
        self.assert_one_clear_line(self.heaptap("run", "--", path), 126, "not-executable")
