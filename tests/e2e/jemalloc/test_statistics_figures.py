# SPDX-License-Identifier: Apache-2.0
"""malloc_stats_print: the figures agree with the kernel's.

In these programs only the allocator's mappings have both flags "nr" (mapped without a reserve) and "nh" (no huge pages);
Debian's jemalloc, which redis is linked with, has only "nr". Error bounds:

  resident  1 % of the Rss of these mappings, and 64 KiB for the library's own table, which is not among them
  resident, mapped  5 % of the anonymous memory in smaps_rollup without mappings that have a name (files' data, stacks)
            and without larger ones of the program itself (gcc's pages), and 256 KiB for mappings of the dynamic linker and
            libc

The programs run without huge pages, which would be resident although nothing was touched, unknown to the figures. Each
process reads both itself, while it does nothing else.
"""

import ctypes
import glob
import json
import os
import re
import shutil
import subprocess

import pytest

import programs
from harness import LIBRARY, target, wait_until

PROBE = target("libstatistics.so")
KIB = 1024
# Bytes that a process has mapped and not touched: the rest of the last slab of each size class.
LAST_SLABS = 512 * KIB
pytestmark = pytest.mark.without_bpf


def read_smaps(path):
    mappings = []
    with open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            header = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$", line)
            if header:
                mappings.append({"name": header.group(1)})
                continue
            key, value = line.split(":", 1)
            mappings[-1][key] = value.split() if key == "VmFlags" else int(value.split()[0]) * KIB
    return mappings


def read_rollup(path):
    with open(path, encoding="ascii") as file:
        next(file)
        return {key: int(value.split()[0]) * KIB for key, value in (line.split(":", 1) for line in file)}


@pytest.fixture(autouse=True)
def results(lab):
    """The folder for statistics of the programs and the kernel's figures of their memory."""
    path = lab.path("statistics")
    os.mkdir(path)
    return path


def without_huge_pages():
    """For the process and what it starts, whatever the machine's setting is."""
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE


def start(lab, command, at_exit=True, **options):
    env = {"LD_PRELOAD": f"{LIBRARY} {PROBE}", "STATISTICS_FOLDER": lab.path("statistics"),
           "MALLOC_CONF": "thp:never", **options.pop("env", {})}
    if at_exit:
        env["STATISTICS_AT_EXIT"] = "1"
    options.setdefault("preexec_fn", without_huge_pages)
    return lab.program(*command, env=env, **options)


def is_own(mapping):
    return {"nr", "nh"} <= set(mapping["VmFlags"])


def check(lab, touches=True):
    """Compares the files of each process; returns how many processes had enough memory for a percentage. `touches`: the
    programs use the memory that they allocate."""
    counted = 0
    for path in sorted(glob.glob(lab.path("statistics", "*.json"))):
        base = path[:-len(".json")]
        with open(path, encoding="ascii") as file:
            stats = json.load(file)["jemalloc"]["stats"]
        mappings = read_smaps(base + ".smaps")
        own = sum(mapping["Rss"] for mapping in mappings if is_own(mapping))
        named = sum(mapping["Anonymous"] for mapping in mappings if mapping["name"])
        others = sum(mapping["Rss"] for mapping in mappings
                     if not mapping["name"] and not is_own(mapping) and mapping["Size"] > 256 * KIB)
        whole = read_rollup(base + ".smaps_rollup")["Anonymous"] - named - others
        told = f"{path}: {stats}, own {own}, whole {whole}, others {others}"
        assert stats["resident"] == pytest.approx(own, abs=0.01 * own + 64 * KIB, rel=0), told
        assert stats["resident"] == pytest.approx(whole, abs=0.05 * whole + 256 * KIB, rel=0), told
        assert stats["mapped"] + 64 * KIB >= 0.95 * own, told
        if touches:
            assert stats["mapped"] == pytest.approx(whole, abs=0.05 * whole + LAST_SLABS, rel=0), told
        counted += own > 4 * 1024 * KIB
        os.unlink(path)
    return counted


