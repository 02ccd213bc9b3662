# SPDX-License-Identifier: Apache-2.0
"""Finds function names for the addresses in a dump, in the symbol tables of the files that it lists."""

import bisect
import functools
import hashlib
import re
import subprocess


def _lines(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout


def _debug_file(path):
    """The file with the symbols that Debian has stripped (libc6-dbg); may not exist."""
    match = re.search(r"Build ID: ([0-9a-f]{2})([0-9a-f]+)", _lines("readelf", "-nW", path))
    return f"/usr/lib/debug/.build-id/{match.group(1)}/{match.group(2)}.debug" if match else "/nonexistent"


class File:
    """The functions of one ELF file, and its loaded segments."""

    def __init__(self, path):
        functions = {}
        for arguments in (("-D", path), (path,), (_debug_file(path),)):
            for line in _lines("nm", "--defined-only", *arguments).splitlines():
                match = re.fullmatch(r"([0-9a-f]+) [tTwWiu] ([^@]+)(@.*)?", line)
                if match:
                    functions[int(match.group(1), 16)] = match.group(2)
        self._addresses = sorted(functions)
        self._functions = functions
        self._segments = []
        for line in _lines("readelf", "-lW", path).splitlines():
            match = re.match(r"\s+LOAD\s+(0x[0-9a-f]+) (0x[0-9a-f]+) 0x[0-9a-f]+ (0x[0-9a-f]+)", line)
            if match:
                self._segments.append(tuple(int(word, 16) for word in match.groups()))

    def address_of_offset(self, offset):
        """The link-time address of a byte of the file."""
        for begin, address, size in self._segments:
            if begin <= offset < begin + size:
                return offset - begin + address
        return None

    def function_at(self, offset):
        """The function at this file offset: the nearest symbol before it. None if there is none."""
        address = self.address_of_offset(offset)
        if address is None:
            return None
        at = bisect.bisect_right(self._addresses, address) - 1
        return self._functions[self._addresses[at]] if at >= 0 else None


_BY_CONTENT = {}


@functools.lru_cache(maxsize=None)
def file(path):
    """Most tests have copies of the same files: reading one takes longer than comparing it."""
    try:
        with open(path, "rb") as content:
            digest = hashlib.file_digest(content, "sha1").digest()
    except OSError:
        return File(path)
    if digest not in _BY_CONTENT:
        _BY_CONTENT[digest] = File(path)
    return _BY_CONTENT[digest]


def names(dump, stack, copies=None):
    """Function names, innermost first; None where there is no symbol. Callers' addresses are return addresses.
    `copies`: {path in the dump: path of a copy}, for files that no longer exist."""
    result = []
    for number, address in enumerate(stack.frames):
        if number > 0:
            address -= 1
        mapping = dump.mapping(address)
        if mapping is None or not mapping.path.startswith("/"):
            result.append(None)
        else:
            path = (copies or {}).get(mapping.path, mapping.path)
            result.append(file(path).function_at(address - mapping.begin + mapping.offset))
    return result


def stacks_through(dump, function):
    return [stack for stack in dump.stacks if function in names(dump, stack)]


def live(dump, function):
    """Live objects and bytes on call paths through a function."""
    stacks = stacks_through(dump, function)
    return sum(stack.total.objects for stack in stacks), sum(stack.total.bytes for stack in stacks)


def kept(dump):
    """Live objects of keep_blocks() in a puppet."""
    return live(dump, "keep_blocks")[0]
