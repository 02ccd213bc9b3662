# SPDX-License-Identifier: Apache-2.0
"""Reads every mallctl name of Debian's jemalloc from the tables in its static library, so that none is missing.

jemalloc cannot list its names at run time. In ctl.o each level of names is an array of nodes of five words: whether it has
a name, the name, the number of children, the children, the function. A level with numbers as names is one node of two
words: zero and a function.
"""

import os
import struct
import subprocess

ARCHIVE = "/usr/lib/x86_64-linux-gnu/libjemalloc_pic.a"
MEMBER = "ctl.pic.o"
ROOT = "root_node"
NODE = 40
NAME, CHILD_COUNT, CHILDREN, FUNCTION = 8, 16, 24, 32
ANY_INDEX = "<i>"


class _Object:
    """An ELF64 relocatable object: its data with relocations applied as (section, offset)."""

    def __init__(self, image):
        self._image = image
        begin, = struct.unpack_from("<Q", image, 0x28)
        size, count = struct.unpack_from("<HH", image, 0x3A)
        self._sections = [struct.unpack_from("<IIQQQQIIQQ", image, begin + i * size) for i in range(count)]
        symbols = next(i for i, section in enumerate(self._sections) if section[1] == 2)  # SHT_SYMTAB
        _, _, _, _, offset, length, strings, _, _, entry = self._sections[symbols]
        self._symbols = []  # (name, section, value, size)
        self.names = {}
        for at in range(offset, offset + length, entry):
            name, _, _, section, value, size = struct.unpack_from("<IBBHQQ", image, at)
            text = self._string(strings, name)
            self._symbols.append((section, value))
            self.names[text] = (section, value, size)
        self._pointers = {}
        for section in self._sections:
            if section[1] == 4:  # SHT_RELA
                for at in range(section[4], section[4] + section[5], 24):
                    place, information, addend = struct.unpack_from("<QQq", image, at)
                    target, value = self._symbols[information >> 32]
                    self._pointers[section[7], place] = (target, value + addend)

    def _string(self, section, offset):
        begin = self._sections[section][4] + offset
        return self._image[begin:self._image.index(b"\0", begin)].decode()

    def word(self, section, offset):
        return struct.unpack_from("<Q", self._image, self._sections[section][4] + offset)[0]

    def pointer(self, section, offset):
        """The (section, offset) of the target, or None."""
        return self._pointers.get((section, offset))

    def text(self, section, offset):
        return self._string(*self.pointer(section, offset))


def _below(tables, section, begin, count, path):
    """Names in and below the array of `count` nodes."""
    for node in range(begin, begin + count * NODE, NODE):
        name = path + [tables.text(section, node + NAME)]
        children = tables.pointer(section, node + CHILDREN)
        if children is None:
            assert tables.pointer(section, node + FUNCTION), name
            yield ".".join(name)
        elif tables.word(*children) & 0xFF:
            yield from _below(tables, *children, tables.word(section, node + CHILD_COUNT), name)
        else:
            yield from _below_index(tables, *children, name)


def _below_index(tables, section, node, path):
    """Names below a level of numbers. Only a symbol names the node that its function returns: super_<function>_node."""
    symbol = next(name for name, where in tables.names.items() if where[:2] == (section, node))
    stem = symbol[:-len("_node")]
    letter = "j" if "_i_" in stem else "i"
    parent, begin, _ = tables.names[f"super_{stem}_{letter}_node"]
    target, first = tables.pointer(parent, begin + CHILDREN)
    yield from _below(tables, target, first, tables.word(parent, begin + CHILD_COUNT), path + [ANY_INDEX])


def of_jemalloc():
    """All names, with numbers as <i>."""
    assert os.path.exists(ARCHIVE), f"{ARCHIVE} is missing (libjemalloc-dev)"
    tables = _Object(subprocess.run(["ar", "p", ARCHIVE, MEMBER], stdout=subprocess.PIPE, check=True).stdout)
    section, begin, size = tables.names[ROOT]
    return sorted(_below(tables, section, begin, size // NODE, []))


def with_any_index(name):
    """The name with <i> for each number."""
    return ".".join(ANY_INDEX if word.isdigit() else word for word in name.split("."))
