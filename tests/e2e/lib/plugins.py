# SPDX-License-Identifier: Apache-2.0
"""Copies of a plugin (tests/targets/plugin.c) with damaged unwind information."""

import os
import shutil
import struct
import subprocess

SECTION = ".eh_frame"


def _section(path, name):
    """File offset and size of a section."""
    for line in subprocess.run(["readelf", "-SW", path], stdout=subprocess.PIPE, text=True,
                               check=True).stdout.splitlines():
        words = line.replace("[ ", "[").split()
        if len(words) > 5 and words[1] == name:
            return int(words[4], 16), int(words[5], 16)
    raise AssertionError(f"{path} has no section {name}")


def _of_ones(path):
    begin, size = _section(path, SECTION)
    with open(path, "r+b") as file:
        file.seek(begin)
        file.write(b"\xff" * size)


def _without_section_headers(path):
    with open(path, "r+b") as file:
        file.seek(0x28)  # e_shoff
        file.write(bytes(8))
        file.seek(0x3a)  # e_shentsize, e_shnum, e_shstrndx
        file.write(bytes(6))


def _huge_section(path):
    """.eh_frame claims 64 GiB, and the file is that long, with a hole."""
    with open(path, "r+b") as file:
        file.seek(0x28)
        (headers,) = struct.unpack("<Q", file.read(8))
        file.seek(0x3c)
        count = struct.unpack("<H", file.read(2))[0]
        begin, size = _section(path, SECTION)
        for number in range(count):
            file.seek(headers + 64 * number)
            header = bytearray(file.read(64))
            if struct.unpack_from("<QQ", header, 24) == (begin, size):
                struct.pack_into("<Q", header, 32, 64 << 30)
                file.seek(headers + 64 * number)
                file.write(header)
        file.truncate(65 << 30)

# Kinds of damage; the unit tests have more.
DAMAGES = {"without_section_headers": _without_section_headers, "ones": _of_ones,
           "huge_section": _huge_section}
# These damages leave all information intact.
HARMLESS = {"without_section_headers"}


def damaged(path, damage, folder):
    """A damaged copy of the plugin at `path`."""
    copy = os.path.join(folder, f"lib_{damage}.so")
    shutil.copy(path, copy)
    DAMAGES[damage](copy)
    return copy
