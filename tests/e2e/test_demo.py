# SPDX-License-Identifier: Apache-2.0
"""scripts/demo shows what it promises and leaves nothing behind but its folder."""

import os
import re
import shutil
import signal
import subprocess

from harness import PATIENCE_SECONDS, ROOT, Case, target, wait_until

DEMO = os.path.join(ROOT, "scripts/demo")


class Demo(Case):
    def demo(self, before=()):
        """Started as from a terminal: with a session of its own, which Ctrl-C goes to."""
        process = subprocess.Popen(  # pylint: disable=consider-using-with
            [*before, DEMO], stdout=open(os.path.join(self.folder, "output"), "wb"), stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(self.forget, process)
        return process

    def output(self):
        with open(os.path.join(self.folder, "output"), encoding="utf-8") as file:
            return file.read()

    def forget(self, process):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        made = re.search(r"^\$ cd (/tmp/heaptap-demo\.\w+)$", self.output(), re.MULTILINE)
        if made:
            shutil.rmtree(made.group(1))

    def session(self, process):
        """What is left of the demo's session."""
        listed = subprocess.run(["ps", "-o", "pid=,args=", "-s", str(process.pid)], stdout=subprocess.PIPE, text=True,
                                check=False)
        return [line for line in listed.stdout.splitlines() if "<defunct>" not in line]

    def test_shows_what_it_promises(self):
        process = self.demo()
        self.assertEqual(process.wait(4 * PATIENCE_SECONDS), 0, self.output())
        text = self.output()
        for expected in (r"^\$ heaptap run --exact -o leak -- \./leak$", r" do_something_else$", r"^\$ LD_PRELOAD=\S+ redis-",
                         r"^heaptap: attached to \d+ \(redis-server\)", r" pushGenericCommand$", r"^\$ kill -KILL \d+$",
                         r" hsetCommand$", r"^=== All of it took \d+ s; the profiles are in /tmp/"):
            match = re.search(expected, text, re.MULTILINE)
            self.assertIsNotNone(match, f"{expected} is not in what follows:\n{text}")
            text = text[match.end():]
        self.assertEqual(self.session(process), [])
        folder = re.search(r"^\$ cd (/tmp/heaptap-demo\.\w+)$", self.output(), re.MULTILINE).group(1)
        kept = [name for name in os.listdir(folder) if name.endswith(".heap")]
        self.assertEqual(len(kept), 4, kept)

    def test_interrupted(self):
        """While the server is under load and attached to."""
        process = self.demo()
        wait_until(lambda: "attached to" in self.output() or process.poll() is not None, "heaptap attach")
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE_SECONDS), 130, self.output())
        self.assertEqual(self.session(process), [])

    def test_without_bpf(self):
        process = self.demo(before=(target("without_bpf"), "EPERM"))
        self.assertEqual(process.wait(PATIENCE_SECONDS), 1)
        self.assertRegex(self.output(), r"(?m)^missing +bpf\(2\) ")
        self.assertRegex(self.output(), r"(?m)^scripts/demo: this machine lacks what heaptap needs; .*\n\Z")
