# SPDX-License-Identifier: Apache-2.0
"""Debian's own programs run correctly with the library preloaded, with and without profiling: same output, same
status as without it. The programs are those of programs.py.

Profiled with 4 KiB between samples, far more samples than the default. Error bounds: none; outputs are compared byte
for byte but for times and PIDs.
"""

import os
import shutil

import programs
from harness import BUILD, LIBRARY, Case


class Profiled:
    """A session of heaptap run, seen as the program that it runs."""

    def __init__(self, session):
        self.session = session
        self.wait = session.wait
        self.stdout = session.stdout

    def stderr(self):
        return "".join(line for line in self.session.stderr().splitlines(True)
                       if not line.startswith(("heaptap: ", "<heaptap>: ", "<jemalloc>: ", '{"books"')))


class Programs(Case):
    def setUp(self):
        super().setUp()
        # A place that every user may read: the checkout may lie where only root may go.
        self.bin = os.path.join(self.folder, "bin")
        os.mkdir(self.bin)
        for path in (os.path.join(BUILD, "heaptap"), LIBRARY):
            shutil.copy(path, self.bin)

    def plain(self, command, **options):
        return self.program(*command, **options)

    def preloaded(self, command, **options):
        return self.program(*command, env={"LD_PRELOAD": f"{self.bin}/libheaptap.so"}, **options)

    def profiled(self, command, **options):
        return Profiled(self.heaptap("run", "-o", f"{self.folder}/profile", "--lg-sample", "12", "--", *command,
                                     binary=f"{self.bin}/heaptap", **options))

    def assert_same(self, name):
        """plain, preloaded, profiled, and plain again: if the two plain runs differ, the machine changed meanwhile."""
        for _ in range(3):
            before, _ = programs.run(name, self.folder, self.plain)
            preloaded, _ = programs.run(name, self.folder, self.preloaded)
            profiled, _ = programs.run(name, self.folder, self.profiled)
            after, _ = programs.run(name, self.folder, self.plain)
            if before == after:
                break
        self.maxDiff = 2000
        self.assertEqual(before, after, "two runs without heaptap differ")
        self.assertEqual(before, preloaded)
        self.assertEqual(before, profiled)
        self.assertTrue(self.dumps(kind="f"), "no dump")


def _test(name):
    return lambda self: self.assert_same(name)


for _name in programs.PROGRAMS:
    setattr(Programs, f"test_{_name}", _test(_name))
