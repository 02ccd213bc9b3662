# SPDX-License-Identifier: Apache-2.0
"""Red Hat Directory Server's recipe: a systemd drop-in sets LD_PRELOAD and MALLOC_CONF. After the service has stopped, its
leak summary and statistics are in the journal (its stderr) and its dump is under /run.

PID 1 is not systemd here. systemd-analyze verify checks the drop-in; then the unit's command runs as the unit's user with
exactly the drop-in's environment, except for the library's path and the seed of its samples.
"""

import math
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess

import pytest

from allocators import MI, SAYS, Heaptap, jeprof, said, table, text_of_pdf, total
from harness import PATIENCE_SECONDS, ROOT, find_dumps, target, wait_until
from libmtev import Endpoints

DROP_IN = os.path.join(ROOT, "scripts", "systemd", "profiled.conf")
INSTALLED_LIBRARY = "/usr/local/lib/heaptap/libheaptap.so"
NAME = f"heaptap-test-{os.getpid()}"
RUNTIME = f"/run/{NAME}"

# Two services: one that is linked with no allocator, and one that is linked with jemalloc.
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
# has a relative standard error of sqrt((1 - p) / (p N)) = 6.2 %. Under heaptap the seed is fixed. Debian's jemalloc takes
# its seeds from addresses, so they differ with each run: the bound is six standard errors, and 10 MiB, another 1.2, of which
# a server takes less than a fifth: it fails in one of 10^11 runs.
BLOCKS, BLOCK, RATE = 32768, 4096, 1 << 19
SEED = "prof_seed:1"
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


USER = pwd.getpwnam(dict(settings(UNIT))["User"])


@pytest.fixture
def runtime():
    """Does what RuntimeDirectory= requires of systemd."""
    assert ("RuntimeDirectory", NAME) in settings(drop_in())
    os.mkdir(RUNTIME)
    os.chown(RUNTIME, USER.pw_uid, USER.pw_gid)
    yield
    shutil.rmtree(RUNTIME, ignore_errors=True)


def start_service(lab, allocator, command, **options):
    """Starts the service like systemd would."""
    words = [word.split("=", 1) for key, value in settings(drop_in()) if key == "Environment"
             for word in shlex.split(value)]
    env = dict(words)
    assert env["LD_PRELOAD"] == INSTALLED_LIBRARY
    env["LD_PRELOAD"] = allocator.library
    assert env.setdefault("HEAPTAP_CONF", SEED) == SEED, "the drop-in sets none"
    execute = dict(settings(UNIT.format(command=command)))["ExecStart"]
    return lab.program(*shlex.split(execute), env=env, user=USER.pw_uid, group=USER.pw_gid,
                       extra_groups=[], cwd=RUNTIME, **options)


def watch(lab, allocator, service):
    if isinstance(allocator, Heaptap):
        lab.attach(service.pid, "-o", lab.path("collector"))


def assert_stopped(lab, service):
    """Sends SIGTERM and checks the journal and the dump under /run."""
    service.signal(15)
    service.ends()
    lines = said(service)
    (summary,) = [line for line in lines if "Leak approximation summary" in line]
    leaked = int(re.match(rf"{SAYS}Leak approximation summary: ~(\d+) bytes, ~\d+ objects, >= \d+ contexts?$",
                          summary).group(1))
    assert abs(leaked - BLOCKS * BLOCK) <= BOUND
    assert f"{SAYS}Run jeprof on dump output for leak detail" in lines
    assert lines.count("___ Begin jemalloc statistics ___") == 1
    assert lines.count("--- End jemalloc statistics ---") == 1
    (allocated,) = re.findall(r"^Allocated: (\d+), active: \d+, metadata: \d+.*, resident: \d+, mapped: \d+",
                              service.stderr(), re.MULTILINE)
    assert BLOCKS * BLOCK <= int(allocated)
    assert int(allocated) <= BLOCKS * BLOCK + 20 * MI
    assert [name for name in os.listdir(RUNTIME) if name.endswith(".heap")] == [f"heap.{service.pid}.0.f.heap"]
    (name,) = find_dumps(RUNTIME)
    dump = name.read()
    assert abs(dump.estimate(dump.stacks).bytes - BLOCKS * BLOCK) <= BOUND
    assert os.stat(name.path).st_uid == USER.pw_uid


