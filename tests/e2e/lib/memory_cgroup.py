# SPDX-License-Identifier: Apache-2.0
"""A memory cgroup for a test, of the machine's version 1 or 2. That of version 2 is in the control group of this place."""

import os

from harness import PLACE, wait_until

_VERSION_1 = "/sys/fs/cgroup/memory"
_VERSION_2 = "/sys/fs/cgroup"


class MemoryCgroup:
    """`path` is relative to the hierarchy's root, as in rules of the daemon."""

    def __init__(self, name, limit=None):
        self._is_version_2 = os.path.exists(os.path.join(_VERSION_2, "cgroup.controllers"))
        root = _VERSION_2 if self._is_version_2 else _VERSION_1
        self.path = f"/{name}"
        if self._is_version_2:
            for folder in (root, PLACE.group):
                with open(os.path.join(folder, "cgroup.subtree_control"), "w", encoding="ascii") as file:
                    file.write("+memory")
            self.path = f"/{os.path.basename(PLACE.group)}/{name}"
        self.folder = root + self.path
        os.mkdir(self.folder)
        if limit is not None:
            self._write("memory.max" if self._is_version_2 else "memory.limit_in_bytes", limit)

    def _write(self, name, value):
        with open(os.path.join(self.folder, name), "w", encoding="ascii") as file:
            file.write(str(value))

    def _read(self, name):
        with open(os.path.join(self.folder, name), encoding="ascii") as file:
            return file.read()

    def used(self):
        """The bytes in use, with those of the kernel and without the cache of files, which can be reclaimed."""
        files = dict(line.split() for line in self._read("memory.stat").splitlines())
        used = int(self._read("memory.current" if self._is_version_2 else "memory.usage_in_bytes"))
        return used - int(files["inactive_file"]) - int(files["active_file"])

    def enter(self):
        """For a child that has not called exec yet (preexec_fn)."""
        self._write("cgroup.procs", os.getpid())

    def remove(self):
        """Call it when all processes in the group have ended; the kernel may need another moment."""
        def is_gone():
            try:
                os.rmdir(self.folder)
            except OSError:
                return not os.path.exists(self.folder)
            return True
        wait_until(is_gone, f"{self.folder} is empty")
