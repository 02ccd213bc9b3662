# SPDX-License-Identifier: Apache-2.0
"""An application that finds mallctl and malloc_stats_print by dlsym(RTLD_DEFAULT), like libmtev, over real HTTP: every
answer of libmtev about an allocator, its memory.json, and the workflow in its documents.

No allocator can cause libmtev's other answers (no rights, no allocator, no table of parameters, fstat failed).

Everything is recorded and blocks of 64 KiB have no ready lists: no error bounds.
"""

import errno
import json
import os
import re
import signal
import subprocess

import pytest

from allocators import JEMALLOC, KI, jeprof, said, table
from harness import LIBRARY, PATIENCE_SECONDS, target
from json_keys import leaves
from libmtev import Answer, Endpoints
from symbols import live

BLOCK = 64 * KI
PROFILE = "/mtev/heap_profile"
MEMORY = "/mtev/memory.json"
EXCLUDE = "--exclude=(mtev_memory_|ck_hs_)"


def text(body):
    return Answer(200, "OK", "text/plain", body.encode())


ACTIVATED, DEACTIVATED = text("Profiling is activated\n"), text("Profiling is deactivated\n")


def state(opt_prof, active, thread_active_init):
    comment = "" if opt_prof else '# needs MALLOC_CONF="prof:true"\n'
    words = {True: "true", False: "false"}
    return text(f"opt.prof: {words[opt_prof]}\n{comment}prof.active: {words[active]}\n"
                f"prof.thread_active_init: {words[thread_active_init]}\n")


def error(number):
    return Answer(500, "ERROR", "text/plain", os.strerror(number).encode())


def serve(allocator, conf):
    return Endpoints(allocator.start(target("mtev_endpoints"), conf=conf, talks=True))


def save(allocator, endpoints, name):
    """Saves the profile that the application returns."""
    answer = endpoints.get(PROFILE + "?trigger_dump=true")
    assert (answer.status, answer.type) == (200, "application/x-jemalloc-heap-profile"), answer.body
    with open(allocator.path(name), "wb") as file:
        file.write(answer.body)
    return allocator.path(name)


def test_heap_profile(lab, allocator):
    """Each row of libmtev's table of answers."""
    endpoints = serve(allocator, "prof:true,prof_active:false,lg_prof_sample:0")
    for path, answer in (
            (PROFILE, state(True, False, True)),
            (PROFILE + "?active=true", ACTIVATED), (PROFILE, state(True, True, True)),
            (PROFILE + "?active=1", DEACTIVATED), (PROFILE, state(True, False, True)),
            (PROFILE + "?active=true&trigger_dump=true", ACTIVATED),
            (PROFILE + "?trigger_dump=true&active=false", DEACTIVATED),
            (PROFILE + "?trigger_dump=1", state(True, False, True)),
            ("/mtev/heap_profiles", Answer(404, "NOT FOUND", "text/plain", b""))):
        assert endpoints.get(path) == answer
    assert endpoints.get(PROFILE, method="POST").status == 404
    endpoints.get(f"/application/keep?blocks=10&size={BLOCK}")
    save(allocator, endpoints, "inactive.prof")
    assert live(allocator.dump_named("inactive.prof"), "application_keep") == (0, 0)
    assert endpoints.get(PROFILE + "?active=true") == ACTIVATED
    endpoints.get(f"/application/keep?blocks=10&size={BLOCK}")
    save(allocator, endpoints, "active.prof")
    assert live(allocator.dump_named("active.prof"), "application_keep") == (10, 10 * BLOCK)
    # The temporary files are gone, and nothing else was left.
    assert [name for name in os.listdir(lab.folder) if name.startswith("heap_profile")] == []


@pytest.mark.without_bpf
@pytest.mark.parametrize("conf, before, activated, dumped", (
    ("prof:false", state(False, False, False), error(errno.ENOENT), error(errno.ENOENT)),
    ("prof:true", state(True, True, True), ACTIVATED, None),
    ("prof:true,prof_thread_active_init:false", state(True, True, False), ACTIVATED, None)),
    ids=["off", "on", "threads off"])
def test_options(library, conf, before, activated, dumped):
    """prof off, on, and with prof_thread_active_init off: the same state and errors as under jemalloc."""
    endpoints = serve(library, conf + ",lg_prof_sample:0")
    assert endpoints.get(PROFILE) == before
    assert endpoints.get(PROFILE + "?active=false") == DEACTIVATED
    assert endpoints.get(PROFILE + "?active=true") == activated
    if dumped is not None:
        assert endpoints.get(PROFILE + "?trigger_dump=true") == dumped


def test_curl(lab, allocator):
    """The documented command with curl, and jeprof on the saved profile."""
    endpoints = serve(allocator, "prof:true,lg_prof_sample:0")
    endpoints.get(f"/application/keep?blocks=10&size={BLOCK}")
    subprocess.run(["curl", "-sS", "--fail", "-o", allocator.path("profile.prof"),
                    f"http://127.0.0.1:{endpoints.port}{PROFILE}?trigger_dump=true"],
                   timeout=PATIENCE_SECONDS, check=True)
    rows = table(jeprof(lab, "--text", "--show_bytes", target("mtev_endpoints"),
                        allocator.path("profile.prof")).decode())
    assert rows["application_keep"] == (10 * BLOCK, 10 * BLOCK)