def run_to_end(lab, *command, **options):
    process = start(lab, command, **options)
    process.ends(seconds=programs.LIMIT_SECONDS)


def test_python(lab):
    """Statistics in the middle of the work, and again when most memory is free. Python's own pools are off, since they
    would hide its allocations."""
    work = ("import ctypes, json, os\n"
            "library = ctypes.CDLL(None)\n"
            "live = [json.loads(json.dumps({'a': [i] * 5, 'b': 'x' * (i % 300)})) for i in range(60000)]\n"
            "if os.environ['WHEN'] == 'empty': del live\n"
            "library.write_statistics()\n")
    for when in ("full", "empty"):
        run_to_end(lab, "/usr/bin/python3", "-c", work, at_exit=False,
                        env={"PYTHONMALLOC": "malloc", "WHEN": when})
        assert check(lab) == 1


def test_sqlite(lab):
    with open(lab.path("script.sql"), "w", encoding="ascii") as file:
        file.write(programs.SQL)
    run_to_end(lab, "sqlite3", ":memory:", ".read script.sql")
    assert check(lab) == 1


@pytest.fixture
def huge_pages_always():
    """Switches huge pages to "always", like Debian's kernels."""
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    with open(path, encoding="ascii") as file:
        before = re.search(r"\[(\w+)\]", file.read()).group(1)
    with open(path, "w", encoding="ascii") as file:
        file.write("always")
    yield
    with open(path, "w", encoding="ascii") as file:
        file.write(before)


@pytest.mark.whole_machine
@pytest.mark.usefixtures("huge_pages_always")
def test_a_small_process_gets_no_huge_page(lab):
    run_to_end(lab, "/bin/ls", lab.folder, env={"MALLOC_CONF": ""}, preexec_fn=None)
    assert glob.glob(lab.path("statistics", "*.smaps"))
    for path in glob.glob(lab.path("statistics", "*.smaps")):
        own = [mapping for mapping in read_smaps(path) if is_own(mapping)]
        assert own and sum(mapping["AnonHugePages"] for mapping in own) == 0, own


def test_perl(lab):
    run_to_end(lab, "perl", "-e", "my %h; $h{$_} = 'x' x ($_ % 100) for 1..200000;")
    assert check(lab) == 1


def test_gcc(lab):
    """The driver, the compiler proper and the assembler; the compiler's garbage collector maps memory itself. Freed memory
    stays: how much went back would depend on how long the compiler takes."""
    source = lab.path("a.cc")
    with open(source, "w", encoding="ascii") as file:
        file.write("#include <map>\n#include <string>\n#include <regex>\n"
                   "int main() { std::map<int, std::string> m; m[1] = \"a\"; return std::regex_match(m[1], "
                   "std::regex(\"a+b*\")) ? 0 : 1; }\n")
    run_to_end(lab, "g++", "-O1", "-c", source, "-o", lab.path("a.o"), env={"MALLOC_CONF": "thp:never,dirty_decay_ms:-1,muzzy_decay_ms:-1"})
    assert check(lab) >= 2


def test_xz(lab):
    """xz allocates its tables for the worst case and touches little of them. When xz writes to its standard output, it
    takes the right to open files from itself, so it writes a file here."""
    run_to_end(lab, "xz", "-6", shutil.copy(LIBRARY, lab.path("large")))
    assert check(lab, touches=False) == 1


def test_redis(lab):
    """Many clients and threads; statistics at the shutdown."""
    socket = lab.path("redis.sock")

    def client(*words):
        return subprocess.run(["redis-cli", "-s", socket, *words], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, cwd=lab.folder, timeout=programs.LIMIT_SECONDS,
                              check=False).stdout
    server = start(lab, ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", lab.folder,
                         "--enable-debug-command", "yes"])
    wait_until(lambda: client("ping").strip() == "PONG", "redis answers")
    assert client("debug", "populate", "200000", "key", "100").strip() == "OK"
    client("shutdown", "nosave")
    server.ends(seconds=programs.LIMIT_SECONDS)
    assert check(lab) == 1
