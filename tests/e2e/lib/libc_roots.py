# SPDX-License-Identifier: Apache-2.0
"""Programs of other libcs than this system's: of musl, which run here, and of glibc of other releases, which run below a
changed root. tests/e2e/libcs/rules.mk builds the programs, tests/e2e/libcs/roots makes the root folders."""

import os
import subprocess

from harness import BUILD, LIBRARY, GUEST

# glibc 2.23, 2.31, 2.36 and 2.41.
ROOTS = ("xenial", "bullseye", "bookworm", "trixie")
ROOTS_FOLDER = os.environ.get("HEAPTAP_ROOTS", "/var/cache/heaptap-roots")
# Whose headers have what the tests of malloc's relatives need.
WITH_NEW_HEADERS = ("musl", "bullseye", "bookworm", "trixie")

LIBRARIES = {"allocator": LIBRARY, "guest": GUEST}
# The option of `heaptap run`.
OPTIONS = {"allocator": [], "guest": ["--guest"]}


class Musl:
    name = "musl"

    def file(self, program):
        return os.path.join(BUILD, "tests", "libcs", self.name, program)

    def command(self, program, *arguments):
        """Of a test program."""
        return self.system_command(self.file(program), *arguments)

    def system_command(self, *words):
        return list(words)

    def remove(self):
        pass


class Root(Musl):
    """An overlay over a root folder, with this build at its own path. LD_PRELOAD names the same file inside and outside."""

    def __init__(self, name, folder):
        self.name = name
        base = os.path.join(ROOTS_FOLDER, name)
        assert os.path.isdir(base), f"{base} is missing: make root-programs"
        self.root = os.path.join(folder, "root")
        upper, work = (os.path.join(folder, name) for name in ("upper", "work"))
        for path in (self.root, upper, work):
            os.makedirs(path)
        self._mount("-t", "overlay", "overlay", "-o", f"lowerdir={base},upperdir={upper},workdir={work}", self.root)
        os.makedirs(self.root + BUILD)
        for path in (BUILD, "/proc", "/dev"):
            self._mount("--rbind", path, self.root + path)

    @staticmethod
    def _mount(*arguments):
        subprocess.run(["mount", *arguments], check=True)

    def system_command(self, *words):
        return ["chroot", self.root, *words]

    def remove(self):
        subprocess.run(["umount", "--recursive", "--lazy", self.root], check=False)
