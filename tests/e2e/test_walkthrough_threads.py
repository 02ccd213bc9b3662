# SPDX-License-Identifier: Apache-2.0
"""Threads in dumps: names (thread.prof.name, prof_sys_thread_name), per-thread activation (thread.prof.active,
prof.thread_active_init); and prof.reset.

Everything is recorded; blocks of 64 KiB have no ready lists: no error bounds.
"""

import errno

from heap_v2 import Dump
from walkthrough import KI, OnHeaptap, OnJemalloc, Steering, held, thread_names

BLOCK = 64 * KI


class Threads(Steering):
    CONF = "prof:true,prof_prefix:thread,lg_prof_sample:0"

    def by_name(self, name):
        """{thread's name: its live objects} at the head of a dump; threads without a name under None."""
        dump = Dump(self.path(name))
        objects = {}
        for uid, thread in thread_names(self.path(name)).items():
            objects[thread] = objects.get(thread, 0) + dump.threads[uid].objects
        return objects

    def test_names_given_by_the_program(self):
        process = self.steered(self.CONF)
        self.assert_answers(
            process, ("in 1 read string thread.prof.name", "0 "),
            ("in 1 write string thread.prof.name first", "0"), ("in 2 write string thread.prof.name second one", "0"),
            ("in 1 read string thread.prof.name", "0 first"), (f"in 1 keep 10 {BLOCK}", "kept 10"),
            (f"in 2 keep 20 {BLOCK}", "kept 20"), ("write string prof.dump named.prof", "0"))
        objects = self.by_name("named.prof")
        self.assertEqual((objects["first"], objects["second one"]), (10, 20))
        self.assertEqual(held(self.dump_named("named.prof"), "keep_blocks"), (30, 30 * BLOCK))

    def test_a_name_that_changes(self):
        process = self.steered(self.CONF)
        self.assert_answers(
            process, ("in 1 write string thread.prof.name before", "0"), (f"in 1 keep 10 {BLOCK}", "kept 10"),
            ("in 1 write string thread.prof.name after", "0"), ("write string prof.dump changed.prof", "0"))
        objects = self.by_name("changed.prof")
        self.assertEqual(objects["after"], 10)
        self.assertNotIn("before", objects)

    def test_names_that_are_none(self):
        """Characters that are neither visible nor blank: an error, and the name stays. Long ones are cut to 15 by
        jemalloc 5.3.1, not by 5.3.0: either way the first 15 stand there."""
        process = self.steered(self.CONF)
        self.assert_answers(
            process, ("in 1 write string thread.prof.name good", "0"),
            ("in 1 write string thread.prof.name b\x01d", str(self.bad_name)),
            ("in 1 read string thread.prof.name", "0 good"),
            ("in 1 swap string thread.prof.name other", f"{errno.EPERM} -"),
            ("in 1 write string thread.prof.name 0123456789abcdefghi", "0"))
        self.assertRegex(process.ask("in 1 read string thread.prof.name"), "^0 0123456789abcde")

    def test_names_of_the_system(self):
        """prof_sys_thread_name: the thread's own name, and thread.prof.name cannot be written."""
        process = self.steered(self.CONF + ",prof_sys_thread_name:true")
        self.assert_answers(
            process, ("in 1 name of-the-system", "0"), (f"in 1 keep 10 {BLOCK}", "kept 10"),
            ("in 1 write string thread.prof.name own", str(errno.ENOENT)),
            ("in 1 read string thread.prof.name", "0 of-the-system"), ("write string prof.dump system.prof", "0"))
        self.assertEqual(self.by_name("system.prof")["of-the-system"], 10)

    def test_inactive_thread(self):
        """thread.prof.active=false: what this thread allocates is not recorded; the others' is."""
        process = self.steered(self.CONF)
        self.assert_answers(
            process, ("in 1 write string thread.prof.name quiet", "0"),
            ("in 1 swap bool thread.prof.active false", "0 true"),
            ("in 2 write string thread.prof.name loud", "0"), (f"in 1 keep 10 {BLOCK}", "kept 10"),
            (f"in 2 keep 20 {BLOCK}", "kept 20"), ("write string prof.dump one.prof", "0"))
        self.assertEqual(held(self.dump_named("one.prof"), "keep_blocks"), (20, 20 * BLOCK))
        objects = self.by_name("one.prof")
        self.assertEqual((objects.get("quiet", 0), objects["loud"]), (0, 20))
        self.assert_answers(
            process, ("in 1 swap bool thread.prof.active true", "0 false"), (f"in 1 keep 5 {BLOCK}", "kept 5"),
            ("write string prof.dump two.prof", "0"))
        objects = self.by_name("two.prof")
        self.assertEqual((objects["quiet"], objects["loud"]), (5, 20))

    def test_threads_begin_inactive(self):
        """prof_thread_active_init:false: no thread records before it is told to; prof.thread_active_init is for
        threads that come later."""
        process = self.steered(self.CONF + ",prof_thread_active_init:false")
        self.assert_answers(
            process, ("read bool opt.prof_thread_active_init", "0 false"),
            ("read bool thread.prof.active", "0 false"), ("in 1 read bool thread.prof.active", "0 false"),
            (f"keep 10 {BLOCK}", "kept 10"), (f"in 1 keep 10 {BLOCK}", "kept 10"),
            ("in 1 write bool thread.prof.active true", "0"), (f"in 1 keep 3 {BLOCK}", "kept 3"),
            ("swap bool prof.thread_active_init true", "0 false"), ("in 2 read bool thread.prof.active", "0 true"),
            (f"in 2 keep 4 {BLOCK}", "kept 4"), ("read bool thread.prof.active", "0 false"),
            ("write string prof.dump begin.prof", "0"))
        self.assertEqual(held(self.dump_named("begin.prof"), "keep_blocks"), (7, 7 * BLOCK))


