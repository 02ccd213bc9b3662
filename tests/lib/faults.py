# SPDX-License-Identifier: Apache-2.0
"""The faults of tests/mutations/*.jsonl, and the copy of a checkout in which they are tried.

A line of a list is an object:

    file     relative to the checkout
    old      the text that is replaced; it occurs exactly once in the file
    new      the faulty text
    why      the mistake, in a few words
    tests    names of tests that should fail (tests/lib/named_tests.py), those first that take less time
"""

import dataclasses
import hashlib
import json
import os
import shutil
import time

import named_tests

KEYS = ("file", "old", "new", "why", "tests")
# What the copy does not need, relative to the checkout. `build/vm` has kernels and disks.
LEFT_OUT = {".git", "build/vm", "build/fuzz", "build/search", "build/repeat", "build/mutations", "build/phases", "build/sanitized"}


@dataclasses.dataclass(frozen=True)
class Fault:
    place: str  # list:line
    file: str
    old: str
    new: str
    why: str
    tests: tuple

    @property
    def key(self):
        """The same for the same fault and tests, wherever its line is."""
        return hashlib.sha1(json.dumps([self.file, self.old, self.new, self.tests]).encode()).hexdigest()[:16]

    def applied(self, text):
        """The text of the file with the fault. Raises ValueError."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.place}: the old text occurs {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)


def read_fault(line, place):
    """The Fault of a line. Raises ValueError."""
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    if not isinstance(entry, dict) or sorted(entry) != sorted(KEYS):
        raise ValueError(f"{place}: not an object with {', '.join(KEYS)}")
    if entry["old"] == entry["new"] or not entry["tests"]:
        raise ValueError(f"{place}: a fault changes something, and names a test")
    for name in entry["tests"]:
        try:
            named_tests.parse(name)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
    return Fault(place, **{**entry, "tests": tuple(entry["tests"])})


def read_faults(paths, root):
    """(all Faults that fit the sources below root, lines about those that do not)"""
    faults, problems, seen = [], [], {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        for number, line in enumerate(lines, 1):
            place = f"{os.path.basename(path)}:{number}"
            try:
                fault = read_fault(line, place)
                with open(os.path.join(root, fault.file), encoding="utf-8") as file:
                    changed = fault.applied(file.read())
                first = seen.setdefault((fault.file, changed), place)
                if first != place:
                    raise ValueError(f"{place}: the same fault as {first}")
                faults.append(fault)
            except OSError as error:
                problems.append(f"{place}: {error.filename}: {error.strerror}")
            except ValueError as error:
                problems.append(str(error))
    return faults, problems


class Copy:
    """A copy of a checkout with its build, in `folder`. A second copy, which nobody changes, undoes what a fault has
    changed, files of the build included, so that nothing is built twice."""

    def __init__(self, root, folder):
        self.root = os.path.join(folder, "tree")
        self._unchanged = os.path.join(folder, "unchanged")
        copy_tree(root, self.root)

    def keep(self):
        """Makes the present state the one that restore() goes back to."""
        copy_tree(self.root, self._unchanged)

    def apply(self, fault):
        path = os.path.join(self.root, fault.file)
        with open(path, encoding="utf-8") as file:
            text = fault.applied(file.read())
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        # make compares times, and may have built something from this file in the same tick.
        now = time.time()
        os.utime(path, (now, now))

    def restore(self):
        """Files and symbolic links get back content and time; what is new goes away."""
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                before = os.path.join(self._unchanged, os.path.relpath(path, self.root))
                if not os.path.lexists(before):
                    os.unlink(path)
                elif _differs(path, before):
                    _replace(path, before)
        for folder, _, names in os.walk(self._unchanged):
            for name in names:
                before = os.path.join(folder, name)
                path = os.path.join(self.root, os.path.relpath(before, self._unchanged))
                if not os.path.lexists(path):
                    _replace(path, before)


def _differs(first, second):
    a, b = os.lstat(first), os.lstat(second)
    return (a.st_mtime_ns, a.st_size, a.st_mode) != (b.st_mtime_ns, b.st_size, b.st_mode)


def _replace(path, before):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    shutil.copy2(before, path, follow_symlinks=False)


def copy_tree(source, target):
    """Copies a tree with its times, without what the copy does not need."""
    def ignored(folder, names):
        return [name for name in names if os.path.relpath(os.path.join(folder, name), source) in LEFT_OUT]
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True, ignore=ignored)
