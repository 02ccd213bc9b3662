# SPDX-License-Identifier: Apache-2.0
"""The one-liners of heaptap-probes(7) for BCC's tools, verbatim.
"""

import errno
import re
import signal
import time

import pytest

import control
from harness import LIBRARY, wait_until
from one_liners import (BCC, CHURN, CHURNED_SAMPLES, ENDLESS, KEEP, KEPT_BYTES, KEPT_SAMPLES, SAMPLED, SAMPLED_BYTES,
                        SAMPLED_ERROR, SAMPLED_KEEP, SHORT_CHURN, SHORT_SAMPLES, Lines, end, exact_puppet, exact_workers,
                        histogram, questions, marked_questions, repeat_until, through)


# Each tool compiles with clang at its start. test_bpftrace.py has the same questions.
pytestmark = pytest.mark.slow

# The age of old objects in seconds; larger if younger objects reach it before the end of the line.
AGES = (5, 20, 45)
# The interval of argdist in seconds; larger if it ends before the work.
INTERVALS = (4, 16, 64)


@pytest.fixture
def lines(lab, request):
    return lab.checked(Lines(lab, BCC, {mark.args[0] for mark in request.node.iter_markers("line")}))


def in_one_interval(lines, question, work, held):
    """The output of a line of argdist, which prints only at the end of its interval, and what the work returned that fell into
    it. work() starts a process and returns its PID and what it shall do."""
    for seconds in INTERVALS:
        pid, do = work()
        tracer = lines.start(question, pid, {"10": str(seconds)})
        begun = tracer.stdout()
        done = do()
        if tracer.stdout() == begun:
            tracer.ends()
            held(f"interval for {question}", f"{INTERVALS[-1]} s", f"{seconds} s")
            return tracer.stdout(), done
        tracer.ends()
    pytest.fail(f"the work took more than {INTERVALS[-1]} s")


def counts(output):
    """[(stack, count)] from the output of stackcount."""
    found = re.findall(r"((?:^  \S.*\n)+)^    (\d+)$", output, re.MULTILINE)
    return [(stack, int(count)) for stack, count in found]


def assert_live(output, size, samples):
    """live_objects prints one stack, through keep_blocks()."""
    totals = re.findall(r"^live.*: (\d+) bytes in (\d+) samples$", output, re.MULTILINE)
    assert totals == [(str(size), str(samples))], output
    assert re.search(rf"(?m)^{size} bytes in {samples} samples\n(    \S.*\n)*    keep_blocks\+0x", output), output
    assert "did not fit" not in output


@pytest.mark.line("which probes")
def test_which_probes(lines):
    listing = lines.start("which probes")
    listing.ends()
    arguments = {"otel_memory:alloc": ["di", "si", "dx"], "otel_memory:free": ["di"], "heaptap:start": ["di"],
                 "heaptap:dump": ["di"]}
    found = {probe: re.findall(r"argument #\d 8 unsigned bytes @ (\w+)", lines) for probe, lines in
             re.findall(r"^(\w+:\w+) \[sema 0x[0-9a-f]+\]\n((?:  .*\n)*)", listing.stdout(), re.MULTILINE)}
    # One list for each place of the probe.
    places = control.probes(LIBRARY)
    assert {probe: found.get(probe) for probe in arguments} == {
        probe: registers * places.count(probe.split(":")[1]) for probe, registers in arguments.items()}


@pytest.mark.line("bytes by stack")
def test_bytes_by_stack(lines):
    output = lines.run_on_puppet("bytes by stack", CHURN, KEEP, words={"10": ENDLESS})
    assert through(counts(output), "churn_blocks") == CHURNED_SAMPLES, output
    assert through(counts(output), "keep_blocks") == KEPT_SAMPLES, output


@pytest.mark.line("leak suspects: allocated, not freed meanwhile")
def test_estimates(lines):
    """The bytes are those of all allocations, not only of the samples."""
    question = "leak suspects: allocated, not freed meanwhile"
    output = lines.run_on_puppet(question, SAMPLED_KEEP, words={"10": ENDLESS}, env=SAMPLED)
    estimate = int(re.search(r"^live: (\d+) bytes", output, re.MULTILINE).group(1))
    assert estimate / SAMPLED_BYTES == pytest.approx(1, abs=SAMPLED_ERROR, rel=0)


@pytest.mark.line("live objects older than 10 s, by stack")
def test_old_objects(lab, lines, held):
    for age in AGES:
        puppet = exact_puppet(lab)
        tracer = lines.start("live objects older than 10 s, by stack", puppet.target_pid,
                             {"10": str(age), "30": ENDLESS})
        puppet.ask(KEEP)
        puppet.ask("keep 20 2000")
        kept = time.monotonic()
        wait_until(lambda old=kept + age: time.monotonic() > old, "they grow old")
        young = time.monotonic()
        puppet.ask("keep 300 3000")
        output = end(tracer)
        if time.monotonic() - young < age:
            break
    else:
        pytest.fail("the young were old each time")
    held("age of old objects for BCC's line", f"{AGES[-1]} s", f"{age} s")
    assert_live(output, KEPT_BYTES + 20 * 2048, KEPT_SAMPLES + 20)
    assert f"live in objects older than {age} s" in output


@pytest.mark.line("lifetimes, a histogram")
def test_lifetimes(lines):
    rows = histogram(lines.run_on_puppet("lifetimes, a histogram", KEEP, CHURN, words={"10": ENDLESS}))
    assert sum(rows.values()) == CHURNED_SAMPLES


