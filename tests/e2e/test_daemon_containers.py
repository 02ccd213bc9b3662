# SPDX-License-Identifier: Apache-2.0
"""Containers: file systems, PIDs and users that only the processes in them see.

Recording is exact; error bounds: none, but for the first process that maps a library that nobody knew. What it samples
before the probes are attached is missed.
"""

import gzip
import os

import symbols
from container import Container, Image
from daemon import DaemonCase
from harness import target, wait_until


class ContainersCase(DaemonCase):
    def setUp(self):
        super().setUp()
        self.image = Image(os.path.join(self.folder, "image"))
        self.containers = 0

    def container(self):
        self.containers += 1
        container = Container(self.image, os.path.join(self.folder, f"container{self.containers}"))
        self.addCleanup(container.remove)
        return container

    def puppet_in(self, daemon, container, **options):
        """A puppet that is recorded; target_pid is what the host knows it by."""
        puppet = self.program(*container.command("puppet", **options), talks=True)
        self.assertEqual(puppet.answer(), "ready 1")
        with open(f"/proc/{puppet.pid}/task/{puppet.pid}/children", encoding="ascii") as file:
            puppet.target_pid = int(file.read())
        wait_until(lambda: puppet.target_pid in daemon.processes(), "it is recorded")
        return puppet

    def paced_in(self, daemon, container, **options):
        """(blocks that a program allocated, those that were recorded), of one that runs for half a second or so."""
        seen = {entry["pid"] for entry in daemon.ended()}
        program = self.program(*container.command("paced", 20000, 1, **options))
        self.assertEqual(program.wait(), 0, program.stderr())

        def find():
            return [entry for entry in daemon.ended() if entry["command"] == "paced" and entry["pid"] not in seen]
        (entry,) = wait_until(find, "it has ended")
        self.assertEqual(entry["losses"], {})
        return int(program.stdout().splitlines()[1].split()[1]), entry["samples"]


class Containers(ContainersCase):
    def test_recorded_symbolised_and_dumped(self):
        daemon = self.daemon("--exact", "--dump-at-exit", "always")
        puppet = self.puppet_in(daemon, self.container())
        pid = puppet.target_pid
        puppet.ask("keep 100 1000")
        entry = daemon.processes()[pid]
        self.assertEqual((entry["live_objects"], entry["command"], entry["losses"]), (100, "puppet", {}))
        collapsed = daemon.get(f"/pid/{pid}/collapsed")
        self.assertEqual(collapsed.status, 200)
        self.assertRegex(collapsed.body.decode(), r"(?m);main;obey;keep_blocks(;\S+)? 102400$")
        profile = daemon.get(f"/pid/{pid}/debug/pprof/heap")
        self.assertIn(b"keep_blocks", gzip.decompress(profile.body))
        by_hand = os.path.join(self.folder, "by_hand")
        daemon.dump(pid, by_hand)
        self.assertGreater(os.stat(by_hand).st_size, 0)
        self.assertEqual(puppet.wait(), 0)
        wait_until(daemon.ended, "it has ended")
        dump = self.only_dump(pid, "f")
        copies = {mapping.path: target("puppet") for mapping in dump.mappings if mapping.path.endswith("/puppet")}
        kept = [stack for stack in dump.stacks if "keep_blocks" in symbols.names(dump, stack, copies)]
        self.assertEqual(sum(stack.total.objects for stack in kept), 100)

    def test_the_second_process_is_exact(self):
        """The first one that maps the library is seen some milliseconds late; the next one not at all late."""
        daemon = self.daemon("--exact")
        container = self.container()
        allocated, recorded = self.paced_in(daemon, container)
        self.assertLessEqual(recorded, allocated)
        self.assertGreater(recorded, 0)
        print(f"        the first process is recorded {(allocated - recorded) / 20:.1f} ms late", flush=True)
        for _ in range(2):
            allocated, recorded = self.paced_in(daemon, container)
            self.assertEqual(allocated, recorded)

    def test_one_file_in_two_containers(self):
        """Both overlay file systems show one file of the image: it is one file, and no sample counts twice."""
        daemon = self.daemon("--exact")
        puppets = [self.puppet_in(daemon, self.container()) for _ in range(2)]
        for number, puppet in enumerate(puppets):
            puppet.ask(f"keep {100 + number} 100")
        # A container with a library of its own: written, so it is copied up.
        own = self.container()
        with open(os.path.join(own.root, "libheaptap.so"), "ab") as file:
            file.write(b"\n")
        puppets.append(self.puppet_in(daemon, own))
        puppets[2].ask("keep 102 100")
        for number, puppet in enumerate(puppets):
            entry = daemon.processes()[puppet.target_pid]
            self.assertEqual((entry["samples"], entry["live_objects"], entry["losses"]),
                             (100 + number, 100 + number, {}))
        # The next collector knows it, too.
        daemon.restart()
        third = self.puppet_in(daemon, self.container())
        third.ask("keep 103 100")
        for number, puppet in enumerate([*puppets, third]):
            puppet.ask("keep 100 100")
            entry = daemon.processes()[puppet.target_pid]
            self.assertEqual((entry["samples"], entry["losses"]), (200 + number, {}))

    def test_a_file_system_can_go_when_its_processes_have_ended(self):
        """A probe keeps its file's mount busy: it goes, too, some time after the last process. Nobody else loses
        anything by that, and in the next container of this image all begins anew. Not only for containers: chroot(1)
        alone leaves the mount where the host can see it is busy."""
        daemon = self.daemon("--exact")
        going, staying = self.container(), self.container()
        with open(os.path.join(going.root, "libheaptap.so"), "ab") as file:
            file.write(b"\n")
        stays = self.puppet_in(daemon, staying)
        for name_spaces in ((), ("unshare", "--mount", "--pid", "--fork")):
            with self.subTest(name_spaces=name_spaces):
                allocated, recorded = self.paced_in(daemon, going, name_spaces=name_spaces)
                self.assertGreater(recorded, 0)
                self.assertLessEqual(recorded, allocated)
                wait_until(lambda: going.unmount() is None, "it can be unmounted")
                going.mount()
        stays.ask("keep 100 100")
        self.assertEqual(daemon.processes()[stays.target_pid]["samples"], 100)
        # So it is after a collector that did not see how it came to be mapped.
        self.paced_in(daemon, going, name_spaces=())
        daemon.restart()
        wait_until(lambda: going.unmount() is None, "it can be unmounted")
        stays.ask("keep 100 100")
        self.assertEqual(daemon.processes()[stays.target_pid]["samples"], 200)
