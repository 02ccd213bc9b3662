# SPDX-License-Identifier: Apache-2.0
"""How much memory answers take: no user can make the daemon take all that it may have, and what they took goes back to
the kernel."""

import re
import subprocess
import sys
import threading

import pytest

from attackers import start_hostile
from daemons import EXACT, NOBODY
from harness import HEAPTAP, target, wait_until

pytestmark = pytest.mark.skipif("/sanitized/" in HEAPTAP, reason="sanitizers take and keep more memory")

# An idle daemon has 7. Without any care of the daemon the C library keeps 80 to 190.
MOST_IDLE_MIB = 48
# As many as one user may have.
CONNECTIONS = 8
# What the answers of a user may take (AnswerRoom), one answer more, and what it takes to make it: four of 39 MiB.
MOST_OF_USER_MIB = 330
MOST_ANSWERS = 4
# The longest text of call paths (kMaxCollapsedBytes), and what it takes to make it.
MOST_OF_TEXT_MIB = 420
# 65,536 call paths.
PATH_BITS = 16

# Asks for a page over so many connections at once and reads the first line of each answer only.
NEVER_READ = """
import socket, sys
path, page, count = sys.argv[1:]
connections = [socket.socket(socket.AF_UNIX) for _ in range(int(count))]
for connection in connections:
    connection.connect(path)
    connection.sendall(f"GET {page} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
print("ready", 0, flush=True)
print(*sorted(connection.recv(12).split()[1].decode() for connection in connections), flush=True)
input()
"""


def memory_mib(daemon, field):
    with open(f"/proc/{daemon.process.pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{field}:")) / 1024


def with_many_paths(lab, daemon, *command):
    process = start_hostile(lab, *command, env=EXACT)
    wait_until(lambda: process.pid in daemon.processes(), "it is recorded")
    process.ask(f"paths {PATH_BITS}")
    daemon.settle()
    return process


def test_after_large_profiles(lab, start_daemon):
    daemon = start_daemon("--exact", "--dump-at-exit", "never")
    process = with_many_paths(lab, daemon)
    sizes = []

    def get():
        sizes.append(len(daemon.get(f"/pid/{process.pid}/heap").body))
    clients = [threading.Thread(target=get) for _ in range(CONNECTIONS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert len(sizes) == CONNECTIONS and min(sizes) > 30_000_000
    wait_until(lambda: memory_mib(daemon, "RssAnon") < MOST_IDLE_MIB, "the memory is given back")


def test_clients_that_do_not_read(lab, start_daemon, held):
    daemon = start_daemon("--exact", "--dump-at-exit", "never")
    process = with_many_paths(lab, daemon)
    before = memory_mib(daemon, "RssAnon")
    client = lab.program(sys.executable, "-c", NEVER_READ, daemon.socket, f"/pid/{process.pid}/heap", CONNECTIONS,
                         talks=True, **NOBODY)
    assert client.answer() == "ready 0"
    answers = client.answer().split()
    most = memory_mib(daemon, "VmHWM") - (memory_mib(daemon, "VmRSS") - memory_mib(daemon, "RssAnon")) - before
    # On a slow machine the user's time may be used up before (429).
    assert 1 <= answers.count("200") <= MOST_ANSWERS and set(answers) <= {"200", "503", "429"}, answers
    assert most < MOST_OF_USER_MIB, most
    held("eight clients of a user that do not read a profile of 65,536 call paths: memory", f"{MOST_OF_USER_MIB} MiB",
         f"{most:.0f} MiB")
    assert daemon.metrics()['heaptap_beyond_bound_total{bound="answer_room"}'] == answers.count("503")
    assert daemon.get(f"/pid/{process.pid}/heap").status == 200, "answers to root have no bound"
    client.tell("end")
    client.ends()
    wait_until(lambda: memory_mib(daemon, "RssAnon") < MOST_IDLE_MIB, "the memory is given back")


def test_very_long_names(lab, start_daemon, held):
    """A call path has up to sixteen names of 8 KiB: the text of all would take 4 GiB."""
    program = lab.path("long_names")
    subprocess.run(["objcopy", "--strip-debug", "--redefine-sym", f"go_left={'n' * 8192}", target("hostile"), program],
                   check=True)
    daemon = start_daemon("--exact", "--dump-at-exit", "never")
    process = with_many_paths(lab, daemon, program)
    before = memory_mib(daemon, "RssAnon")
    for page in ("collapsed", "heap?format=collapsed"):
        answer = daemon.get(f"/pid/{process.pid}/{page}")
        assert answer.status == 406 and b"more than 128 MiB" in answer.body, answer.body[:200]
    most = memory_mib(daemon, "VmHWM") - (memory_mib(daemon, "VmRSS") - memory_mib(daemon, "RssAnon")) - before
    assert most < MOST_OF_TEXT_MIB, most
    held("collapsed stacks of 65,536 call paths with names of 8 KiB: memory", f"{MOST_OF_TEXT_MIB} MiB", f"{most:.0f} MiB")
    for name in ("pprof", "jeprof"):
        assert daemon.get(f"/pid/{process.pid}/heap?format={name}").status == 200
    # A client may ask for the same name again and again.
    heap = daemon.get(f"/pid/{process.pid}/heap").body.decode()
    addresses = set(re.findall("0x[0-9a-f]+", heap[:heap.index("MAPPED_LIBRARIES")]))
    names = daemon.request("POST", f"/pid/{process.pid}/pprof/symbol", body="+".join(addresses)).body.decode()
    (long_one, *_) = re.findall(r"^(0x\w+)\tn{8192}", names, re.MULTILINE)
    answer = daemon.request("POST", f"/pid/{process.pid}/pprof/symbol", body="+".join([long_one] * 20000))
    assert answer.status == 400 and b"more than 64 MiB" in answer.body, answer.body[:200]