def test_workflow(lab, allocator):
    """libmtev's recipe: prof:true,prof_active:false; activate; a baseline; load; a profile; jeprof --text --lines
    --exclude, and --base."""
    endpoints = serve(allocator, "prof:true,prof_active:false,lg_prof_sample:0")
    program = target("mtev_endpoints")
    endpoints.get(f"/application/keep?blocks=100&size={BLOCK}")  # the start: not recorded
    assert endpoints.get(PROFILE + "?active=true") == ACTIVATED
    endpoints.get(f"/application/keep?blocks=10&size={BLOCK}")
    baseline = save(allocator, endpoints, "baseline.prof")
    endpoints.get(f"/application/keep?blocks=30&size={BLOCK}")
    endpoints.get(f"/application/noise?blocks=40&size={BLOCK}")
    profile = save(allocator, endpoints, "profile.prof")
    assert endpoints.get(PROFILE + "?active=false") == DEACTIVATED

    rows = table(jeprof(lab, "--text", "--lines", "--show_bytes", program, profile).decode())
    flat = {name.split(" ")[0]: (size, name) for name, (size, _) in rows.items() if size > 0}
    for function, blocks in (("application_keep", 40), ("mtev_memory_reclaim", 20), ("ck_hs_grow", 20)):
        assert flat[function][0] == blocks * BLOCK
        assert re.search(r"mtev_endpoints\.c:\d+", flat[function][1]), flat[function][1]

    excluded = table(jeprof(lab, "--text", "--lines", "--show_bytes", EXCLUDE, program, profile).decode())
    assert not [name for name in excluded if name.startswith(("mtev_memory_", "ck_hs_"))]
    assert [name for name in excluded if name.startswith("application_keep")]

    grown = table(jeprof(lab, "--text", "--show_bytes", EXCLUDE, f"--base={baseline}", program, profile).decode())
    assert grown["application_keep"][1] == 30 * BLOCK


@pytest.mark.without_bpf
@pytest.mark.parametrize("profiling", (True, False))
def test_memory_json(library, profiling):
    """Parses memory.json and checks the application's totals, with profiling and without."""
    endpoints = serve(library, f"prof:{str(profiling).lower()}")
    endpoints.get(f"/application/keep?blocks=160&size={BLOCK}")
    answer = endpoints.get(MEMORY)
    assert (answer.status, answer.type) == (200, "application/json")
    jemalloc = json.loads(answer.body)["jemalloc"]
    assert jemalloc["stats"]["allocated"] >= 160 * BLOCK
    assert jemalloc["stats"]["allocated"] < 160 * BLOCK + (1 << 20)
    for smaller, larger in (("allocated", "active"), ("active", "mapped")):
        assert jemalloc["stats"][smaller] <= jemalloc["stats"][larger]
    assert jemalloc["opt"]["prof"] is profiling
    assert re.search(r"^\d+\.\d+", jemalloc["version"])


def test_it_ends(allocator):
    endpoints = serve(allocator, "prof:true")
    os.kill(endpoints.pid, signal.SIGTERM)
    endpoints.process.ends()
    assert said(endpoints.process) == []


def test_attached(lab, heaptap):
    """A server that runs with the library only; a collector attaches later, and ends."""
    endpoints = Endpoints(lab.preloaded(target("mtev_endpoints"), talks=True,
                                        env={"MALLOC_CONF": "prof:true,prof_active:false,lg_prof_sample:0"}))
    assert endpoints.get(PROFILE + "?trigger_dump=true") == error(errno.EFAULT)
    session = lab.attach(endpoints.pid, "-o", "collector")
    assert endpoints.get(PROFILE + "?active=true") == ACTIVATED
    endpoints.get(f"/application/keep?blocks=10&size={BLOCK}")
    save(heaptap, endpoints, "attached.prof")
    assert live(heaptap.dump_named("attached.prof"), "application_keep") == (10, 10 * BLOCK)
    session.signal(signal.SIGTERM)
    session.ends()
    assert endpoints.get(PROFILE + "?trigger_dump=true") == error(errno.EFAULT)
    assert endpoints.get(PROFILE) == state(True, True, True)


@pytest.mark.without_bpf
@pytest.mark.parametrize("conf", ("prof:true", "prof:false"))
def test_keys_of_memory_json(lab, conf):
    """A parser written for jemalloc's JSON finds every key in heaptap's, with a value of the same kind."""
    def keys(library):
        endpoints = Endpoints(lab.program(target("mtev_endpoints"), talks=True,
                                          env={"LD_PRELOAD": library, "MALLOC_CONF": conf}))
        endpoints.get(f"/application/keep?blocks=10&size={BLOCK}")
        return leaves(json.loads(endpoints.get(MEMORY).body)).items()
    theirs = keys(JEMALLOC)
    assert len(theirs) > 200
    assert theirs - keys(LIBRARY) == set()
