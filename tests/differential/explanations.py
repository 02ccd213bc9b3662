# SPDX-License-Identifier: Apache-2.0
"""The names of functions on a path, and the known differences between jemalloc and heaptap, by name."""

import os

import symbols
from paths import NOWHERE


def name(frame):
    """FUNCTION (file), or the address if there is no symbol."""
    if frame.module == NOWHERE:
        return f"{frame.offset:#x}"
    if not frame.module.startswith("/"):
        return f"{frame.module}+{frame.offset:#x}" if frame.offset else frame.module
    function = symbols.file(frame.module).function_at(frame.offset - 1)
    return f"{function or '?'} ({os.path.basename(frame.module)}+{frame.offset:#x})"


def names(path):
    return [name(frame) for frame in path]


def _function(frame):
    """Only the function's name; a frame may already be a name (subjects.by_name)."""
    return name(frame).split(" ")[0] if frame.module.startswith("/") else frame.module


def is_left_out(path, other):
    """libstdc++'s pool for exceptions, allocated when it is loaded: jemalloc is linked with libstdc++. `other` is the Paths
    to compare with."""
    if any(module.startswith("libstdc++") for module in other.modules) or len(path) < 3:
        return False
    return "libstdc++" in path[0].module or path[0].module.startswith("_ZSt") and _function(path[1]) == "call_init"


def without_chance(path):
    """glibc allocates a block for every 32 exit functions. Which registration allocates depends on earlier ones, and
    jemalloc and its libstdc++ have some: so these blocks are compared without their callers."""
    return path[:1] if path and _function(path[0]) == "__new_exitfn" else path


def _through(*functions):
    return lambda path: any(_function(frame) in functions for frame in path)


# (subject or None for all, reason, whether a path is of the kind)
KNOWN = [
    (None, "exit functions: those of jemalloc and its libstdc++ need a block more",
     lambda path: _function(path[0]) == "__new_exitfn"),
    (None, "destructors of libraries: jemalloc's last dump is older, from the end of its own library, which comes first",
     _through("_dl_fini")),
    ("single_step", "instructions of the dynamic linker that looks through the allocator's symbols: each has others",
     _through("do_lookup_x", "_dl_lookup_symbol_x", "check_match", "strcmp")),
    ("clang", "a table of pointers: jemalloc's recorded blocks all begin a page, so they hash otherwise",
     _through("_ZN4llvm17MachineModuleInfo26getOrCreateMachineFunctionERNS_8FunctionE")),
    ("static_pie", "a static program's start-up: its part of the dynamic linker allocates",
     _through("_dl_non_dynamic_init")),
]
ELSEWHERE = "addresses decide: jemalloc differs from itself there at other addresses"
# Innermost frames of paths on which allocations depend on addresses.
KIND_FRAMES = 2


def kind(path):
    return path[:KIND_FRAMES]


class Judge:
    """Explains the differences of one subject; `kinds` are those of the paths on which allocations depend on addresses."""

    def __init__(self, subject, kinds):
        self._subject = subject
        self._kinds = kinds

    def reason(self, path):
        """The name of the reason for a difference; None if unexplained. Missing outer frames are never explained."""
        for only, reason, holds in KNOWN:
            if only in (None, self._subject) and path and holds(path):
                return reason
        return ELSEWHERE if kind(path) in self._kinds else None
