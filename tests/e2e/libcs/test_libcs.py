# SPDX-License-Identifier: Apache-2.0
"""One file for every libc: the libraries in programs of musl and of glibc from 2.23 to 2.41.

Recording is exact, so all numbers are: what the program counts is what is in the profile. Error bounds: none, except where
a process is attached to, which allocates some blocks before it notices.
"""

import json
import re
import signal

import pytest

import libc_roots
import symbols
from daemons import EXACT
from harness import PATIENCE_SECONDS

DAEMON = ["--exact", "--dump-at-exit", "always"]

# How much a process may grow by threads that have ended, in KiB. One thread uses as much for its blocks; a heap that is
# left behind by each would be hundred megabytes.
MOST_GROWTH = 4096
THREADS = 2000

PERL = "my %h; $h{$_} = 'x' x $_ for 1..3000; print length(join '', values %h), qq(\\n); exit(fork ? (wait, $? >> 8)[1] : 5)"
PYTHON = """
import ctypes, json, subprocess, threading
def work(results):
    results.append(len(json.dumps([{str(i): "x" * i} for i in range(1000)])))
results = []
threads = [threading.Thread(target=work, args=(results,)) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
ctypes.CDLL("libm.so.6")
print(results, subprocess.check_output(["echo", "child"]))
"""


@pytest.fixture(params=libc_roots.LIBRARIES)
def library(request):
    return request.param


ROOTS = [pytest.param(root, marks=pytest.mark.slow) for root in libc_roots.ROOTS]


# Those whose headers have what the programs of tests/allocator use.
NEW_HEADERS = pytest.mark.parametrize("libc", ["musl", *(root for root in ROOTS if root.values[0] in libc_roots.WITH_NEW_HEADERS)],
                                      indirect=True)


@pytest.fixture(params=["musl", *ROOTS])
def libc(request, lab):
    made = libc_roots.Musl() if request.param == "musl" else libc_roots.Root(request.param, lab.path("libc"))
    yield made
    made.remove()


@pytest.fixture(params=ROOTS)
def root(request, lab):
    made = libc_roots.Root(request.param, lab.path("libc"))
    yield made
    made.remove()


def preload(library, **variables):
    return {"LD_PRELOAD": libc_roots.LIBRARIES[library], **variables}


def run(lab, library, *arguments, **options):
    return lab.heaptap("run", *libc_roots.OPTIONS[library], *arguments, **options)


def dumps_with(lab, function):
    """Of the processes that have called this function. A program below a changed root was another one before."""
    dumps = [dump.read() for dump in lab.dumps(kind="f")]
    return [dump for dump in dumps if symbols.live(dump, function)[0] != 0]


def assert_exact(dump, stdout):
    """exact_threads has counted what is in the dump."""
    printed = [line.split() for line in stdout.splitlines()]
    assert len(printed) == 3
    for path, objects, size, _ in printed:
        assert symbols.live(dump, path) == (int(objects), int(size)), path


def test_threads_are_recorded_to_the_byte(lab, libc, library):
    session = run(lab, library, "--exact", "--", *libc.command("exact_threads", "5000"))
    session.ends(seconds=4 * PATIENCE_SECONDS)
    (dump,) = dumps_with(lab, "allocate_small")
    assert dump.rate == 1
    assert_exact(dump, session.stdout())


def test_a_program_without_libpthread_and_libdl(lab, libc, library):
    """jemalloc's worked example: 120 objects on two paths."""
    session = run(lab, library, "--exact", "--", *libc.command("wiki_leak"))
    session.ends()
    (dump,) = dumps_with(lab, "do_something")
    assert [symbols.live(dump, path)[0] for path in ("do_something", "do_something_else")] == [80, 40]


