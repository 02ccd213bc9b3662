# SPDX-License-Identifier: Apache-2.0
"""Reads heaptap's control block, its waits and the semaphores of its probes in a running process (allocator's contract.h)."""

import collections
import functools
import re
import struct
import subprocess

NO_RATE = 0xFFFFFFFF
# Samples after which a process without a collector goes back to its own rate.
UNCONFIRMED_SAMPLES = 65536
MAGIC = 0x0070617470616568
HOST_OFFSET = 136  # of heaptap_control.host
_FOLLOWS_OFFSET = 68  # of heaptap_control.collector_follows

_FIELDS = "magic version size pid options active lg_sample collector_lg_sample collector_pid text_begin text_end"
_SHAPE = struct.Struct("<QIIIIIIIIQQ")
Control = collections.namedtuple("Control", _FIELDS)
_WAITS_SHAPE = struct.Struct("<IIIII")
Waits = collections.namedtuple("Waits", "size dump_turns dump_answers table_answers dump_patience")
_PATIENCE_OFFSET = 16  # of heaptap_waits.dump_patience


def _base(pid, library):
    """The address of the library's first byte."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        for line in maps:
            words = line.split()
            if len(words) > 5 and words[5] == library and int(words[2], 16) == 0:
                return int(words[0].split("-")[0], 16)
    raise AssertionError(f"{library} is not mapped in {pid}")


def _read(pid, address, size):
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def _output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


@functools.lru_cache(maxsize=None)
def _offset(library, symbol):
    match = re.search(rf"^([0-9a-f]+) \w {symbol}$", _output("nm", "-D", library), re.MULTILINE)
    return int(match.group(1), 16)


def address(pid, library):
    """Where the control block of a process is into which `library` (an absolute path) is loaded."""
    return _base(pid, library) + _offset(library, "heaptap_control")


def control(pid, library):
    """That control block."""
    block = Control(*_SHAPE.unpack(_read(pid, address(pid, library), _SHAPE.size)))
    assert block.magic == MAGIC, f"no control block: {block}"
    return block


def follows(pid, library):
    """Its collector_follows: HEAPTAP_COLLECTOR_LEFT, if a collector has recorded the process and no longer does."""
    return struct.unpack("<I", _read(pid, address(pid, library) + _FOLLOWS_OFFSET, 4))[0]


def waits(pid, library):
    """What the process waits for: its struct heaptap_waits."""
    found = Waits(*_WAITS_SHAPE.unpack(_read(pid, _base(pid, library) + _offset(library, "heaptap_waits"), _WAITS_SHAPE.size)))
    assert found.size >= _WAITS_SHAPE.size, found
    return found


def set_dump_patience(pid, library, milliseconds):
    """How long the process waits for the answer to a request from now on; the other limits of a dump are parts of it."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(_base(pid, library) + _offset(library, "heaptap_waits") + _PATIENCE_OFFSET)
        memory.write(struct.pack("<I", milliseconds))


def probes(library):
    """The names of the library's probes, one for each place."""
    return re.findall(r"^    Name: (\S+)$", _output("readelf", "-nW", library), re.MULTILINE)


def semaphores(pid, library):
    """{"provider:name": value} for each probe of the library that has a semaphore."""
    notes = re.findall(r"Provider: (\S+)\s+Name: (\S+)\s+Location: \S+, Base: \S+, Semaphore: 0x([0-9a-f]+)",
                       _output("readelf", "-nW", library))
    base = _base(pid, library)
    result = {}
    for provider, name, address in notes:
        if int(address, 16) != 0:
            (value,) = struct.unpack("<H", _read(pid, base + int(address, 16), 2))
            result[f"{provider}:{name}"] = value
    return result
