# SPDX-License-Identifier: Apache-2.0
"""Programs under load with the guest over their own allocators: a daemon comes and goes while they work, and another one
comes. They answer as before, nothing is lost, and the books balance (which the fixtures check).

redis-server is linked with jemalloc; the others run over glibc, tcmalloc and mimalloc.
"""

import os
import re
import shutil
import signal
import subprocess

import guests
from harness import GUEST, PATIENCE_SECONDS, environment, wait_until
from programs import POSTGRES

RATE = ("--lg-sample", "16")
# Nothing below depends on which allocations are samples; the seed is fixed all the same.
SEED = {"HEAPTAP_CONF": "prof_seed:1"}
NODE = """
const lines = require("readline").createInterface({input: process.stdin});
let done = false, rounds = 0;
lines.on("close", () => { done = true; });
function work() {
  let texts = [];
  for (let i = 0; i < 20000; i++) texts.push(Buffer.alloc(100 + i % 3000, "x").toString());
  rounds++;
  if (new Set(texts).size !== 3000) throw new Error("wrong");
  if (done) console.log("right"); else setImmediate(work);
}
work();
"""
PYTHON = """
import json, select, sys
rounds = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    document = json.loads(json.dumps({str(i): [i, "x" * (i % 3000)] for i in range(5000)}))
    assert sum(len(text) for _, text in document.values()) == 6497500
print("right")
"""
SOURCE = "#include <map>\n#include <string>\nstd::map<std::string, int> map;\nint main() { return map[\"x\"]; }\n"


class Postgres:
    """A server in a new folder, as nobody, and pgbench."""

    def __init__(self, lab):
        self._lab = lab
        self._folder = lab.path("pg")
        os.mkdir(self._folder)
        shutil.chown(self._folder, 65534, 65534)
        # In a folder that the user "nobody" can read.
        library = lab.path("libheaptap-guest.so")
        shutil.copy(GUEST, library)
        self._as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        data = os.path.join(self._folder, "data")
        subprocess.run([*self._as_nobody, f"{POSTGRES}/initdb", "-D", data, "-U", "nobody", "--no-sync", "-A", "trust",
                        "--no-instructions"], check=True, stdout=subprocess.DEVNULL, cwd=self._folder,
                       env=environment(self._folder))
        self.server = lab.program(*self._as_nobody, f"{POSTGRES}/postgres", "-D", data, "-k", self._folder, "-h", "", "-F",
                                  env={"LD_PRELOAD": f"{library} {guests.HOSTS['tcmalloc']}", **SEED}, cwd=self._folder)
        wait_until(lambda: self.sql("select 1") == "1", "PostgreSQL answers")
        self.bench("-i", "-s", "1").ends()

    def sql(self, text):
        return subprocess.run([f"{POSTGRES}/psql", "-h", self._folder, "-U", "nobody", "-AtX", "-d", "postgres", "-c", text],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              env=environment(self._folder)).stdout.strip()

    def bench(self, *arguments):
        return self._lab.program(f"{POSTGRES}/pgbench", *arguments, "-h", self._folder, "-U", "nobody", "postgres")


class Redis:
    def __init__(self, lab):
        self._lab = lab
        self._socket = lab.path("redis.sock")
        self.server = lab.program("redis-server", "--port", "0", "--unixsocket", self._socket, "--save", "", "--dir",
                                  lab.folder, env={"LD_PRELOAD": GUEST, **SEED})
        wait_until(lambda: self.ask("ping") == "PONG", "redis answers")

    def ask(self, *arguments):
        return subprocess.run(["redis-cli", "-s", self._socket, *arguments], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, env=environment(self._lab.folder), check=False).stdout.strip()

    def load(self):
        return self._lab.program("redis-benchmark", "-s", self._socket, "-l", "-r", "10000", "-d", "500",
                                 "-t", "set,get,lpush,lrange_100,hset,zadd")


class Recorded:
    """The samples of programs under load, by command. How fast they come depends on the machine, so a wait goes on while a
    program gains samples, however slowly."""

    ENOUGH = 100

    def __init__(self, daemon):
        self._daemon = daemon
        self.samples = {}

    def _look(self):
        for entry in self._daemon.processes().values():
            command = entry["command"]
            self.samples[command] = max(entry["samples"], self.samples.get(command, 0))

    def wait(self, commands):
        """Until a process of each command has enough samples. Fails if none of those that have fewer gains one."""
        def behind():
            return {command: self.samples.get(command, 0) for command in commands if self.samples.get(command, 0) <= self.ENOUGH}

        def gains(before):
            self._look()
            return any(self.samples.get(command, 0) > count for command, count in before.items())
        while missing := behind():
            wait_until(lambda before=missing: gains(before), f"one of {missing} gains a sample")


def assert_compiles(lab):
    """clang gives the same object, with the guest and without."""
    objects = []
    for number, env in enumerate(({}, {**guests.preload("mimalloc"), **SEED})):
        lab.program("clang++", "-O1", "-c", lab.path("source.cc"), "-o", f"{number}.o", env=env).ends(seconds=PATIENCE_SECONDS)
        with open(lab.path(f"{number}.o"), "rb") as file:
            objects.append(file.read())
    assert objects[0] == objects[1]


def test_a_collector_comes_and_goes(lab, new_daemon, held):
    with open(lab.path("source.cc"), "w", encoding="ascii") as file:
        file.write(SOURCE)
    redis, postgres = Redis(lab), Postgres(lab)
    bench = postgres.bench("-c", "4", "-T", "1000", "-n")
    load = redis.load()
    scripts = [lab.program("/usr/bin/python3", "-c", PYTHON, talks=True,
                           env={**guests.preload("glibc"), **SEED, "PYTHONMALLOC": "malloc"}),
               lab.program("node", "-e", NODE, talks=True, env={**guests.preload("mimalloc"), **SEED})]
    names = {"redis-server", "postgres", "python3", "node"}
    recorded = []
    for _ in range(2):
        daemon = new_daemon(*RATE)
        daemon.start()
        recorded.append(Recorded(daemon))
        recorded[-1].wait(names)
        assert_compiles(lab)
        daemon.end()
        assert all(process.alive() for process in (redis.server, postgres.server, bench, load, *scripts))
    for process in scripts:
        process.popen.stdin.close()
        process.ends()
        assert process.popen.stdout.read() == b"right\n"
        assert process.stderr() == ""
    for process in (load, bench):
        process.signal(signal.SIGINT)
        process.wait()
    assert redis.ask("ping") == "PONG"
    assert re.fullmatch(r"\d+", redis.ask("dbsize"))
    redis.ask("shutdown", "nosave")
    redis.server.ends()
    # The sums of a bank.
    assert postgres.sql("select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history), "
                        "(select count(*) > 100 from pgbench_history)") == "t|t"
    postgres.server.signal(signal.SIGINT)
    postgres.server.ends()
    held("samples of programs under load, two recordings", "> 800",
         " and ".join(str(sum(one.samples.values())) for one in recorded))
