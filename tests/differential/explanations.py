# SPDX-License-Identifier: Apache-2.0
"""Names of the functions on a path, and the differences between jemalloc and heaptap that are known, by name."""

import os

import symbols
from paths import NOWHERE


def name(frame):
    """FUNCTION (file), or the address where there is no symbol."""
    if frame.module == NOWHERE:
        return f"{frame.offset:#x}"
    if not frame.module.startswith("/"):
        return f"{frame.module}+{frame.offset:#x}" if frame.offset else frame.module
    function = symbols.file(frame.module).function_at(frame.offset - 1)
    return f"{function or '?'} ({os.path.basename(frame.module)}+{frame.offset:#x})"


def names(path):
    return [name(frame) for frame in path]


def _function(frame):
    """The name alone; that of a frame which is a name already (subjects.by_name)."""
    return name(frame).split(" ")[0] if frame.module.startswith("/") else frame.module


def is_left_out(path, other):
    """libstdc++'s store for exceptions, allocated as it is loaded: jemalloc brings libstdc++ with it. `other` is the
    Paths to compare with."""
    if any(module.startswith("libstdc++") for module in other.modules) or len(path) < 3:
        return False
    return "libstdc++" in path[0].module or path[0].module.startswith("_ZSt") and _function(path[1]) == "call_init"


def without_chance(path):
    """glibc allocates a block for every 32 exit functions. Which of them pays is a matter of how many came before, and
    jemalloc and its libstdc++ have some: so these blocks are compared without those who called."""
    return path[:1] if path and _function(path[0]) == "__new_exitfn" else path


def _through(*functions):
    return lambda path: any(_function(frame) in functions for frame in path)


# (subject or None for all, what it is, whether a path is of the kind)
KNOWN = [
    (None, "exit functions: those of jemalloc and its libstdc++ need a block more",
     lambda path: _function(path[0]) == "__new_exitfn"),
    ("single_step", "instructions of the dynamic linker that looks through the allocator's symbols: each has others",
     _through("do_lookup_x", "_dl_lookup_symbol_x", "check_match", "strcmp")),
    ("clang", "a table of pointers: jemalloc's recorded blocks all begin a page, so they hash otherwise",
     _through("_ZN4llvm17MachineModuleInfo26getOrCreateMachineFunctionERNS_8FunctionE")),
    ("static_pie", "a static program's start-up: its part of the dynamic linker allocates",
     _through("_dl_non_dynamic_init")),
]
ELSEWHERE = "addresses decide: jemalloc differs from itself there at other addresses"
# Innermost frames by which a path is known as one on which addresses decide.
KIND_FRAMES = 2


def kind(path):
    return path[:KIND_FRAMES]


class Judge:
    """Knows reasons for the differences of one subject; `kinds` are those of the paths on which addresses decide."""

    def __init__(self, subject, kinds):
        self._subject = subject
        self._kinds = kinds

    def reason(self, path):
        """The name of the reason why a path differs; None if there is none. That outer frames are missing is none."""
        for only, reason, holds in KNOWN:
            if only in (None, self._subject) and path and holds(path):
                return reason
        return ELSEWHERE if kind(path) in self._kinds else None