@pytest.mark.parametrize("way", ["fork", "vfork", "threads", "spawn"])
def test_children(lab, libc, library, way):
    session = run(lab, library, "--exact", "--", *libc.command("children", way))
    session.ends(7)
    (parent,) = dumps_with(lab, "parent_leak")
    (child,) = dumps_with(lab, "child_leak")
    assert (symbols.live(parent, "parent_leak")[0], symbols.live(child, "child_leak")[0]) == (1010, 500)


def test_an_opened_library(lab, libc, library):
    session = run(lab, library, "--exact", "--", *libc.command("loader"), talks=True)
    assert session.answer().startswith("ready ")
    assert session.ask(f"open {libc.file('libleft.so')}").startswith("opened ")
    assert session.ask("call left_enter 100") == "called"
    session.ends()
    (dump,) = dumps_with(lab, "left_inner")
    # One by its constructor, which libc calls.
    found = sorted((stack.total.objects, "call_plugin" in symbols.names(dump, stack))
                   for stack in symbols.stacks_through(dump, "left_inner"))
    assert found == [(1, False), (100, True)]


def test_signal_handlers(lab, libc, library):
    """The call path of a handler leads through the signal frame of libc into what the signal interrupted."""
    session = run(lab, library, "--exact", "--", *libc.command("frames"), talks=True)
    session.answer()
    for way, count in (("signal", 5), ("alternate_signal", 7)):
        assert session.ask(f"{way} {count}") == "done"
    session.ends()
    (dump,) = dumps_with(lab, "on_fault")
    for way, count in (("signal", 5), ("alternate_signal", 7)):
        (stack,) = symbols.stacks_through(dump, f"in_{way}")
        names = symbols.names(dump, stack)
        assert stack.total.objects == count
        assert (names[:2], names[3:6]) == (["allocate", "on_fault"], ["interrupted", f"in_{way}", "main"])
    assert lab.answer_of("report", "--collapsed", dump.path, may_say="heaptap: ").count(";<signal handler called>;") == 2


def test_kill(lab, libc, library):
    session = run(lab, library, "--exact", "--", *libc.command("puppet"), talks=True)
    session.answer()
    session.ask("keep 1000 100")
    session.ask("churn 1000 100")
    session.tell("raise 9")
    session.ends(128 + signal.SIGKILL)
    (dump,) = dumps_with(lab, "keep_blocks")
    assert (symbols.kept(dump), symbols.live(dump, "churn_blocks")[0]) == (1000, 0)


def test_attach(lab, libc, library):
    puppet = lab.program(*libc.command("puppet"), talks=True, env=preload(library))
    pid = int(puppet.answer().split()[1])
    session = lab.attach(pid, "--exact")
    # Until it has noticed.
    puppet.ask("churn 5000 100")
    puppet.ask("keep 1000 100")
    puppet.ends()
    session.ends()
    assert symbols.kept(lab.only_dump(pid, "f")) == 1000


def test_daemon(lab, daemon, libc, library):
    """From the first allocation."""
    program = lab.program(*libc.command("exact_threads", "5000"), env=preload(library, **EXACT))
    program.ends(seconds=4 * PATIENCE_SECONDS)
    daemon.wait_ended(program.pid)
    dump = daemon.only_dump(program.pid, "f")
    assert_exact(dump, program.stdout())
    (entry,) = [entry for entry in daemon.ended() if entry["pid"] == program.pid]
    assert entry["losses"] == {}


@pytest.mark.without_bpf
def test_threads_that_come_with_a_library_leave_nothing(lab, libc, library):
    program = lab.program(*libc.command("late_threads", libc.file("liblate_threads.so"), str(THREADS)), env=preload(library))
    program.ends()
    (what, kibibytes) = program.stdout().split()
    assert what == "grew"
    assert int(kibibytes) <= MOST_GROWTH


def assert_same(lab, words, environment):
    """A program ends with the libraries as without."""
    without, beside = lab.program(*words), lab.program(*words, env=environment)
    assert without.wait() == beside.wait(), beside.stderr()
    assert (without.stdout(), without.stderr()) == (beside.stdout(), beside.stderr())