def assert_read(lab, program, function):
    """The last step of the recipe, with heaptap report in place of jeprof: a table, and a graph as a PDF.

    Returns both tables. They have equal names where the program has symbols: in a stripped library jeprof takes the
    nearest exported function for a name.
    """
    (dump,) = find_dumps(RUNTIME)
    expected = re.sub(r"(?m)^Using local file .*\n", "", jeprof(lab, "--text", "--show_bytes", program, dump.path).decode())
    # Heaptap attached to the service later than it began.
    beginning = "heaptap: missing: .*beginning of the process not recorded"
    text = lab.answer_of("report", "--text", "--show_bytes", dump.path, may_say=beginning)
    assert total(text) == total(expected)
    assert table(text)[function] == table(expected)[function]
    lab.answer_of("report", "--pdf", "-o", lab.path("report.pdf"), dump.path, may_say=beginning)
    pages, graph = text_of_pdf(lab.path("report.pdf"))
    assert pages == 1 and function in graph, graph
    return text, expected


def test_stopped_service(lab, allocator, runtime):
    service = start_service(lab, allocator, SERVER, talks=True)
    endpoints = Endpoints(service)
    watch(lab, allocator, service)
    assert endpoints.get(f"/application/keep?blocks={BLOCKS}&size={BLOCK}").status == 200
    assert_stopped(lab, service)
    text, expected = assert_read(lab, SERVER, "application_keep")
    if isinstance(allocator, Heaptap):
        assert text == expected
    # Its call path begins at the function that keeps the memory, not inside the allocator.
    short = lab.answer_of("report", find_dumps(RUNTIME)[0].path)
    assert re.search(r"(?m)^   1\. .*\n +application_keep mtev_endpoints\.c:\d+$", short), short


def test_service_linked_with_jemalloc(lab, allocator, runtime):
    """Debian's redis-server: its own libjemalloc.so.2 must not allocate, dump or print."""
    service = start_service(lab, allocator, REDIS)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_SECONDS)
        # The socket's file exists before the server listens.
        wait_until(lambda: connection.connect_ex(f"{RUNTIME}/redis.socket") == 0, "the server listens")
        watch(lab, allocator, service)
        answers = connection.makefile("rb")
        for first in range(0, BLOCKS, 1024):
            connection.sendall(b"".join(b"SET %d %s\r\n" % (key, b"x" * 4000)
                                        for key in range(first, first + 1024)))
            for _ in range(1024):
                assert answers.readline() == b"+OK\r\n"
    assert_stopped(lab, service)
    assert_read(lab, "/usr/bin/redis-server", "main")


def complaints(lab, text):
    """The complaints of systemd about the unit with this drop-in."""
    folder = lab.path(f"{NAME}.service.d")
    os.makedirs(folder, exist_ok=True)
    with open(lab.path(f"{NAME}.service"), "w", encoding="utf-8") as file:
        file.write(UNIT.format(command=SERVER))
    with open(os.path.join(folder, "heaptap.conf"), "w", encoding="utf-8") as file:
        file.write(text)
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", f"./{NAME}.service"], cwd=lab.folder,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_SECONDS,
                            check=False)
    assert result.returncode == 0, result.stdout
    return [line for line in result.stdout.splitlines() if NAME in line]


@pytest.mark.without_bpf
def test_systemd_understands_it(lab):
    """There are no complaints, but one about an unknown word."""
    assert complaints(lab, drop_in()) == []
    for wrong in ("Enviroment=A=1\n", "RuntimeDirectoryPreserve=perhaps\n"):
        assert len(complaints(lab, drop_in() + wrong)) == 1
