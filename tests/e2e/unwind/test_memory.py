# SPDX-License-Identifier: Apache-2.0
"""The limits of unwinding: kernel memory for tables, the ring of raw stacks, the map of files; and a library with very
large tables.

Recording is exact; error bounds: none. Time limits are generous, and the times are printed.
"""

import json
import os
import re
import signal
import subprocess
import time

import pytest

import symbols
from descriptors import descriptors
from harness import LONG, TIME_SCALE, target, wait_until
from loader import LEFT, assert_called, call, end, loader, open_plugin, settle
from stack_ends import NO_ROOM, counts_by_end

# Two libraries with tables of some megabytes each: of Debian 12, or of Debian 13.
LARGE = next(pair for pair in ([f"/usr/lib/x86_64-linux-gnu/{name}" for name in names] for names in (
    ("libLLVM-14.so.1", "libLLVM-15.so.1"), ("libLLVM.so.19.1", "libclang-cpp.so.19.1"))) if all(map(os.path.exists, pair)))

# Bytes of a value in the map of rows, and of a key and a value in the map of files (bpf/unwind.h).
ROWS_BYTES = 4032
FILES_BYTES = (16, 32)

# The factor by which thousands of samples may slow down a dlopen. Measured: 10 to 20.
DLOPEN_FACTOR = 40


def kernel_maps(session):
    """The kernel's data about each map that heaptap has open: {field: number}."""
    return [{name: int(fields[name], 0) for name in ("map_id", "key_size", "value_size", "memlock", "max_entries")}
            for fields in descriptors(session.pid) if "map_id" in fields]


def contexts(lab, *options):
    """The recording of a program with 512 call paths, independent of addresses: {names: objects}, the warnings, and the
    lines on stderr."""
    session = lab.heaptap("run", "--exact", "-o", f"session{len(lab.sessions)}", *options, "--",
                          target("contexts"), "9")
    session.losses_allowed = ("files_full",)
    session.ends()
    (dump,) = [each.read() for each in lab.dumps() if each.prefix == f"session{len(lab.sessions) - 1}"]
    paths = {}
    for stack in dump.stacks:
        names = tuple(symbols.names(dump, stack))
        paths[names] = paths.get(names, 0) + stack.total.objects
    return paths, dump, session


def test_less_memory_changes_nothing(lab):
    """The same whole stacks with room in the kernel for all tables, for some or for none."""
    paths, dump, _ = contexts(lab)
    assert dump.warnings == []
    assert len(paths) >= 512
    for memory in ("1", "64K", "256K", "1M"):
        fewer, dump, session = contexts(lab, "--unwind-memory", memory)
        assert dump.warnings == []
        assert fewer == paths
        said = [line for line in session.lines() if "libc.so.6" in line]
        assert len(said) == {"1": 1, "64K": 1}.get(memory, 0), session.lines()
        for line in said:
            assert re.search("more than --unwind-memory allows", line), line


def test_more_modules_than_memory(lab):
    """With room for one of two large modules, memory stays within the limit, and a third, small module has whole
    stacks."""
    budget = 6 << 20
    session = loader(lab, "--unwind-memory", str(budget), "-o", "small")
    for path in LARGE:
        open_plugin(session, path)
    settle(session)
    open_plugin(session, LEFT)
    call(session, "left_enter", 100)
    rows = next(info for info in kernel_maps(session) if info["value_size"] == ROWS_BYTES)
    memory, entries = rows["memlock"], rows["max_entries"]
    assert entries == budget // 4096
    assert memory <= budget + 32 * entries + 65536
    dump = end(lab, session)
    # The constructors of both together can fill the ring.
    assert all(NO_ROOM in end for end in counts_by_end(dump)), dump.warnings
    assert_called(dump, "left", 100)


def test_no_room_for_raw_stacks(lab):
    """heaptap is stopped while a plugin works, and the ring holds few stacks: the samples are kept without outer frames,
    and that is reported."""
    session = loader(lab, "--map-size", "raw-stacks=131072")
    session.signal(signal.SIGSTOP)
    open_plugin(session, LEFT)
    call(session, "left_enter", 5000)
    session.signal(signal.SIGCONT)
    session.popen.stdin.close()
    dump = end(lab, session)
    (entry,) = session.books()
    ends = counts_by_end(dump)
    assert len(ends) == 1, ends
    assert NO_ROOM in list(ends)[0]
    # Each raw stack takes more than 2 of 128 KiB.
    assert list(ends.values())[0] > 5000 - 64
    assert entry["samples_allocated"] >= 5000
    session.wait_said(f"^heaptap: .*{NO_ROOM}")


def test_little_room_for_raw_stacks(lab):
    """Some samples find room and some do not: no sample appears on the stack of another."""
    session = lab.puppet_under_heaptap("--exact", "--unwind-memory", "1", "--map-size", "raw-stacks=131072")
    session.ask("keep 20000 64")
    session.ask("churn 20000 64")
    session.ends()
    dump = lab.only_dump()
    without = sum(counts_by_end(dump).values())
    found = [sum(stack.ever.objects for stack in symbols.stacks_through(dump, function))
             for function in ("keep_blocks", "churn_blocks")]
    assert max(found) <= 20000
    assert sum(found) + without == 40000


def test_no_room_for_files(lab):
    """With room for one file, all others count as files without a table, and that is reported."""
    _, dump, session = contexts(lab, "--map-size", "files=1")
    (entry,) = session.books()
    assert entry["samples_allocated"] >= 512
    assert entry["losses"]["files_full"] > 0
    assert dump.total.objects >= 512
    assert "--map-size files" in "\n".join(dump.warnings)


# --- Debian's libLLVM, with 0.6 million rows ---


def is_loaded(session, path):
    """Whether the file is loaded (1) in the map of files."""
    inode = os.stat(path).st_ino
    for info in kernel_maps(session):
        if (info["key_size"], info["value_size"]) != FILES_BYTES:
            continue
        text = subprocess.run(["/usr/sbin/bpftool", "-j", "map", "dump", "id", str(info["map_id"])],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        entries = [entry["formatted"] for entry in json.loads(text)]
        return any(entry["key"]["inode"] == inode and entry["value"]["state"] == 1 for entry in entries)
    raise AssertionError("heaptap has no map of files")


@pytest.mark.endurance
def test_opened_late(lab, held):
    """The library's constructors allocate at once: no stack is lost, and the table is loaded. With HEAPTAP_LONG=1, on an
    idle machine, it is loaded soon, and the process hardly waits."""
    alone = lab.preloaded(target("loader"), talks=True)
    alone.answer()
    open_plugin(alone, LARGE[0])  # into the page cache
    alone = lab.preloaded(target("loader"), talks=True)
    alone.answer()
    without = open_plugin(alone, LARGE[0])
    session = loader(lab)
    during = open_plugin(session, LARGE[0])
    samples = time.monotonic()
    wait_until(lambda: is_loaded(session, LARGE[0]), "the table is in the kernel")
    late = time.monotonic() - samples + during / 1e6
    dump = end(lab, session)
    assert dump.warnings == []
    if LONG:
        assert late < TIME_SCALE
        assert during < DLOPEN_FACTOR * without
    held("libLLVM's unwind table is loaded after its dlopen", f"{TIME_SCALE} s" if LONG else "-", f"{late:.3f} s")
    held("dlopen of libLLVM, every allocation recorded, against not recorded",
         f"{DLOPEN_FACTOR} times" if LONG else "-", f"{during / without:.1f} times")