@pytest.mark.without_bpf
@pytest.mark.parametrize("rate", ["off", "0"])
@pytest.mark.parametrize("words", [["perl", "-e", PERL], ["python3", "-c", PYTHON], ["ls", "-lR", "/usr/lib"]],
                         ids=["perl", "python", "ls"])
def test_programs_end_as_without(lab, root, library, words, rate):
    options = {} if rate == "off" else {"HEAPTAP_CONF": "lg_prof_sample:0"}
    assert_same(lab, root.system_command(*words), preload(library, **options))


# --- what malloc and its relatives promise: the programs of tests/allocator that are C ---


@pytest.mark.without_bpf
@pytest.mark.parametrize("rate", ["off", "0"])
@pytest.mark.parametrize("program", ["behaviour", "extended", "getenv_under_lock"])
@NEW_HEADERS
def test_the_allocator_keeps_its_promises(lab, libc, program, rate):
    options = {} if rate == "off" else {"HEAPTAP_CONF": "lg_prof_sample:0"}
    lab.program(*libc.command(program), env=preload("allocator", **options)).ends()


@pytest.mark.without_bpf
@pytest.mark.parametrize("rate", ["off", "0", "10", "19"])
@NEW_HEADERS
def test_the_guest_answers_as_its_host(lab, libc, rate):
    with_guest = lab.program(*libc.command("api"), env=preload("guest", **({} if rate == "off" else {"SAMPLE": rate})))
    alone = lab.program(*libc.command("api"))
    with_guest.ends()
    alone.ends()
    # A block of musl for 0 bytes has none, and no sample is so small.
    def answers(program):
        return [line for line in program.stdout().splitlines() if not line.startswith("malloc 0: ")]
    assert len(answers(alone)) > 100
    assert answers(with_guest) == answers(alone)


@pytest.mark.without_bpf
@pytest.mark.parametrize("way", ["audit", "signal", "locked", "limit", "sandbox", "vfork"])
@NEW_HEADERS
def test_odd_circumstances(lab, libc, way):
    words = libc.command("odd", way, *(["/bin/true"] if way == "vfork" else []))
    lab.program(*words, env=preload("guest", SAMPLE="0")).ends()


@pytest.mark.without_bpf
@pytest.mark.parametrize("kind", ["allocator", "guest"])
@NEW_HEADERS
def test_a_library_starts_before_the_first_allocation(lab, libc, kind):
    """glibc before 2.34 starts libpthread before the allocator."""
    for early, way, answer in (("fork", "fork", "ok\n"), ("keys", "threads", "used again\n")):
        host = lab.program(*libc.command("early_host", way), env=preload(kind, EARLY=early, SAMPLE="0"))
        host.ends()
        assert host.stdout() == answer


@pytest.mark.without_bpf
@pytest.mark.parametrize("rate", ["0", "8", "12", "16"])
def test_the_sampling_law_over_musl(lab, rate):
    words = libc_roots.Musl().command("c_law")
    lab.program(*words, env=preload("guest", SAMPLE=rate, HEAPTAP_CONF="prof_seed:1")).ends()


@pytest.mark.without_bpf
def test_the_doctor_knows_musl(lab):
    """It advises as for glibc, and the advice works (test_attach)."""
    puppet = lab.program(*libc_roots.Musl().command("puppet"), talks=True)
    pid = int(puppet.answer().split()[1])
    doctor = lab.heaptap("doctor", "-p", str(pid), "--json")
    doctor.records = False
    doctor.wait()
    findings = {finding["subject"]: finding for finding in json.loads(doctor.stdout())["findings"]}
    assert re.fullmatch(r"musl \(/.*\)", findings["allocator"]["detail"])
    assert findings["sampled allocator"]["remedy"].startswith("to keep musl: heaptap run --guest -- ")
