# SPDX-License-Identifier: Apache-2.0
"""An application that finds mallctl and malloc_stats_print by dlsym(RTLD_DEFAULT), as libmtev does, over real HTTP:
every answer that libmtev gives, its memory.json, and the workflow that its documents describe.

libmtev's two remaining answers (no table of parameters, fstat failed) have causes that no allocator can bring about.

Everything is recorded and blocks of 64 KiB have no ready lists: no error bounds.
"""

import errno
import json
import os
import signal
import subprocess

from harness import LIBRARY, PATIENCE_SECONDS, Case, target
from libmtev import Answer, Endpoints
from walkthrough import JEMALLOC, KI, OnHeaptap, OnJemalloc, Steering, held, jeprof, said, table

BLOCK = 64 * KI
PROFILE = "/mtev/heap_profile"
MEMORY = "/mtev/memory.json"
EXCLUDE = "--exclude=(mtev_memory_|ck_hs_)"


def text(body):
    return Answer(200, "OK", "text/plain", body.encode())


def state(opt_prof, active, thread_active_init):
    comment = "" if opt_prof else '# needs MALLOC_CONF="prof:true"\n'
    words = {True: "true", False: "false"}
    return text(f"opt.prof: {words[opt_prof]}\n{comment}prof.active: {words[active]}\n"
                f"prof.thread_active_init: {words[thread_active_init]}\n")


def error(number):
    return Answer(500, "ERROR", "text/plain", os.strerror(number).encode())


ACTIVATED, DEACTIVATED = text("Profiling is activated\n"), text("Profiling is deactivated\n")


