# SPDX-License-Identifier: Apache-2.0
"""scripts/bootstrap: which packages a purpose takes, and what it says. Nothing is installed: dpkg-query, as it finds it
first, knows no package, and only --check is asked for."""

import os
import subprocess

from harness import ROOT, Case

BOOTSTRAP = os.path.join(ROOT, "scripts/bootstrap")
PREFIX = "scripts/bootstrap: missing packages: "


class Bootstrap(Case):
    needs_bpf = False

    def bootstrap(self, *arguments, knows=""):
        """Says what is missing on a machine that has the packages `knows`."""
        path = os.path.join(self.folder, "dpkg-query")
        with open(path, "w", encoding="utf-8") as script:
            script.write("#!/bin/sh\n" + "".join(f"echo installed {name}\n" for name in knows.split()) + "exit 1\n")
        os.chmod(path, 0o755)
        environment = dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}")
        return subprocess.run([BOOTSTRAP, *arguments], env=environment, capture_output=True, text=True, check=False,
                              timeout=60)

    def missing(self, *purposes, knows=""):
        result = self.bootstrap("--check", *purposes, knows=knows)
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertTrue(result.stderr.startswith(PREFIX), result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)
        names = result.stderr[len(PREFIX):].split()
        self.assertEqual(len(names), len(set(names)), "a package is named twice")
        return set(names)

    def test_purposes_include_what_they_need(self):
        build, demo, test = self.missing("build"), self.missing("demo"), self.missing("test")
        lint, kernels = self.missing("lint"), self.missing("kernels")
        self.assertTrue({"g++", "clang", "bpftool", "libbpf-dev"} <= build)
        self.assertTrue(build < demo < test < kernels)
        self.assertTrue(build < lint)
        self.assertTrue({"python3-pytest", "python3-pytest-xdist", "python3-pytest-timeout"} <= test)
        self.assertEqual(self.missing(), lint | kernels)
        self.assertEqual(self.missing("lint", "demo"), lint | demo)

    def test_the_demo_takes_little(self):
        """No machine emulator, no database, no other language, no kernel headers, no LLVM but the compiler."""
        for name in self.missing("demo"):
            self.assertNotRegex(name, "qemu|postgres|golang|linux-headers|^llvm|^python|clang-|valgrind")

    def test_what_is_there_is_not_named(self):
        all_of_it = self.missing("demo")
        self.assertEqual(self.missing("demo", knows=" ".join(all_of_it - {"clang"})), {"clang"})
        for arguments in (["demo"], ["--check", "demo"], ["demo", "--check", "build"]):
            with self.subTest(arguments=arguments):
                result = self.bootstrap(*arguments, knows=" ".join(all_of_it))
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_wrong_words(self):
        for arguments in (["tests"], ["demo", "--chek"], [""], ["--check", "build demo"]):
            with self.subTest(arguments=arguments):
                result = self.bootstrap(*arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertRegex(result.stderr, r"\Ascripts/bootstrap: .* is no purpose; give build, demo, .*\n\Z")
