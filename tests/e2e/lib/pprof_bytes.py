# SPDX-License-Identifier: Apache-2.0
"""Profiles in the format of pprof (profile.proto) by hand, as other programs write them."""

import subprocess


def varint(value):
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes(parts + bytes((value,)))


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, *contents):
    contents = b"".join(contents)
    return varint(field << 3 | 2) + varint(len(contents)) + contents


def _profile(texts, *parts):
    """100 live bytes at location 1."""
    return b"".join((
        message(1, number(1, 1), number(2, 2)),
        message(2, message(1, varint(1)), message(2, varint(100))),
        *parts,
        *(message(6, text.encode()) for text in ("", "inuse_space", "bytes", *texts))))


def named_place(name):
    """A function without an address."""
    return _profile([name], message(4, number(1, 1), message(4, number(1, 1))), message(5, number(1, 1), number(2, 3)))


def place_in(program, with_symbols, function, build_id):
    """An address in a function of a program that is known by its build-id; `with_symbols`: before it was stripped."""
    symbols = subprocess.run(["nm", with_symbols], stdout=subprocess.PIPE, text=True, check=True).stdout
    (address,) = (int(line.split()[0], 16) for line in symbols.splitlines() if line.split()[-1] == function)
    # These programs are linked so that the offsets of their code are its addresses.
    start, size = 0x10000000, 1 << 20
    return _profile(
        [program, build_id],
        message(3, number(1, 1), number(2, start), number(3, start + size), number(5, 3), number(6, 4)),
        message(4, number(1, 1), number(2, 1), number(3, start + address + 1)))
