# SPDX-License-Identifier: Apache-2.0
"""How a daemon's recording goes on, ends, begins afresh, and is refused."""

import json
import os
import re
import signal
import subprocess

import control
import symbols
from daemon import EXACT, Daemon, DaemonCase
from harness import HEAPTAP, LIBRARY, PATIENCE_SECONDS, wait_until

KEPT_BYTES = 112  # of a block of 100


class DaemonSurvival(DaemonCase):
    def recorded_puppet(self, daemon, kept):
        puppet = self.preloaded_puppet(env=EXACT)
        puppet.ask(f"keep {kept} 100")
        self.assert_recorded(daemon, puppet, kept)
        return puppet

    def assert_recorded(self, daemon, puppet, kept):
        """The process is recorded, with so many live blocks."""
        wait_until(lambda: daemon.processes().get(puppet.pid, {}).get("live_objects") == kept,
                   f"{puppet.pid} has {kept} blocks")
        self.assertEqual(daemon.processes()[puppet.pid]["live_bytes"], kept * KEPT_BYTES)

    def assert_as_it_was_found(self, puppet):
        """Nobody records it: no probe is left in it, and its control block names no collector."""
        # The kernel takes the probes of pinned links away a little after the last pin.
        wait_until(lambda: set(control.semaphores(puppet.pid, LIBRARY).values()) == {0}, "all probes are gone")
        block = control.control(puppet.pid, LIBRARY)
        self.assertEqual((block.collector_pid, block.collector_lg_sample), (0, control.NO_RATE))
        listed = subprocess.run([HEAPTAP, "list", "--json", "--socket", os.path.join(self.folder, "none")],
                                capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
        (entry,) = [entry for entry in json.loads(listed.stdout)["processes"] if entry["pid"] == puppet.pid]
        self.assertNotIn("collector_pid", entry)
        self.assertEqual(puppet.ask("keep 1 100"), "kept 1")

    def programs(self, daemon):
        """Ids of the eBPF programs that its collector holds."""
        ids = set()
        folder = f"/proc/{daemon.process.pid}/fdinfo"
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="ascii") as file:
                ids |= {int(number) for number in re.findall(r"^prog_id:\s+(\d+)$", file.read(), re.MULTILINE)}
        self.assertGreater(len(ids), 10)
        return ids

    def wait_until_gone(self, programs):
        def left():
            listed = subprocess.run(["/usr/sbin/bpftool", "-j", "prog"], capture_output=True, check=True)
            return programs & {program["id"] for program in json.loads(listed.stdout)}
        wait_until(lambda: not left(), "its programs are gone from the kernel")

    def test_sigterm_leaves_the_recording(self):
        daemon = self.daemon("--exact")
        puppet = self.recorded_puppet(daemon, 100)
        daemon.stop(signal.SIGTERM)
        daemon.wait_said(r"^heaptap: the recording goes on in the kernel \(\S+\) until the next start; ")
        puppet.ask("keep 20 100")
        daemon.start()
        daemon.wait_said(r"^heaptap: took over a recording of \d+ process(es)?$")
        self.assert_recorded(daemon, puppet, 120)

    def test_sigint_ends_it(self):
        daemon = self.daemon("--exact")
        puppet = self.recorded_puppet(daemon, 100)
        programs = self.programs(daemon)
        daemon.stop(signal.SIGINT)
        daemon.wait_said(r"^heaptap: the recording has ended$")
        self.assertFalse(os.path.exists(daemon.pin_folder))
        self.assert_as_it_was_found(puppet)
        self.wait_until_gone(programs)

    def test_end_without_a_collector(self):
        """heaptap daemon --end does the same for what a collector left, whether it ended or was killed."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number=number):
                daemon = self.daemon("--exact")
                puppet = self.recorded_puppet(daemon, 100)
                programs = self.programs(daemon)
                if number == signal.SIGKILL:
                    daemon.kill()
                else:
                    daemon.stop()
                self.assertTrue(os.path.exists(daemon.pin_folder))
                daemon.end()
                self.assert_as_it_was_found(puppet)
                self.wait_until_gone(programs)

    def test_end_with_nothing_to_end(self):
        daemon = self.daemon()
        daemon.stop(signal.SIGINT)
        end = daemon.launch("--end")
        self.assertEqual(end.wait(), 0)
        self.assertEqual(end.lines(), [f"heaptap: nothing is recorded in {daemon.pin_folder}"])

    def test_a_second_one(self):
        """Nor can a recording be ended while its collector runs. The first goes on."""
        daemon = self.daemon("--exact")
        puppet = self.recorded_puppet(daemon, 100)
        first = daemon.process
        for arguments in ((), ("--end",)):
            with self.subTest(arguments=arguments):
                second = self.heaptap(*daemon.command(*arguments))
                self.assert_one_clear_line(second, 1, daemon.pin_folder, "another collector has it", "--pin-dir")
        self.assertTrue(first.alive())
        self.assert_recorded(daemon, puppet, 100)

    def test_a_second_one_at_the_same_socket(self):
        daemon = self.daemon("--exact")
        other = Daemon(self.folder)
        other.socket = daemon.socket
        self.addCleanup(other.end)
        self.assert_one_clear_line(other.launch(), 1, daemon.socket)
        self.assertFalse(os.path.exists(other.pin_folder), "what it had begun is left in the kernel")
        self.recorded_puppet(daemon, 100)

    def test_a_folder_that_is_not_root_s_alone(self):
        daemon = self.daemon()
        daemon.stop(signal.SIGINT)
        self.addCleanup(os.rmdir, daemon.pin_folder)
        for mode, owner in ((0o755, 0), (0o770, 0), (0o700, 65534)):
            with self.subTest(mode=oct(mode), owner=owner):
                os.mkdir(daemon.pin_folder)
                os.chmod(daemon.pin_folder, mode)
                os.chown(daemon.pin_folder, owner, owner)
                self.assert_one_clear_line(self.heaptap(*daemon.command()), 1, daemon.pin_folder, "root's alone")
                self.assertEqual(os.listdir(daemon.pin_folder), [])
                os.rmdir(daemon.pin_folder)
        os.symlink("/sys/fs/bpf", daemon.pin_folder)
        self.assert_one_clear_line(self.heaptap(*daemon.command()), 1, daemon.pin_folder)
        os.unlink(daemon.pin_folder)
        os.mkdir(daemon.pin_folder)

    def test_an_interrupted_beginning(self):
        """What a collector left that was killed before all was pinned is removed, and a recording begins afresh."""
        daemon = self.daemon("--exact")
        puppet = self.recorded_puppet(daemon, 100)
        daemon.kill()
        (layout,) = os.listdir(daemon.pin_folder)
        os.unlink(os.path.join(daemon.pin_folder, layout, "whole"))
        daemon.start()
        self.assertNotIn("took over", daemon.process.stderr())
        puppet.ask("keep 7 100")
        self.assert_recorded(daemon, puppet, 7)

    def test_an_upgrade(self):
        """A recording of another layout is ended, with a last dump of each of its processes; the living are recorded
        anew, and the next start takes over nothing but that."""
        daemon = self.daemon("--exact")
        lives = self.recorded_puppet(daemon, 100)
        dies = self.recorded_puppet(daemon, 50)
        states = os.path.join(daemon.state_folder, "recording")
        wait_until(lambda: len([name for name in os.listdir(states) if name.endswith(".json")]) == 2,
                   "what was mapped is in writing")
        daemon.stop()
        lives.ask("keep 10 100")
        self.assertEqual(dies.wait(), 0)
        # As if another version had done all that.
        (layout,) = os.listdir(daemon.pin_folder)
        other = "0" * len(layout)
        os.rename(os.path.join(daemon.pin_folder, layout), os.path.join(daemon.pin_folder, other))
        with open(os.path.join(states, "layout"), "w", encoding="ascii") as file:
            file.write(other + "\n")

        daemon.start()
        daemon.wait_said(rf"^heaptap: a recording of another version \({other}\) was ended with a last dump of each of "
                         r"its \d+ processes; a new one begins$")
        self.assertEqual(os.listdir(daemon.pin_folder), [layout])
        for puppet, kept in ((lives, 110), (dies, 50)):
            stacks = symbols.stacks_through(self.only_dump(puppet.pid, kind="f"), "keep_blocks")
            self.assertEqual(sum(stack.total.objects for stack in stacks), kept)
            self.assertEqual(sum(stack.total.bytes for stack in stacks), kept * KEPT_BYTES)
        lives.ask("keep 7 100")
        self.assert_recorded(daemon, lives, 7)
        self.assertEqual(lives.ask("drop"), "dropped 117")
        self.assert_recorded(daemon, lives, 0)
        daemon.restart()
        self.assert_recorded(daemon, lives, 0)
        self.assertEqual(len(self.dumps()), 2)

    def test_a_beginning_that_fails(self):
        """What nobody was told of does not stay in the kernel; what was there before does."""
        daemon = self.daemon("--exact")
        puppet = self.recorded_puppet(daemon, 100)
        daemon.stop()
        self.assertEqual(daemon.launch("--library", "/bin/true").wait(), 2)
        daemon.start()
        self.assert_recorded(daemon, puppet, 100)
        daemon.stop(signal.SIGINT)
        self.assert_one_clear_line(daemon.launch("--library", "/bin/true"), 2, "/bin/true", "no sampled allocator")
        self.assertFalse(os.path.exists(daemon.pin_folder))
        self.assert_as_it_was_found(puppet)
