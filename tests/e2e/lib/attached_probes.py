# SPDX-License-Identifier: Apache-2.0
"""To which probes the eBPF programs of another process are attached, and which programs those are, as the kernel says
(bpf(2))."""

import ctypes
import os
import re

_SYS_BPF = 321  # x86-64
_BPF_PROG_GET_FD_BY_ID = 13
_BPF_TASK_FD_QUERY = 20
_BPF_FD_TYPE_UPROBE = 4
_PATH_BYTES = 4096


class _Query(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint32), ("fd", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("buf_len", ctypes.c_uint32),
                ("buf", ctypes.c_uint64), ("prog_id", ctypes.c_uint32), ("fd_type", ctypes.c_uint32),
                ("probe_offset", ctypes.c_uint64), ("probe_addr", ctypes.c_uint64)]


def attached_probes(pid):
    """{(path, offset in the file)} of the places at which a program of the process runs; empty once it has ended."""
    found = set()
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except FileNotFoundError:
        return found
    for descriptor in descriptors:
        path = ctypes.create_string_buffer(_PATH_BYTES)
        query = _Query(pid=pid, fd=int(descriptor), buf_len=_PATH_BYTES, buf=ctypes.addressof(path))
        failed = libc.syscall(_SYS_BPF, _BPF_TASK_FD_QUERY, ctypes.byref(query), ctypes.sizeof(query))
        if not failed and query.fd_type == _BPF_FD_TYPE_UPROBE:
            found.add((path.value.decode(), query.probe_offset))
    return found


def linked_programs(pid):
    """The kernel's ids of the eBPF programs that links of a process attach."""
    found = set()
    for descriptor in os.listdir(f"/proc/{pid}/fdinfo"):
        with open(f"/proc/{pid}/fdinfo/{descriptor}", encoding="ascii") as file:
            text = file.read()
        if re.search(r"^link_id:", text, re.MULTILINE) and (program := re.search(r"^prog_id:\s*(\d+)$", text, re.MULTILINE)):
            found.add(int(program[1]))
    return found


def loaded(programs):
    """Those of the ids whose programs the kernel still has. It releases a program after it has removed the program's probes."""
    found = set()
    for program in programs:
        descriptor = ctypes.CDLL(None).syscall(_SYS_BPF, _BPF_PROG_GET_FD_BY_ID, ctypes.byref(ctypes.c_uint32(program)), 4)
        if descriptor >= 0:
            os.close(descriptor)
            found.add(program)
    return found