class Application(Steering):
    def serve(self, conf):
        return Endpoints(self.start(target("mtev_endpoints"), conf=conf, talks=True))

    def save(self, endpoints, name):
        """The profile that the application gives, in a file."""
        answer = endpoints.get(PROFILE + "?trigger_dump=true")
        self.assertEqual((answer.status, answer.reason, answer.type),
                         (200, "OK", "application/x-jemalloc-heap-profile"), answer.body)
        with open(self.path(name), "wb") as file:
            file.write(answer.body)
        return self.path(name)

    def test_heap_profile(self):
        """Each row of libmtev's table of answers."""
        endpoints = self.serve("prof:true,prof_active:false,lg_prof_sample:0")
        for path, answer in (
                (PROFILE, state(True, False, True)),
                (PROFILE + "?active=true", ACTIVATED), (PROFILE, state(True, True, True)),
                (PROFILE + "?active=1", DEACTIVATED), (PROFILE, state(True, False, True)),
                (PROFILE + "?active=true&trigger_dump=true", ACTIVATED),
                (PROFILE + "?trigger_dump=true&active=false", DEACTIVATED),
                (PROFILE + "?trigger_dump=1", state(True, False, True)),
                ("/mtev/heap_profiles", Answer(404, "NOT FOUND", "text/plain", b""))):
            with self.subTest(path=path):
                self.assertEqual(endpoints.get(path), answer)
        self.assertEqual(endpoints.get(PROFILE, method="POST").status, 404)
        endpoints.get(f"/application/keep?blocks=10&size={BLOCK}")
        self.save(endpoints, "inactive.prof")
        self.assertEqual(held(self.dump_named("inactive.prof"), "application_keep"), (0, 0))
        self.assertEqual(endpoints.get(PROFILE + "?active=true"), ACTIVATED)
        endpoints.get(f"/application/keep?blocks=10&size={BLOCK}")
        self.save(endpoints, "active.prof")
        self.assertEqual(held(self.dump_named("active.prof"), "application_keep"), (10, 10 * BLOCK))
        # The temporary files are gone, and nothing else was left.
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("heap_profile")], [])

    def test_options(self):
        """prof off, on, and with prof_thread_active_init off: state and errors as jemalloc has them."""
        for conf, before, activated, dumped in (
                ("prof:false", state(False, False, False), error(errno.ENOENT), error(errno.ENOENT)),
                ("prof:true", state(True, True, True), ACTIVATED, None),
                ("prof:true,prof_thread_active_init:false", state(True, True, False), ACTIVATED, None)):
            with self.subTest(conf=conf):
                endpoints = self.serve(conf + ",lg_prof_sample:0")
                self.assertEqual(endpoints.get(PROFILE), before)
                self.assertEqual(endpoints.get(PROFILE + "?active=false"), DEACTIVATED)
                self.assertEqual(endpoints.get(PROFILE + "?active=true"), activated)
                if dumped is not None:
                    self.assertEqual(endpoints.get(PROFILE + "?trigger_dump=true"), dumped)

    def test_denied(self):
        """Who may not read them learns nothing, whatever the allocator is."""
        endpoints = Endpoints(self.start(target("mtev_endpoints"), "deny", conf="prof:true", talks=True))
        for path in (PROFILE, MEMORY):
            self.assertEqual(endpoints.get(path), Answer(403, "DENIED", "text/html", b""))

    def test_curl(self):
        """The documents' command, with curl, and jeprof on what it saved."""
        endpoints = self.serve("prof:true,lg_prof_sample:0")
        endpoints.get(f"/application/keep?blocks=10&size={BLOCK}")
        subprocess.run(["curl", "-sS", "--fail", "-o", self.path("profile.prof"),
                        f"http://127.0.0.1:{endpoints.port}{PROFILE}?trigger_dump=true"],
                       timeout=PATIENCE_SECONDS, check=True)
        rows = table(jeprof(self, "--text", "--show_bytes", target("mtev_endpoints"),
                            self.path("profile.prof")).decode())
        self.assertEqual(rows["application_keep"], (10 * BLOCK, 10 * BLOCK))

    def test_workflow(self):
        """libmtev's recipe: prof:true,prof_active:false; activate; a baseline; load; a profile; jeprof --text --lines
        --exclude, and --base."""
        endpoints = self.serve("prof:true,prof_active:false,lg_prof_sample:0")
        program = target("mtev_endpoints")
        endpoints.get(f"/application/keep?blocks=100&size={BLOCK}")  # the start: not recorded
        self.assertEqual(endpoints.get(PROFILE + "?active=true"), ACTIVATED)
        endpoints.get(f"/application/keep?blocks=10&size={BLOCK}")
        baseline = self.save(endpoints, "baseline.prof")
        endpoints.get(f"/application/keep?blocks=30&size={BLOCK}")
        endpoints.get(f"/application/noise?blocks=40&size={BLOCK}")
        profile = self.save(endpoints, "profile.prof")
        self.assertEqual(endpoints.get(PROFILE + "?active=false"), DEACTIVATED)

        rows = table(jeprof(self, "--text", "--lines", "--show_bytes", program, profile).decode())
        flat = {name.split(" ")[0]: (size, name) for name, (size, _) in rows.items() if size > 0}
        for function, blocks in (("application_keep", 40), ("mtev_memory_reclaim", 20), ("ck_hs_grow", 20)):
            self.assertEqual(flat[function][0], blocks * BLOCK)
            self.assertRegex(flat[function][1], r"mtev_endpoints\.c:\d+")

        excluded = table(jeprof(self, "--text", "--lines", "--show_bytes", EXCLUDE, program, profile).decode())
        self.assertFalse([name for name in excluded if name.startswith(("mtev_memory_", "ck_hs_"))])
        self.assertTrue([name for name in excluded if name.startswith("application_keep")])

        grown = table(jeprof(self, "--text", "--show_bytes", EXCLUDE, f"--base={baseline}", program, profile).decode())
        self.assertEqual(grown["application_keep"][1], 30 * BLOCK)

    def test_memory_json(self):
        """Parsed as JSON; the totals are those of the application; with profiling and without."""
        for conf in ("prof:true", "prof:false"):
            with self.subTest(conf=conf):
                endpoints = self.serve(conf)
                endpoints.get(f"/application/keep?blocks=160&size={BLOCK}")
                answer = endpoints.get(MEMORY)
                self.assertEqual((answer.status, answer.type), (200, "application/json"))
                jemalloc = json.loads(answer.body)["jemalloc"]
                self.assertGreaterEqual(jemalloc["stats"]["allocated"], 160 * BLOCK)
                self.assertLess(jemalloc["stats"]["allocated"], 160 * BLOCK + (1 << 20))
                for smaller, larger in (("allocated", "active"), ("active", "mapped")):
                    self.assertLessEqual(jemalloc["stats"][smaller], jemalloc["stats"][larger])
                self.assertIs(jemalloc["opt"]["prof"], conf == "prof:true")
                self.assertRegex(jemalloc["version"], r"^\d+\.\d+")

    def test_it_ends(self):
        endpoints = self.serve("prof:true")
        os.kill(endpoints.pid, signal.SIGTERM)
        self.assertEqual(endpoints.process.wait(), 0)
        self.assertEqual(said(endpoints.process), [])


