# SPDX-License-Identifier: Apache-2.0
"""redis-server with the guest over each host, recorded, under a load that knows what it must answer. Nothing is damaged, and
forked children write all data. In the soak the servers run side by side, and their memory does not grow.

HEAPTAP_LONG=1: a soak of an hour; otherwise of a minute. HEAPTAP_SOAK_SECONDS sets another time.
"""

import os
import re
import signal
import statistics
import time

import pytest

import guests
from harness import LONG, TIME_SCALE, wait_until
from process_tree import resident_mib
from redis_client import KEYS, Client, Load

SECONDS = float(os.environ.get("HEAPTAP_SOAK_SECONDS", 3600 if LONG else 60))
# redis-server is linked with jemalloc, which is its host unless another one comes first.
HOSTS = {**guests.HOSTS, "glibc": "/lib/x86_64-linux-gnu/libc.so.6"}
# One in 16 KiB: each second has some hundred samples, also large ones.
RATE = ("--lg-sample", "14")

LEAST_SAMPLES = 1000

# A round: so many commands for each server, and then a pause, so that the machine is not busy.
STEPS = 100
PAUSE_SECONDS = 0.1
# Rounds between two forks, two huge values, and two measurements.
FORK_ROUNDS, HUGE_ROUNDS, MEASURED_ROUNDS = 50, 7, 5
FEW_ROUNDS = 2 * FORK_ROUNDS
# Until each key has had a value, and most have had several.
LEAST_ROUNDS = 20 * KEYS // STEPS

MIB = 1 << 20
# Hosts keep free memory: how much depends on the order of the commands. A leak of one value in a hundred would be more in a
# minute.
NOISE_MIB = 10


class Server:
    def __init__(self, lab, host):
        folder = lab.path(host)
        os.mkdir(folder)
        path = os.path.join(folder, "redis.sock")
        self.host = host
        self.session = lab.heaptap("run", "--guest", *RATE, "--", "redis-server", "--port", "0", "--unixsocket", path, "--save", "",
                                   "--dir", folder, env={"LD_PRELOAD": HOSTS[host]})
        wait_until(lambda: self._answers(path), f"redis over {host} answers")
        client = Client(path)
        self.pid = int(re.search(rb"^process_id:(\d+)", client.call("info", "server"), re.MULTILINE).group(1))
        client.close()
        self.load = Load(path, host)
        self.resident = []

    def _answers(self, path):
        assert self.session.alive(), self.session.stderr()
        try:
            client = Client(path)
        except OSError:
            return False
        client.close()
        return True

    def has_its_host(self):
        """Whether both libraries are there, of which the order is heaptap's."""
        with open(f"/proc/{self.pid}/maps", encoding="utf-8") as file:
            names = {line.split(maxsplit=5)[-1].strip() for line in file}
        return os.path.realpath(HOSTS[self.host]) in names and any(name.endswith("/libheaptap-guest.so") for name in names)

    def round(self, number):
        for _ in range(STEPS):
            self.load.step()
        if number % HUGE_ROUNDS == 0:
            self.load.huge()
        if number % FORK_ROUNDS == 0 and not self.load.forks():
            assert self.load.fork()
        # A child's pages would count too.
        elif number % MEASURED_ROUNDS == 0 and not self.load.forks():
            self.resident.append(resident_mib(self.pid) - self.load.bytes() / MIB)

    def growth(self):
        """Memory beside the values, in the second quarter and in the last one, in MiB."""
        quarter = len(self.resident) // 4
        return statistics.median(self.resident[quarter:2 * quarter]), statistics.median(self.resident[-quarter:])

    def end(self):
        wait_until(lambda: not self.load.forks(), "no child writes")
        self.load.check_all()
        self.load.end()
        os.kill(self.pid, signal.SIGTERM)
        self.session.ends()
        return max(entry["samples_allocated"] for entry in self.session.books())


@pytest.mark.parametrize("host", HOSTS)
def test_a_server_over_each_host(lab, host):
    server = Server(lab, host)
    assert server.has_its_host()
    for number in range(1, FEW_ROUNDS + 1):
        server.round(number)
    assert server.end() > LEAST_SAMPLES


@pytest.mark.endurance
@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS + 600 * TIME_SCALE)
def test_soak(lab, held):
    servers = [Server(lab, host) for host in HOSTS]
    assert all(server.has_its_host() for server in servers)
    end = time.monotonic() + SECONDS
    number = 0
    while time.monotonic() < end or number < LEAST_ROUNDS:
        number += 1
        for server in servers:
            server.round(number)
        time.sleep(PAUSE_SECONDS)
    for server in servers:
        before, after = server.growth()
        samples = server.end()
        held(f"redis over {server.host}: memory beside its values, {server.load.commands} commands, {samples} samples",
             f"< {NOISE_MIB} MiB more", f"{before:.0f} MiB, then {after:.0f}")
        assert samples > LEAST_SAMPLES
        assert after <= before + NOISE_MIB, server.resident