@pytest.mark.line("sizes, a histogram")
def test_sizes(lab, lines, held):
    def work():
        puppet = exact_puppet(lab)
        return puppet.target_pid, lambda: (puppet.ask(CHURN), puppet.ask(KEEP))
    output, _ = in_one_interval(lines, "sizes, a histogram", work, held)
    assert histogram(output) == {1024: CHURNED_SAMPLES, 64: KEPT_SAMPLES}, output


@pytest.mark.line("allocation rate, each second")
def test_allocation_rate(lab, lines, held):
    puppet = exact_puppet(lab)
    tracer = lines.start("allocation rate, each second", puppet.target_pid, {"10": ENDLESS})
    repeat_until(lambda: round_is_seen(puppet, tracer), "a round within one second", held)
    calls = [int(number) for number in re.findall(r"(?m)^\t(\d+) +total calls$", end(tracer))]
    assert max(calls) == SHORT_SAMPLES, "no second has more than a round"


def round_is_seen(puppet, tracer):
    before = len(tracer.stdout())
    puppet.ask(SHORT_CHURN)
    wait_until(lambda: len(re.findall(r"\[\d\d:\d\d:\d\d\]", tracer.stdout()[before:])) > 2, "two seconds are over")
    return re.search(rf"^\t{SHORT_SAMPLES} +total calls$", tracer.stdout()[before:], re.MULTILINE)


@pytest.mark.line("leak suspects: allocated, not freed meanwhile")
def test_leak_suspects(lines):
    output = lines.run_on_puppet("leak suspects: allocated, not freed meanwhile", "keep 300 3000", "drop", CHURN,
                                 KEEP, words={"10": ENDLESS})
    assert_live(output, KEPT_BYTES, KEPT_SAMPLES)


@pytest.mark.line("top threads")
def test_top_threads(lab, lines, held):
    def work():
        workers = exact_workers(lab)
        return workers.target_pid, lambda: workers.ask("go").split()
    output, threads = in_one_interval(lines, "top threads", work, held)
    found = dict(re.findall(r"^\t(\d+) +bpf_get_current_pid_tgid\(\) = (\d+)$", output, re.MULTILINE))
    assert [thread for _, thread in sorted(found.items()) if thread in threads] == threads
    assert {"1000", "2000", "3000"} <= set(found), output


@pytest.mark.line("one stack's sizes")
def test_one_stack_s_sizes(lab, lines):
    puppet = exact_puppet(lab)
    tracer = lines.start("one stack's sizes", puppet.target_pid)
    puppet.ask("keep 100 100")
    puppet.ask("keep 20 3000")
    wait_until(lambda: len(re.findall(r" bytes\n", tracer.stdout())) == 120, "its lines")
    samples = re.findall(r"alloc +(\d+) bytes\n(?: +\S.*\n)* +keep_blocks\+", end(tracer))
    assert (samples.count("112"), samples.count("3072"), len(samples)) == (100, 20, 120)


@pytest.mark.line("high-water watch, marks of 20 %")
def test_high_water(lines):
    output = lines.run_on_puppet("high-water watch, marks of 20 %", "keep 100 100000", "drop", "keep 10 100000",
                                 words={"60": ENDLESS})
    assert f"maximum {100 * 114688} bytes, now {10 * 114688} bytes\n" in output


@pytest.mark.line("requests for dumps")
def test_requests_for_dumps(lab, lines):
    """Without heaptap, because BCC cannot listen beside it: the process waits in vain."""
    puppet = exact_puppet(lab)
    tracer = lines.start("requests for dumps", puppet.target_pid)
    puppet.tell("call prof.dump")
    line = rf"{puppet.target_pid} +{puppet.target_pid} +puppet +dump +request [0-9a-f]+\n"
    wait_until(lambda: re.search(line, tracer.stdout()), "its line")
    assert puppet.answer() == str(errno.EFAULT)
    end(tracer)


@pytest.mark.line("sizes, a histogram")
def test_beside_heaptap(lab, lines):
    """BCC 0.26 passes a wrong offset of the semaphore. The kernel refuses it, and heaptap goes on."""
    puppet = exact_puppet(lab)
    session = lab.attach(puppet.target_pid)
    tracer = lines.start("sizes, a histogram", puppet.target_pid, wait=False)
    tracer.ends(1)
    assert "Failed to attach BPF to uprobe" in tracer.stdout() + tracer.stderr()
    puppet.ask(KEEP)
    session.signal(signal.SIGINT)
    session.ends()
    assert lab.only_dump().total.objects == KEPT_SAMPLES


@pytest.mark.line("lifetimes, a histogram")
def test_it_ends_by_itself(lab, lines):
    """live_objects without live objects; afterwards sampling is off again."""
    puppet = exact_puppet(lab)
    tracer = lines.start("lifetimes, a histogram", puppet.target_pid, {"10": "1"})
    tracer.ends()
    assert "maximum 0 bytes, now 0 bytes\nlive: 0 bytes in 0 samples\n" in tracer.stdout()
    assert set(control.semaphores(puppet.target_pid, LIBRARY).values()) == {0}


@pytest.mark.without_bpf
def test_every_line_is_tested():
    """A new line in the table needs a test here."""
    assert marked_questions(globals()) == set(questions(BCC))
