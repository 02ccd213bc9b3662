# SPDX-License-Identifier: Apache-2.0
"""Copies of a plugin (tests/targets/plugin.c) with damages to what stacks are unwound by."""

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


def _patch(offset, data):
    """Bytes of .eh_frame replaced. Its first record is a CIE: length, 0, ...; the second one an FDE: length, distance
    to its CIE, ..."""
    def damage(path):
        begin, _ = _section(path, SECTION)
        with open(path, "r+b") as file:
            file.seek(begin)
            (length,) = struct.unpack("<I", file.read(4))
            file.seek(begin + (offset if offset < 4 else offset + length))
            file.write(data)
    return damage


def _fill(byte):
    def damage(path):
        begin, size = _section(path, SECTION)
        with open(path, "r+b") as file:
            file.seek(begin)
            file.write(byte * size)
    return damage


def _objcopy(*arguments):
    return lambda path: subprocess.run(["objcopy", *arguments, path], check=True)


def _without_section_headers(path):
    with open(path, "r+b") as file:
        file.seek(0x28)  # e_shoff
        file.write(bytes(8))
        file.seek(0x3a)  # e_shentsize, e_shnum, e_shstrndx
        file.write(bytes(6))


def _without_table(path):
    """Neither section headers nor a segment says where .eh_frame is."""
    _without_section_headers(path)
    with open(path, "r+b") as file:
        header = file.read(64)
        (headers,) = struct.unpack_from("<Q", header, 0x20)
        (count,) = struct.unpack_from("<H", header, 0x38)
        for number in range(count):
            file.seek(headers + 56 * number)
            if struct.unpack("<I", file.read(4))[0] == 0x6474e550:  # PT_GNU_EH_FRAME
                file.seek(headers + 56 * number)
                file.write(bytes(4))


def _huge_section(path):
    """.eh_frame is said to have 64 GiB, and the file is that long, a hole."""
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

# What is done to the file. The second word of the first FDE is 12 bytes behind the CIE's length: 4 + length + 4.
DAMAGES = {
    "stripped": _objcopy("--strip-all"),
    "without_section_headers": _without_section_headers,
    "without_table": _without_table,
    "zeros": _fill(b"\0"),
    "ones": _fill(b"\xff"),
    "huge_length": _patch(0, struct.pack("<I", 0x7ffffff0)),
    "huge_extended_length": _patch(0, struct.pack("<IQ", 0xffffffff, 1 << 62)),
    "cyclic_cie": _patch(8, struct.pack("<I", 4)),  # the FDE is its own CIE
    "cie_before_the_section": _patch(8, struct.pack("<I", 0x40000000)),
    "fde_of_huge_length": _patch(4, struct.pack("<I", 0x7ffffff0)),
    "code_elsewhere": _patch(12, struct.pack("<iI", 0x70000000, 0xffffffff)),
    "huge_section": _huge_section,
}
# These say as much as the original.
HARMLESS = {"stripped", "without_section_headers"}


def damaged(path, damage, folder):
    """A copy of the plugin at `path`, damaged."""
    copy = os.path.join(folder, f"lib_{damage}.so")
    shutil.copy(path, copy)
    DAMAGES[damage](copy)
    return copy
