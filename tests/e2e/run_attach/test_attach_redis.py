# SPDX-License-Identifier: Apache-2.0
"""heaptap attach to Debian's redis-server, started with only the preload, under the load of redis-benchmark."""

import os
import re
import signal
import subprocess

import symbols
from harness import LIBRARY, environment, wait_until

# Functions at the outermost end of a complete call path, of the first thread and of others.
ROOTS = {"_start", "__libc_start_main", "__libc_start_call_main", "main", "start_thread", "__clone3", "clone3",
         "__clone", "clone"}


def redis_cli(lab, *arguments):
    return subprocess.run(["redis-cli", "-s", lab.path("redis.sock"), *arguments], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, env=environment(lab.folder), check=False).stdout.strip()


def commands(lab):
    """The number of commands that the server has executed."""
    return int(re.search(r"total_commands_processed:(\d+)", redis_cli(lab, "info", "stats")).group(1))


def test_redis_under_load(lab, held):
    socket = lab.path("redis.sock")
    server = lab.program("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir",
                         lab.folder, env={"LD_PRELOAD": LIBRARY})
    wait_until(lambda: redis_cli(lab, "ping") == "PONG", "redis answers")
    loads = [lab.program("redis-benchmark", "-s", socket, "-n", "100000000", "-c", "10", "-r", "1000000",
                         "-d", "200", "-t", what) for what in ("set", "lpush", "hset", "sadd")]
    session = lab.attach(server.pid, "--lg-sample", "14")
    enough = commands(lab) + 50000
    wait_until(lambda: commands(lab) > enough, "redis does 50000 commands")
    session.signal(signal.SIGINT)
    session.ends()
    for load in loads:
        load.signal(signal.SIGKILL)
        load.wait()
    assert redis_cli(lab, "ping") == "PONG"
    redis_cli(lab, "shutdown", "nosave")
    server.ends()
    dump = lab.only_dump(server.pid, "f")
    assert dump.total.objects > 100
    (warning,) = dump.warnings
    assert "beginning of the process not recorded" in warning
    of_redis = rooted = 0
    functions = set()
    for stack in dump.stacks:
        known = symbols.names(dump, stack)
        paths = [mapping.path if mapping else "" for mapping in map(dump.mapping, stack.frames)]
        own = {name for name, path in zip(known, paths) if name and "redis" in os.path.basename(path)}
        functions |= own
        of_redis += bool(own)
        rooted += bool(ROOTS & set(known[-3:]))
    count = len(dump.stacks)
    # Functions of redis, which exports them all. Only one thread belongs to the allocator.
    assert functions & {"zmalloc", "zmalloc_usable", "ztrymalloc_usable", "zrealloc"}, functions
    assert of_redis >= 0.9 * count
    assert rooted == count
    held("call paths of redis-server that end at a root", "all", f"{rooted} of {count}")
    held("call paths of redis-server through its own functions", "90 %", f"{of_redis} of {count}")
    text = lab.reader("jeprof", "--text", os.path.realpath("/usr/bin/redis-server"), lab.dumps()[0].path)
    assert re.search(r"zmalloc|sds|dict|createObject", text), text
