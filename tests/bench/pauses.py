# SPDX-License-Identifier: Apache-2.0
"""How long clients wait for a profile with very many call paths, and events for the daemon meanwhile."""

import os
import re
import signal
import subprocess
import time
import urllib.request

import harness
from table import print_table

PATH_BITS = 17
PATHS = 100000
UNRECORDED = 20000  # more than the process allocates before the daemon has set its rate
WINDOW_SECONDS = 21  # heaptap_longest_pause_seconds forgets a pause after 20
BUSY_PATHS = os.path.join(harness.BUILD, "tests", "bench", "busy_paths")


def _get(address):
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read()


def _longest_pause(base):
    return float(re.search(rb"^heaptap_longest_pause_seconds (\S+)$", _get(f"{base}/metrics"), re.M).group(1))


def _contexts(base, process):
    found = re.search(rb'^heaptap_contexts{pid="%d"[^}]*} (\d+)$' % process.pid, _get(f"{base}/metrics"), re.M)
    return int(found.group(1)) if found else -1


def _start(command):
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            env=dict(os.environ, LD_PRELOAD=harness.LIBRARY, MALLOC_CONF="prof:true"))


def pauses(folder):
    configuration = os.path.join(folder, "empty.conf")
    open(configuration, "x", encoding="ascii").close()
    socket = os.path.join(folder, "s")
    daemon = harness.Process([harness.HEAPTAP, "daemon", "--config", configuration, "--state-dir", os.path.join(folder, "state"),
                              "--socket", socket, "--pin-dir", "none", "--lg-sample", "0", "--budget", "0", "--history", "none",
                              "--dump-at-exit", "always", "--listen", "127.0.0.1:0"], folder)
    daemon.wait_said("recording; ")
    base = "http://127.0.0.1:" + re.search(r"http://127\.0\.0\.1:(\d+)", daemon.stderr()).group(1)
    # The probes are attached when the first process maps the library.
    first = _start(["cat"])
    harness.wait_until(lambda: _contexts(base, first) >= 0, "the first process is recorded")
    busy = _start([BUSY_PATHS, str(PATH_BITS), "10", str(PATHS + UNRECORDED)])
    harness.wait_until(lambda: _contexts(base, busy) >= PATHS, "all call paths are recorded")

    def dump_of_signal():
        count = daemon.stderr().count("wrote ")
        daemon.signal(signal.SIGUSR1)
        harness.wait_until(lambda: daemon.stderr().count("wrote ") > count, "the dump")

    def dump_of_itself():
        print(os.path.join(folder, "dump"), file=busy.stdin, flush=True)
        assert busy.stdout.readline() == "done\n"

    def end():
        # The profile at the end, and then the books are forgotten.
        count = daemon.stderr().count("wrote ")
        busy.stdin.close()
        busy.wait()
        harness.wait_until(lambda: daemon.stderr().count("wrote ") > count, "the last dump")
        time.sleep(1)

    client = [harness.HEAPTAP, "dump", "--socket", socket]
    steps = {
        "nothing": lambda: None,
        "the metrics": lambda: _get(f"{base}/metrics"),
        "a profile over HTTP": lambda: _get(f"{base}/pid/{busy.pid}/heap"),
        "the same in pprof's format": lambda: _get(f"{base}/pid/{busy.pid}/heap?format=pprof"),
        "heaptap dump": lambda: subprocess.run([*client, str(busy.pid)], check=True, stdout=subprocess.DEVNULL),
        "SIGUSR1": dump_of_signal,
        "prof.dump": dump_of_itself,
        "its end": end,
    }
    result = {}
    paths = _contexts(base, busy)
    for name, step in steps.items():
        time.sleep(WINDOW_SECONDS)
        begin = time.monotonic()
        step()
        seconds = time.monotonic() - begin
        result[name] = {"seconds": seconds, "pause": _longest_pause(base)}
    print_table(f"The daemon, a process with {paths:,} call paths", ["ms", "longest pause of the daemon, ms"],
                [(name, [f"{1000 * one['seconds']:.0f}", f"{1000 * one['pause']:.1f}"]) for name, one in result.items()])
    first.stdin.close()
    first.wait()
    daemon.signal(signal.SIGINT)
    daemon.wait()
    return {"paths": paths, "steps": result}
