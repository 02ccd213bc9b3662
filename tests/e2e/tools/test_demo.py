# SPDX-License-Identifier: Apache-2.0
"""scripts/demo shows what it promises, and leaves only its folder behind."""

import os
import re
import shutil
import signal
import subprocess

import pytest

from harness import PATIENCE_SECONDS, ROOT, target, wait_until

DEMO = os.path.join(ROOT, "scripts/demo")
FOLDER = re.compile(r"^\$ cd (/tmp/heaptap-demo\.\w+)$", re.MULTILINE)
# What it prints, in this order.
PROMISES = (r"^\$ heaptap run --exact -o leak -- \./leak$", r" do_something_else$", r"^\$ LD_PRELOAD=\S+ redis-",
            r"^heaptap: attached to \d+ \(redis-server\)", r" pushGenericCommand$", r"^\$ kill -KILL \d+$",
            r" hsetCommand$", r"^=== The demo took \d+ s; the profiles are in /tmp/")


class Demo:
    """A running scripts/demo, in its own session like under a terminal, so that Ctrl-C reaches all of it."""

    def __init__(self, folder, before=()):
        self._path = os.path.join(folder, "output")
        with open(self._path, "wb") as output:
            self.process = subprocess.Popen([*before, DEMO], stdout=output, stderr=subprocess.STDOUT,
                                            start_new_session=True,
                                            env={**os.environ, "DEMO_PATIENCE_SECONDS": f"{PATIENCE_SECONDS:.0f}"},
                                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def output(self):
        with open(self._path, encoding="utf-8") as file:
            return file.read()

    def folder(self):
        match = FOLDER.search(self.output())
        return match.group(1) if match else None

    def left_running(self):
        """The processes that are left of its session."""
        listed = subprocess.run(["ps", "-o", "pid=,args=", "-s", str(self.process.pid)], stdout=subprocess.PIPE,
                                text=True, check=False)
        return [line for line in listed.stdout.splitlines() if "<defunct>" not in line]

    def wait_for_all(self):
        """Workers of heaptap end by themselves, a moment after it."""
        wait_until(lambda: not self.left_running(), "nothing of the demo runs")

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.folder():
            shutil.rmtree(self.folder())


@pytest.fixture
def demo(folder):
    started = []

    def start(**options):
        started.append(Demo(folder, **options))
        return started[-1]
    yield start
    for one in started:
        one.end()


def test_shows_what_it_promises(demo):
    running = demo()
    assert running.process.wait(4 * PATIENCE_SECONDS) == 0, running.output()
    text = running.output()
    for promise in PROMISES:
        match = re.search(promise, text, re.MULTILINE)
        assert match is not None, f"{promise} is missing from this output:\n{text}"
        text = text[match.end():]
    running.wait_for_all()
    kept = [name for name in os.listdir(running.folder()) if name.endswith(".heap")]
    assert len(kept) == 4, kept


def test_interrupted(demo):
    """Interrupted while the server is under load and heaptap is attached."""
    running = demo()
    wait_until(lambda: "attached to" in running.output() or running.process.poll() is not None, "heaptap attach")
    os.killpg(running.process.pid, signal.SIGINT)
    assert running.process.wait(PATIENCE_SECONDS) == 130, running.output()
    running.wait_for_all()


@pytest.mark.without_bpf
def test_without_bpf(demo):
    running = demo(before=(target("without_bpf"), "EPERM"))
    assert running.process.wait(PATIENCE_SECONDS) == 1
    assert re.search(r"(?m)^missing +bpf\(2\) ", running.output())
    assert re.search(r"(?m)^scripts/demo: this machine cannot run heaptap; .*\n\Z", running.output())
