# SPDX-License-Identifier: Apache-2.0
"""ELF files that make their reader work or use memory: System V ABI, "Object Files"; Linux Standard Base, .eh_frame."""

import struct

_HEADER, _SEGMENT, _SECTION = 64, 56, 64
_PT_LOAD, _SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB, _SHT_NOTE, _SHT_DYNSYM = 1, 1, 2, 3, 7, 11
_READ_EXECUTE = 5
_PAGE = 4096
_CODE_ADDRESS = 0x1000
# The first section begins after the headers of the file and of one segment.
_FIRST_OFFSET = 128


class _Section:
    """Content at the next free place, or `size` bytes of zeroes at the end of the file."""

    def __init__(self, name, kind, content=b"", size=None, address=0):
        self.name, self.kind, self.content, self.address = name, kind, content, address
        self.size = len(content) if size is None else size
        self.is_hole = size is not None


def _write(path, sections, segments=((0, _CODE_ADDRESS, _PAGE),)):
    """`segments`: (offset, address, size) of code. All holes are the same bytes."""
    names = b"\0"
    name_at = {}
    for section in sections:
        name_at[section.name] = len(names)
        names += section.name.encode() + b"\0"
    table = _Section("", _SHT_STRTAB, names)
    at = _HEADER + _SEGMENT * len(segments)
    offsets = []
    for section in [*sections, table]:
        at = (at + 15) // 16 * 16
        offsets.append(at)
        at += len(section.content)
    headers_at = (at + 15) // 16 * 16
    hole_at = headers_at + _SECTION * (len(sections) + 2)
    end = hole_at + max([section.size for section in sections if section.is_hole], default=0)
    with open(path, "wb") as file:
        file.write(b"\x7fELF\x02\x01\x01" + bytes(9))
        file.write(struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, _HEADER, headers_at, 0, _HEADER, _SEGMENT, len(segments),
                               _SECTION, len(sections) + 2, len(sections) + 1))
        for offset, address, size in segments:
            file.write(struct.pack("<IIQQQQQQ", _PT_LOAD, _READ_EXECUTE, offset, address, address, size, size, _PAGE))
        for section, offset in zip([*sections, table], offsets):
            file.seek(offset)
            file.write(section.content)
        file.seek(headers_at)
        file.write(bytes(_SECTION))
        for section, offset in zip([*sections, table], offsets):
            file.write(struct.pack("<IIQQQQIIQQ", name_at.get(section.name, 0), section.kind, 0, section.address,
                                   hole_at if section.is_hole else offset, section.size, 0, 0, 4, 0))
        file.truncate(max(end, file.tell()))


# Probes need an instruction.
_TEXT = _Section(".text", _SHT_PROGBITS, b"\x90" * 16, address=_CODE_ADDRESS + _FIRST_OFFSET)


def _probe(provider, name, arguments):
    description = struct.pack("<QQQ", _TEXT.address, 0, 0)
    description += b"".join(text.encode() + b"\0" for text in (provider, name, arguments))
    padding = bytes(-len(description) % 4)
    return struct.pack("<III", 8, len(description), 3) + b"stapsdt\0" + description + padding


def _probes(arguments="8@%rdi 8@%rsi 8@%rdx"):
    return _Section(".note.stapsdt", _SHT_NOTE,
                    _probe("otel_memory", "alloc", arguments) + _probe("otel_memory", "free", "8@%rdi"))


def write_allocator(path, arguments="8@%rdi 8@%rsi 8@%rdx"):
    """The least that counts as a sampled allocator. The notes name the arguments."""
    _write(path, [_TEXT, _probes(arguments)])


def write_refused_allocator(path):
    """The same, with probes at an instruction that the kernel does not probe."""
    _write(path, [_Section(".text", _SHT_PROGBITS, b"\xf0" * 16, address=_TEXT.address), _probes()])


def write_notes(path, size):
    """So many bytes of empty notes."""
    _write(path, [_Section(".note.many", _SHT_NOTE, size=size)])


def write_symbols(path, size):
    """An allocator with so many bytes of symbols that have no name, twice."""
    _write(path, [_TEXT, _probes(), _Section(".dynsym", _SHT_DYNSYM, size=size),
                  _Section(".dynstr", _SHT_STRTAB, size=size),
                  _Section(".symtab", _SHT_SYMTAB, size=size), _Section(".strtab", _SHT_STRTAB, size=size)])


def write_frames(path, size):
    """So many bytes of .eh_frame with nothing in it."""
    _write(path, [_Section(".eh_frame", _SHT_PROGBITS, size=size, address=0x10000)])


def write_rows(path, rows, segments):
    """One function with so many rows, at one address of so many segments whose places in the file are far apart."""
    # Version 1, "zR", code and data alignment 1 and -8, return address in register 16, pointers as absolute 8 bytes;
    # CFA is rsp + 8, and the return address is at CFA - 8.
    cie = struct.pack("<IB", 0, 1) + b"zR\0" + b"\x01\x78\x10\x01\x00" + b"\x0c\x07\x08\x90\x01"
    cie += bytes(-len(cie) % 4)
    cie = struct.pack("<I", len(cie)) + cie
    # DW_CFA_advance_loc 1, DW_CFA_def_cfa_offset 8 or 16.
    instructions = b"\x41\x0e\x10\x41\x0e\x08" * (rows // 2)
    fde = struct.pack("<IQQB", len(cie) + 4, _CODE_ADDRESS, rows + 1, 0) + instructions
    fde += bytes(-len(fde) % 4)
    frames = cie + struct.pack("<I", len(fde)) + fde + bytes(4)
    _write(path, [_Section(".eh_frame", _SHT_PROGBITS, frames, address=0x100000000)],
           [(number << 33, _CODE_ADDRESS, rows + 1) for number in range(segments)])
