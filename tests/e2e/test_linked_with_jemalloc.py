# SPDX-License-Identifier: Apache-2.0
"""Programs that were written for jemalloc: linked with Debian's libjemalloc.so.2 and run with heaptap preloaded, the
same source compiled with heaptap's headers and library, and whatever comes of the jemalloc that is loaded beside it.

Dumps, summaries and statistics come from heaptap and from nobody else: the other jemalloc, whose books are empty, would
write over them. Error bounds: none, all numbers are exact.
"""

import json
import os
import re

import symbols
from harness import LIBRARY, ROOT, Case, target

JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
EVERYTHING = ("prof:true,prof_final:true,prof_leak:true,prof_gdump:true,lg_prof_sample:0,lg_prof_interval:40,"
              "stats_interval:1000000000")
# What a library loaded later may take of the program's static thread-local storage: libjemalloc wants 3 KiB.
ROOM = {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=16384"}

# (function, objects, bytes) of tests/targets/jemalloc_example.c, in size classes.
LEAKS = (("leak_small", 30, 30 * 1024), ("leak_large", 20, 20 * 5120))


class Example(Case):
    def assert_leaks(self, dump):
        for function, objects, size in LEAKS:
            stacks = symbols.stacks_through(dump, function)
            self.assertEqual(sum(stack.total.objects for stack in stacks), objects, function)
            self.assertEqual(sum(stack.total.bytes for stack in stacks), size, function)
        borrowed = symbols.stacks_through(dump, "borrow")
        self.assertEqual([stack.total.objects for stack in borrowed if stack.total.objects != 0], [])

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_example(self, program, *arguments, conf="prof:true", env=None):
        session = self.heaptap("run", "--exact", "-o", "collector", "--", target(program), *arguments,
                               env=dict(env or {}, MALLOC_CONF=conf))
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertNotIn("___ Begin jemalloc", session.stderr())
        return session

    def dumps_of_the_process(self):
        return [name for name in self.dumps() if name.prefix != "collector"]


class LinkedWithJemalloc(Example):
    """The preloaded library comes first: all calls go to it, mallctl and mallocx too."""

    def summaries(self, text):
        return re.findall(r"(?m)^<.*>: (Leak approximation summary: .*)$", text)

    def test_the_leak_example(self):
        """jemalloc's wiki: one dump of the process, and every digit as jemalloc has them when it is alone. (One object
        is libstdc++'s, which libjemalloc is linked with.)"""
        conf = {"MALLOC_CONF": "prof_leak:true,lg_prof_sample:0,prof_final:true"}
        alone = self.program(target("wiki_leak_jemalloc"), env=conf)
        self.assertEqual(alone.wait(), 0)
        (expected,) = self.summaries(alone.stderr())
        self.assertRegex(expected, r"~121 objects, >= 3 contexts")
        for name in self.dumps():
            os.unlink(name.path)

        session = self.heaptap("run", "-o", "collector", "--", target("wiki_leak_jemalloc"), env=conf)
        self.assertEqual(session.wait(), 0, session.stderr())
        # The process's and the collector's own.
        self.assertEqual(set(self.summaries(session.stderr())), {expected})
        (own,) = self.dumps_of_the_process()
        self.assertRegex(os.path.basename(own.path), r"^jeprof\.\d+\.0\.f\.heap$")
        total = own.read().total
        self.assertIn(f"~{total.bytes} bytes, ~{total.objects} objects", expected)
        text = self.reader("jeprof", "--text", target("wiki_leak_jemalloc"), own.path)
        for function in ("do_something", "do_something_else"):
            self.assertRegex(text, rf"(?m)^\s+3\.3\s.*\s{function}$")

    def test_extended_functions_and_dumps(self):
        for command, program in (("dump", "jemalloc_example"), ("name", "jemalloc_example"),
                                 ("dump", "heaptap_example"), ("name", "heaptap_example")):
            with self.subTest(program=program, command=command):
                path = self.path(f"{program}.1.0.m0.heap")
                session = self.run_example(program, command, path)
                self.assertEqual(session.stdout(), "mallctl 0\n")
                (name,) = [name for name in self.dumps() if name.path == path]
                self.assert_leaks(name.read())
                os.unlink(path)

    def test_final_dump(self):
        for program in ("jemalloc_example", "heaptap_example"):
            with self.subTest(program=program):
                self.run_example(program, conf="prof:true,prof_final:true,prof_prefix:inner")
                (name,) = self.dumps_of_the_process()
                self.assertEqual((name.prefix, name.sequence, name.kind), ("inner", 0, "f"))
                self.assert_leaks(name.read())
                os.unlink(name.path)

    def test_options_in_the_program(self):
        """const char *malloc_conf of the program: heaptap obeys, the other jemalloc does not. Both would print
        statistics, write a final dump and a summary."""
        session = self.heaptap("run", "--exact", "-o", "collector", "--", target("jemalloc_example_conf"))
        self.assertEqual(session.wait(), 0, session.stderr())
        (name,) = self.dumps_of_the_process()
        self.assert_leaks(name.read())
        self.assertEqual(session.stderr().count("___ Begin jemalloc statistics ___"), 1)

    def test_size_classes(self):
        """By name and by number. heaptap takes larger blocks from slabs than jemalloc does, so it has more bins; those
        that both have are the same."""
        alone = self.program(target("jemalloc_example"), "sizes")
        self.assertEqual(alone.wait(), 0)
        bins = alone.stdout().split()
        self.assertEqual((bins[0], bins[-1]), ("8", "14336"))
        for program in ("jemalloc_example", "heaptap_example"):
            ours = self.run_example(program, "sizes").stdout().split()
            self.assertEqual((ours[:len(bins)], ours[-1]), (bins, "32768"))

    def test_statistics(self):
        for program in ("jemalloc_example", "heaptap_example"):
            with self.subTest(program=program):
                text = self.run_example(program, "stats").stdout()
                self.assertTrue(text.startswith("___ Begin jemalloc statistics ___\n"), text[:100])
                figures = json.loads(self.run_example(program, "stats", "J").stdout())["jemalloc"]
                live = sum(size for _, _, size in LEAKS)
                self.assertGreaterEqual(figures["stats"]["allocated"], live)
                self.assertTrue(figures["opt"]["prof"])


class TheOtherJemalloc(Case):
    """What the libjemalloc.so.2 beside heaptap makes of its options, from each of their sources."""

    needs_bpf = False
    QUIET = {"opt.prof": "false", "opt.prof_final": "false", "opt.prof_leak": "false", "opt.prof_leak_error": "false",
             "opt.prof_gdump": "false", "opt.stats_print": "false", "opt.confirm_conf": "false",
             "opt.abort_conf": "false", "opt.background_thread": "false", "opt.lg_prof_interval": "-1",
             "opt.stats_interval": "-1"}

    def options(self, program, *wrapper, env):
        process = self.program(*wrapper, target(program), env=dict(ROOM, **env))
        self.assertEqual(process.wait(), 0, process.stderr())
        self.errors = process.stderr()
        return dict(line.split(" ", 1) for line in process.stdout().splitlines())

    def assert_quiet(self, options):
        home = options.pop("HOME")
        self.assertEqual(home, self.folder, "secure_getenv of another name is libc's")
        self.assertEqual(options, self.QUIET)

    def initialised(self):
        """Libraries in the order in which their constructors ran, by LD_DEBUG."""
        return [os.path.basename(path) for path in re.findall(r"calling init: (\S+)", self.errors)]

    def test_jemalloc_begins_first(self):
        """A program that is linked with it: its constructor runs before heaptap's."""
        env = {"MALLOC_CONF": EVERYTHING, "LD_PRELOAD": LIBRARY, "LD_DEBUG": "files"}
        self.assert_quiet(self.options("other_jemalloc_linked", env=env))
        order = self.initialised()
        self.assertLess(order.index("libjemalloc.so.2"), order.index("libheaptap.so"))

    def test_heaptap_begins_first(self):
        """A program that loads it later."""
        env = {"MALLOC_CONF": EVERYTHING, "LD_PRELOAD": LIBRARY, "LD_DEBUG": "files"}
        self.assert_quiet(self.options("other_jemalloc", env=env))
        order = self.initialised()
        self.assertLess(order.index("libheaptap.so"), order.index("libjemalloc.so.2"))

    def test_without_heaptap_it_obeys(self):
        """The same options do reach it when heaptap is not there."""
        options = self.options("other_jemalloc", env={"MALLOC_CONF": EVERYTHING})
        self.assertEqual((options["opt.prof"], options["opt.prof_final"]), ("true", "true"))
        self.assertEqual(options["opt.lg_prof_interval"], "40")

    def test_the_system_wide_link(self):
        """/etc/malloc.conf, in a mount namespace where there is one."""
        etc = os.path.join(self.folder, "etc")
        os.mkdir(etc)
        os.symlink(EVERYTHING, os.path.join(etc, "malloc.conf"))
        wrapper = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc && exec env $HEAPTAP_TEST_PRELOAD "$@"', etc)
        options = self.options("other_jemalloc_linked", *wrapper, env={"HEAPTAP_TEST_PRELOAD": "A=b"})
        self.assertEqual(options["opt.prof"], "true", "the link counts without heaptap")
        self.assert_quiet(self.options("other_jemalloc_linked", *wrapper,
                                       env={"HEAPTAP_TEST_PRELOAD": f"LD_PRELOAD={LIBRARY}"}))

    def test_secure_execution(self):
        """AT_SECURE (real and effective user differ): the environment is told to nobody."""
        options = self.options("environment_static", "setpriv", "--ruid=65534", env={"MALLOC_CONF": EVERYTHING})
        self.assertEqual(options, {"HOME": "is not told"})
        self.assertEqual(self.options("environment_static", env={}), {"HOME": self.folder})

    def assert_its_own_dump(self, process):
        self.assertEqual(process.wait(), 0, process.stderr())
        (dump,) = self.dumps()
        self.assertGreaterEqual(dump.read().total.objects, 50)
        os.unlink(dump.path)

    def test_where_it_is_the_allocator_it_keeps_its_options(self):
        """Linked into the program, or preloaded before heaptap: heaptap is not in use, and does not interfere."""
        env = {"MALLOC_CONF": "prof:true,prof_final:true,lg_prof_sample:0,prof_prefix:its"}
        self.assert_its_own_dump(self.program(target("jemalloc_example_static"), env=dict(env, LD_PRELOAD=LIBRARY)))
        both = dict(env, LD_PRELOAD=f"{JEMALLOC} {LIBRARY}")
        self.assert_its_own_dump(self.program(target("jemalloc_example"), env=both))


class Installed(Case):
    """make install, and what pkg-config says, are enough to build a program for heaptap."""

    needs_bpf = False

    def command(self, *words, **options):
        process = self.program(*words, **options)
        self.assertEqual(process.wait(), 0, process.stdout() + process.stderr())
        return process.stdout()

    def test_pkg_config(self):
        prefix = os.path.join(self.folder, "prefix")
        self.command("make", "-s", "-C", ROOT, "install", f"PREFIX={prefix}")
        flags = self.command("pkg-config", "--cflags", "--libs", "heaptap",
                             env={"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}).split()
        source = os.path.join(ROOT, "tests", "targets", "jemalloc_example.c")
        self.command("gcc", "-O1", "-Wall", "-Werror", "-Wno-unused-result", source, "-o", "example", *flags)
        self.assertIn(f"{prefix}/lib/heaptap/libheaptap.so", self.command("ldd", "./example"))
        self.assertEqual(self.command("./example", "sizes").split()[:3], ["8", "16", "32"])
        with open(os.path.join(self.folder, "knows.cc"), "w", encoding="ascii") as file:
            file.write('#include <heaptap/heaptap.h>\n'
                       'int main() { return heaptap_control.magic == HEAPTAP_CONTROL_MAGIC ? 0 : 1; }\n')
        self.command("g++", "-Wall", "-Werror", "knows.cc", "-o", "knows", *flags)
        self.command("./knows")
        self.command("gcc", "-static", "-Wno-unused-result", source, "-o", "static", *flags[:2],
                     f"{prefix}/lib/heaptap/libheaptap.a")
        self.assertEqual(self.command("./static", "sizes").split()[:3], ["8", "16", "32"])