class ThreadsJemalloc(Threads, OnJemalloc):
    bad_name = errno.EFAULT  # jemalloc 5.3.0


class ThreadsHeaptap(Threads, OnHeaptap):
    bad_name = errno.EINVAL  # jemalloc 5.3.1


class Reset(Steering):
    CONF = "prof:true,prof_prefix:reset,lg_prof_sample:0"

    def test_earlier_samples_vanish(self):
        """From the next dump on; what comes after the reset is there; frees of the forgotten change nothing."""
        process = self.steered(self.CONF)
        self.assert_answers(
            process, (f"start 10 {BLOCK}", "started 10"), ("call prof.reset", "0"), (f"keep 20 {BLOCK}", "kept 20"),
            ("write string prof.dump one.prof", "0"), ("drop", "dropped 30"), ("write string prof.dump two.prof", "0"),
            (f"keep 5 {BLOCK}", "kept 5"), ("write string prof.dump three.prof", "0"))
        self.assertEqual(held(self.dump_named("one.prof"), "start_blocks"), (0, 0))
        self.assertEqual(held(self.dump_named("one.prof"), "keep_blocks"), (20, 20 * BLOCK))
        self.assertEqual(self.dump_named("one.prof").rate, 1)
        self.assertEqual(held(self.dump_named("two.prof"), "keep_blocks"), (0, 0))
        self.assertEqual(held(self.dump_named("three.prof"), "keep_blocks"), (5, 5 * BLOCK))

    def test_new_rate(self):
        """The rate goes to the head of the dump and into prof.lg_sample; 63 is the largest."""
        process = self.steered(self.CONF)
        self.assert_answers(
            process, ("read size prof.lg_sample", "0 0"), (f"keep 10 {BLOCK}", "kept 10"),
            ("write size prof.reset 12", "0"), ("read size prof.lg_sample", "0 12"),
            ("read size opt.lg_prof_sample", "0 0"), ("write string prof.dump coarse.prof", "0"),
            ("write size prof.reset 99", "0"), ("read size prof.lg_sample", "0 63"),
            ("write bool prof.reset true", str(errno.EINVAL)), ("read size prof.lg_sample", "0 63"))
        dump = self.dump_named("coarse.prof")
        self.assertEqual(dump.rate, 1 << 12)
        self.assertEqual(held(dump, "keep_blocks"), (0, 0))

    def test_a_finer_rate_is_kept(self):
        """From no samples at all (2^63 bytes between two) to all of them. A thread that has drawn a distance keeps
        it: in jemalloc the new rate begins with a thread's next draw, so this is seen in a new thread."""
        process = self.steered("prof:true,prof_prefix:reset,lg_prof_sample:63")
        self.assert_answers(
            process, (f"in 1 keep 10 {BLOCK}", "kept 10"), ("write size prof.reset 0", "0"),
            (f"in 2 keep 20 {BLOCK}", "kept 20"), ("write string prof.dump fine.prof", "0"))
        dump = self.dump_named("fine.prof")
        self.assertEqual(dump.rate, 1)
        self.assertEqual(held(dump, "keep_blocks"), (20, 20 * BLOCK))

    def test_names_outlive_a_reset(self):
        process = self.steered(self.CONF)
        self.assert_answers(
            process, ("in 1 write string thread.prof.name lasting", "0"), (f"in 1 keep 10 {BLOCK}", "kept 10"),
            ("call prof.reset", "0"), ("in 1 read string thread.prof.name", "0 lasting"),
            (f"in 1 keep 5 {BLOCK}", "kept 5"), ("write string prof.dump after.prof", "0"))
        self.assertIn("lasting", thread_names(self.path("after.prof")).values())
        self.assertEqual(held(self.dump_named("after.prof"), "keep_blocks"), (5, 5 * BLOCK))


class ResetJemalloc(Reset, OnJemalloc):
    pass


class ResetHeaptap(Reset, OnHeaptap):
    pass
