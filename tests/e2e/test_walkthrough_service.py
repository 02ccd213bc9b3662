# SPDX-License-Identifier: Apache-2.0
"""Red Hat Directory Server's recipe: a systemd drop-in sets LD_PRELOAD and MALLOC_CONF, and after the service has
stopped its leak summary and statistics are in the journal (its stderr) and its dump is under /run.

PID 1 is not systemd here. systemd-analyze verify reads the drop-in as systemd does; then the unit's command runs as
the unit's user with exactly the environment that the drop-in says, but for the library's path.
"""

import math
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess

from harness import PATIENCE_SECONDS, ROOT, Case, target, wait_until
from libmtev import Endpoints
from walkthrough import MI, SAYS, OnHeaptap, OnJemalloc, Steering, said

DROP_IN = os.path.join(ROOT, "scripts", "systemd", "profiled.conf")
INSTALLED_LIBRARY = "/usr/local/lib/heaptap/libheaptap.so"
NAME = "heaptap-test"
RUNTIME = f"/run/{NAME}"

# Two services: one that is linked with no allocator, and one that is linked with jemalloc itself.
UNIT = """
[Unit]
Description=A server

[Service]
User=daemon
ExecStart={command}
"""
SERVER = target("mtev_endpoints")
REDIS = '/usr/bin/redis-server --port 0 --unixsocket %t/%N/redis.socket --save "" --appendonly no --daemonize no'

# 32768 blocks of 4 KiB, 128 MiB, on one call path. A block is a sample with p = 1 - exp(-4096 / 2^19), so the estimate
# has a relative standard error of sqrt((1 - p) / (p N)) = 6.2 %. The environment is the drop-in's, so no seed is fixed:
# the bound is six standard errors (one run in 10^9), and 10 MiB for what a server holds besides.
BLOCKS, BLOCK, RATE = 32768, 4096, 1 << 19
_P = -math.expm1(-BLOCK / RATE)
BOUND = 6 * BLOCKS * BLOCK * math.sqrt((1 - _P) / (_P * BLOCKS)) + 10 * MI


def settings(text):
    """[(key, value)] of a unit file's [Service] section, %t and %N replaced."""
    found, section = [], None
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line
        elif line and not line.startswith("#") and section == "[Service]":
            key, value = line.split("=", 1)
            found.append((key, value.replace("%t", "/run").replace("%N", NAME)))
    return found


def drop_in():
    with open(DROP_IN, encoding="utf-8") as file:
        return file.read()


class Service(Steering):
    def setUp(self):
        super().setUp()
        # What RuntimeDirectory= asks of systemd.
        self.assertIn(("RuntimeDirectory", NAME), settings(drop_in()))
        self.user = pwd.getpwnam(dict(settings(UNIT))["User"])
        shutil.rmtree(RUNTIME, ignore_errors=True)
        os.mkdir(RUNTIME)
        os.chown(RUNTIME, self.user.pw_uid, self.user.pw_gid)
        self.addCleanup(shutil.rmtree, RUNTIME, ignore_errors=True)

    def service(self, command, **options):
        """The service as systemd would start it."""
        words = [word.split("=", 1) for key, value in settings(drop_in()) if key == "Environment"
                 for word in shlex.split(value)]
        env = dict(words)
        self.assertEqual(env["LD_PRELOAD"], INSTALLED_LIBRARY)
        env["LD_PRELOAD"] = self.library
        execute = dict(settings(UNIT.format(command=command)))["ExecStart"]
        return self.program(*shlex.split(execute), env=env, user=self.user.pw_uid, group=self.user.pw_gid,
                            extra_groups=[], cwd=RUNTIME, **options)

    def assert_stopped(self, service):
        """SIGTERM, and what is then in the journal and under /run."""
        service.signal(15)
        self.assertEqual(service.wait(), 0, service.stderr())
        lines = said(service)
        (summary,) = [line for line in lines if "Leak approximation summary" in line]
        leaked = int(re.match(rf"{SAYS}Leak approximation summary: ~(\d+) bytes, ~\d+ objects, >= \d+ contexts?$",
                              summary).group(1))
        self.assertLessEqual(abs(leaked - BLOCKS * BLOCK), BOUND)
        self.assertIn(f"{SAYS}Run jeprof on dump output for leak detail", lines)
        self.assertEqual(lines.count("___ Begin jemalloc statistics ___"), 1)
        self.assertEqual(lines.count("--- End jemalloc statistics ---"), 1)
        (allocated,) = re.findall(r"^Allocated: (\d+), active: \d+, metadata: \d+.*, resident: \d+, mapped: \d+",
                                  service.stderr(), re.MULTILINE)
        self.assertLessEqual(BLOCKS * BLOCK, int(allocated))
        self.assertLessEqual(int(allocated), BLOCKS * BLOCK + 20 * MI)
        self.assertEqual([name for name in os.listdir(RUNTIME) if name.endswith(".heap")],
                         [f"heap.{service.pid}.0.f.heap"])
        (name,) = self.dumps(folder=RUNTIME)
        dump = name.read()
        self.assertLessEqual(abs(dump.estimate(dump.stacks).bytes - BLOCKS * BLOCK), BOUND)
        self.assertEqual(os.stat(name.path).st_uid, self.user.pw_uid)

    def test_stopped_service(self):
        service = self.service(SERVER, talks=True)
        endpoints = Endpoints(service)
        self.watch(service)
        self.assertEqual(endpoints.get(f"/application/keep?blocks={BLOCKS}&size={BLOCK}").status, 200)
        self.assert_stopped(service)

    def test_service_linked_with_jemalloc(self):
        """Debian's redis-server: its own libjemalloc.so.2 must neither allocate nor dump nor print."""
        service = self.service(REDIS)
        wait_until(lambda: os.path.exists(f"{RUNTIME}/redis.socket"), "the server listens")
        self.watch(service)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_SECONDS)
            connection.connect(f"{RUNTIME}/redis.socket")
            answers = connection.makefile("rb")
            for first in range(0, BLOCKS, 1024):
                connection.sendall(b"".join(b"SET %d %s\r\n" % (key, b"x" * 4000)
                                            for key in range(first, first + 1024)))
                for _ in range(1024):
                    self.assertEqual(answers.readline(), b"+OK\r\n")
        self.assert_stopped(service)


class ServiceJemalloc(Service, OnJemalloc):
    def watch(self, service):
        pass


class ServiceHeaptap(Service, OnHeaptap):
    def watch(self, service):
        self.attach(service.pid, "-o", os.path.join(self.folder, "collector"))


class DropIn(Case):
    needs_bpf = False

    def complaints(self, text):
        """What systemd says of the unit with this drop-in."""
        folder = os.path.join(self.folder, f"{NAME}.service.d")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(self.folder, f"{NAME}.service"), "w", encoding="utf-8") as file:
            file.write(UNIT.format(command=SERVER))
        with open(os.path.join(folder, "heaptap.conf"), "w", encoding="utf-8") as file:
            file.write(text)
        result = subprocess.run(["systemd-analyze", "verify", "--man=no", f"./{NAME}.service"], cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_SECONDS,
                                check=False)
        self.assertEqual(result.returncode, 0, result.stdout)
        return [line for line in result.stdout.splitlines() if NAME in line]

    def test_systemd_understands_it(self):
        """Not one complaint; and of a word that systemd does not know there is one."""
        self.assertEqual(self.complaints(drop_in()), [])
        for wrong in ("Enviroment=A=1\n", "RuntimeDirectoryPreserve=perhaps\n"):
            self.assertEqual(len(self.complaints(drop_in() + wrong)), 1)
