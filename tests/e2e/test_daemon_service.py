# SPDX-License-Identifier: Apache-2.0
"""The daemon as systemd runs it: the unit as it is installed, with exactly the capabilities that it gives."""

import os
import pwd
import re
import socket
import subprocess

from daemon import DaemonCase
from harness import HEAPTAP, PATIENCE_SECONDS, ROOT, Case, target

NOBODY = pwd.getpwnam("nobody")


def install(folder):
    """Where `make install` put things."""
    subprocess.run(["make", "-s", "-C", ROOT, "install", f"DESTDIR={folder}", "PREFIX=/usr"], check=True,
                   capture_output=True, timeout=PATIENCE_SECONDS)
    return os.path.join(folder, "usr")


class Unit(Case):
    needs_bpf = False

    def test_systemd_accepts_it(self):
        installed = install(self.folder)
        unit = os.path.join(installed, "share/heaptap/systemd/heaptap.service")
        with open(unit, encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn("@", re.sub(r"(?m)^#.*|@[a-z-]+(?= |$)", "", text), "something was not filled in")
        # systemd wants to find the program where the unit says.
        here = os.path.join(self.folder, "heaptap.service")
        with open(here, "w", encoding="utf-8") as file:
            file.write(text.replace("ExecStart=/usr/bin/heaptap", f"ExecStart={HEAPTAP}"))
        verified = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True,
                                  timeout=PATIENCE_SECONDS, check=False)
        self.assertEqual((verified.returncode, verified.stdout, verified.stderr), (0, "", ""))

    def test_the_example_configuration_is_all_comments(self):
        with open(os.path.join(install(self.folder), "share/heaptap/heaptap.conf"), encoding="utf-8") as file:
            self.assertEqual([line for line in file if line.strip() and not line.startswith("#")], [])


class Service(DaemonCase):
    def capabilities(self):
        with open(os.path.join(ROOT, "scripts/systemd/heaptap.service.in"), encoding="utf-8") as file:
            line = re.search(r"^CapabilityBoundingSet=(.*)$", file.read(), re.MULTILINE)[1]
        return [word.removeprefix("CAP_").lower() for word in line.split()]

    def test_its_capabilities_are_enough(self):
        """For another user's process: recorded, steered, dumped at its own wish and at its death."""
        bounding = ",".join(["-all"] + [f"+{name}" for name in self.capabilities()])
        collector = self.daemon("--exact", before=["setpriv", "--no-new-privs", "--bounding-set", bounding])
        process = self.preloaded(target("steered"), talks=True, user=NOBODY.pw_uid, group=NOBODY.pw_gid,
                                 env={"MALLOC_CONF": "prof:true,lg_prof_sample:0"})
        self.assertRegex(process.answer(), "ready")
        process.ask("keep 10 65536")
        entry = collector.processes()[process.pid]
        self.assertEqual(entry["owner"], NOBODY.pw_uid)
        collector.client("active", process.pid, "off")
        self.assertEqual(process.ask("read bool prof.active"), "0 false")
        collector.client("active", process.pid, "on")
        self.assertIn("keep_blocks", collector.get(f"/pid/{process.pid}/collapsed").body.decode())
        process.popen.kill()
        self.assertEqual(process.wait(), -9)
        collector.wait_said(rf"^heaptap: wrote .*/steered\.{process.pid}\.0\.f\.heap: ")

    def test_it_tells_the_manager(self):
        path = os.path.join(self.folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(PATIENCE_SECONDS)
            collector = self.daemon(env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000000"})
            self.assertIn(b"READY=1", manager.recv(4096))
            self.assertIn(b"WATCHDOG=1", manager.recv(4096))
            collector.stop()
            while b"STOPPING=1" not in (said := manager.recv(4096)):
                self.assertIn(b"WATCHDOG=1", said)