class ApplicationJemalloc(Application, OnJemalloc):
    pass


class ApplicationHeaptap(Application, OnHeaptap):
    def test_attached(self):
        """A server that runs with the library and nothing else; a collector comes later, and goes."""
        endpoints = Endpoints(self.program(target("mtev_endpoints"), talks=True, env={
            "LD_PRELOAD": LIBRARY, "MALLOC_CONF": "prof:true,prof_active:false,lg_prof_sample:0"}))
        self.assertEqual(endpoints.get(PROFILE + "?trigger_dump=true"), error(errno.EFAULT))
        session = self.attach(endpoints.pid, "-o", "collector")
        self.assertEqual(endpoints.get(PROFILE + "?active=true"), ACTIVATED)
        endpoints.get(f"/application/keep?blocks=10&size={BLOCK}")
        self.save(endpoints, "attached.prof")
        self.assertEqual(held(self.dump_named("attached.prof"), "application_keep"), (10, 10 * BLOCK))
        session.signal(signal.SIGTERM)
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertEqual(endpoints.get(PROFILE + "?trigger_dump=true"), error(errno.EFAULT))
        self.assertEqual(endpoints.get(PROFILE), state(True, True, True))


class WithoutAnAllocator(Case):
    """glibc's malloc."""

    needs_bpf = False

    def test_not_loaded(self):
        endpoints = Endpoints(self.program(target("mtev_endpoints"), talks=True))
        self.assertEqual(endpoints.get(PROFILE), Answer(500, "ERROR", "text/plain",
                                                        b"libjemalloc is not loaded, cannot heap profile\n"))
        self.assertEqual(endpoints.get(MEMORY), Answer(200, "OK", "application/json", b"{}\n"))


def key_tree(value, path=""):
    """Every path of keys in a JSON value, with the kind of value at its end. Items of a list, and the arenas (keys that
    are numbers), count as one."""
    if isinstance(value, dict):
        found = {path + ".{}"}
        for key, inner in value.items():
            found |= key_tree(inner, f"{path}.{'N' if key.isdecimal() else key}")
        return found
    if isinstance(value, list):
        return {path + "[]"}.union(*(key_tree(inner, path + "[]") for inner in value))
    kind = "boolean" if isinstance(value, bool) else "number" if isinstance(value, (int, float)) else "string"
    return {f"{path} {kind}"}


class MemoryJsonKeys(Case):
    """A parser written for jemalloc's JSON finds every key in heaptap's, with a value of the same kind."""

    needs_bpf = False
    # Keys of jemalloc 5.3.0 that heaptap's document does not have, each with the reason.
    EXPLAINED = {}

    def tree(self, library, conf):
        endpoints = Endpoints(self.program(target("mtev_endpoints"), talks=True, env={
            "LD_PRELOAD": library, "MALLOC_CONF": conf}))
        endpoints.get(f"/application/keep?blocks=10&size={BLOCK}")
        return key_tree(json.loads(endpoints.get(MEMORY).body))

    def test_keys(self):
        for conf in ("prof:true", "prof:false"):
            with self.subTest(conf=conf):
                missing = self.tree(JEMALLOC, conf) - self.tree(LIBRARY, conf)
                self.assertEqual(sorted(missing), sorted(self.EXPLAINED))
