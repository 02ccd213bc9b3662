# SPDX-License-Identifier: Apache-2.0
"""The one-liners of heaptap-probes(7) for bpftrace, verbatim, and the proper end of its scripts.
"""

import re
import signal
import time

import pytest

import control
from harness import LIBRARY, PATIENCE_SECONDS, ROOT, wait_until
from one_liners import (BPFTRACE, CHURN, CHURNED_BYTES, CHURNED_SAMPLES, ENDLESS, KEEP, KEPT_BYTES, KEPT_SAMPLES,
                        SAMPLED, SAMPLED_BYTES, SAMPLED_ERROR, SAMPLED_KEEP, SHORT_BYTES, SHORT_CHURN, SHORT_SAMPLES,
                        Lines, by_stack, end, exact_puppet, exact_workers, histogram, listens, questions,
                        marked_questions, repeat_until, through)

SCRIPTS = ("bytes_by_stack", "old_objects", "lifetimes", "sizes", "allocation_rate", "leak_suspects", "top_threads",
           "stack_sizes", "high_water", "dump_events")
# What bpftrace 0.23 says on a machine without CAP_SYS_RESOURCE, or without tracefs.
OF_THE_MACHINE = re.compile("couldn't set RLIMIT_MEMLOCK|failed to detach probe: usdt:")
# How long old_objects records allocations; longer on slow machines.
FIRST_PARTS = (6, 24, 96)


@pytest.fixture
def lines(lab, request):
    return lab.checked(Lines(lab, BPFTRACE, {mark.args[0] for mark in request.node.iter_markers("line")}))


@pytest.mark.line("which probes")
def test_which_probes(lines):
    listing = lines.start("which probes")
    listing.ends()
    for probe in ("otel_memory:alloc", "otel_memory:free", "heaptap:start", "heaptap:dump"):
        assert f"usdt:{LIBRARY}:{probe}\n" in listing.stdout()


@pytest.mark.line("bytes by stack")
def test_bytes_by_stack(lines):
    stacks = by_stack(lines.run_on_puppet("bytes by stack", CHURN, KEEP, words={"10": ENDLESS}), "bytes")
    assert through(stacks, "churn_blocks") == CHURNED_BYTES
    assert through(stacks, "keep_blocks") == KEPT_BYTES
    assert sum(number for _, number in stacks) == CHURNED_BYTES + KEPT_BYTES


@pytest.mark.line("bytes by stack")
@pytest.mark.line("top threads")
@pytest.mark.line("high-water watch, marks of 20 %")
@pytest.mark.line("leak suspects: allocated, not freed meanwhile")
def test_estimates(lines):
    """The bytes are those of all allocations, not only of the samples."""
    question = "leak suspects: allocated, not freed meanwhile"
    output = lines.run_on_puppet(question, SAMPLED_KEEP, words={"10": ENDLESS}, env=SAMPLED)
    estimate = through(by_stack(output, "not_freed_bytes"), "keep_blocks")
    assert estimate / SAMPLED_BYTES == pytest.approx(1, abs=SAMPLED_ERROR, rel=0)
    samples = through(by_stack(output, "not_freed_samples"), "keep_blocks")
    assert samples * (1 << 16) / SAMPLED_BYTES == pytest.approx(1, abs=SAMPLED_ERROR, rel=0)
    output = lines.run_on_puppet("bytes by stack", SAMPLED_KEEP, words={"10": ENDLESS}, env=SAMPLED)
    assert through(by_stack(output, "bytes"), "keep_blocks") == estimate
    output = lines.run_on_puppet("top threads", SAMPLED_KEEP, words={"10": ENDLESS}, env=SAMPLED)
    assert re.search(rf"@bytes\[\d+, puppet\]: {estimate}\n", output), output
    output = lines.run_on_puppet("high-water watch, marks of 20 %", SAMPLED_KEEP, env=SAMPLED)
    assert f"maximum {estimate} bytes, now {estimate} bytes\n" in output


@pytest.mark.line("live objects older than 10 s, by stack")
def test_old_objects(lab, lines, held):
    """Objects that are allocated after the first part or freed before the end are not shown."""
    for seconds in FIRST_PARTS:
        puppet = exact_puppet(lab)
        begin = time.monotonic()
        tracer = lines.start("live objects older than 10 s, by stack", puppet.target_pid,
                             {"10": "1", "20": str(seconds)})
        puppet.ask(CHURN)
        puppet.ask(KEEP)
        if time.monotonic() - begin < seconds:
            break
        end(tracer)
    else:
        pytest.fail("no first part was long enough")
    held("seconds of the first part, with bpftrace's start", FIRST_PARTS[-1], seconds)
    wait_until(lambda: "Recording frees only" in tracer.stdout(), "the first part ends", seconds + PATIENCE_SECONDS)
    puppet.ask("keep 50 5000")
    tracer.ends()
    stacks = by_stack(tracer.stdout(), "live_bytes")
    assert through(stacks, "keep_blocks") == KEPT_BYTES
    assert through(stacks, "churn_blocks") == 0


@pytest.mark.line("lifetimes, a histogram")
def test_lifetimes(lines):
    rows = histogram(lines.run_on_puppet("lifetimes, a histogram", KEEP, CHURN, words={"10": ENDLESS}))
    assert sum(rows.values()) == CHURNED_SAMPLES
    assert sum(count for low, count in rows.items() if low < 64) > CHURNED_SAMPLES // 2


@pytest.mark.line("lifetimes, a histogram")
def test_a_long_lifetime(lab, lines):
    """A thousand objects that live for a tenth of a second or longer."""
    puppet = exact_puppet(lab)
    tracer = lines.start("lifetimes, a histogram", puppet.target_pid, {"10": ENDLESS})
    puppet.ask(KEEP)
    kept = time.monotonic()
    wait_until(lambda: time.monotonic() - kept > 0.1, "they grow old")
    puppet.ask("drop")
    rows = histogram(end(tracer))
    assert sum(rows.values()) == KEPT_SAMPLES
    assert min(rows) >= 1 << 16, "microseconds"


@pytest.mark.line("sizes, a histogram")
def test_sizes(lines):
    rows = histogram(lines.run_on_puppet("sizes, a histogram", CHURN, KEEP, words={"10": ENDLESS}))
    assert rows == {1024: CHURNED_SAMPLES, 64: KEPT_SAMPLES}


@pytest.mark.line("allocation rate, each second")
def test_allocation_rate(lab, lines, held):
    puppet = exact_puppet(lab)
    tracer = lines.start("allocation rate, each second", puppet.target_pid, {"10": ENDLESS})
    second = f"@bytes: {SHORT_BYTES}\n@samples: {SHORT_SAMPLES}\n"
    repeat_until(lambda: round_is_seen(puppet, tracer, second), "a round within one second", held)
    idle = "@bytes: 0\n@samples: 0\n"
    wait_until(lambda: tracer.stdout().rstrip().endswith(idle.rstrip()), "a second without allocations")
    assert re.search(r"\d\d:\d\d:\d\d\n@bytes", end(tracer))


def round_is_seen(puppet, tracer, text):
    """Whether the seconds after a round of allocations show it as `text`: it did not meet the end of a second."""
    before = len(tracer.stdout())
    puppet.ask(SHORT_CHURN)
    wait_until(lambda: len(re.findall(r"\d\d:\d\d:\d\d", tracer.stdout()[before:])) > 2, "two seconds are over")
    return text in tracer.stdout()[before:]


@pytest.mark.line("leak suspects: allocated, not freed meanwhile")
def test_leak_suspects(lines):
    output = lines.run_on_puppet("leak suspects: allocated, not freed meanwhile", "keep 300 3000", "drop", CHURN,
                                 KEEP, words={"10": ENDLESS})
    for name, expected in (("not_freed_bytes", KEPT_BYTES), ("not_freed_samples", KEPT_SAMPLES)):
        stacks = by_stack(output, name)
        assert through(stacks, "churn_blocks") == 0
        assert through(stacks, "keep_blocks") == expected


@pytest.mark.line("top threads")
def test_top_threads(lab, lines):
    workers = exact_workers(lab)
    tracer = lines.start("top threads", workers.target_pid, {"10": ENDLESS})
    threads = [int(word) for word in workers.ask("go").split()]
    output = end(tracer)
    for number, thread in enumerate(threads, 1):
        assert f"@bytes[{thread}, worker-{number}]: {number * 1000 * 1024}\n" in output


@pytest.mark.line("bytes by stack")
@pytest.mark.line("one stack's sizes")
def test_one_stack_s_sizes(lab, lines):
    puppet = exact_puppet(lab)
    tracer = lines.start("bytes by stack", puppet.target_pid, {"10": ENDLESS})
    puppet.ask(KEEP)
    address = re.search(r"([0-9a-f]+) keep_blocks\+", end(tracer)).group(1)
    words = {"ADDRESS": f"0x{address}", "10": ENDLESS}
    tracer = lines.start("one stack's sizes", puppet.target_pid, words)
    puppet.ask(CHURN)
    puppet.ask("keep 300 3000")
    puppet.ask("keep 40 200")
    output = end(tracer)
    assert histogram(output) == {2048: 300, 128: 40}
    assert f"@bytes: {300 * 3072 + 40 * 224}\n" in output


@pytest.mark.line("high-water watch, marks of 20 %")
def test_high_water(lines):
    """The marks follow the rule: 20 % above the last, from 1 MiB on."""
    output = lines.run_on_puppet("high-water watch, marks of 20 %", "keep 100 100000", "drop", "keep 10 100000")
    marks, mark = [], 1 << 20
    for live in range(114688, 100 * 114688 + 1, 114688):
        if live * 100 >= mark * 120:
            mark = live
            marks.append(live)
    assert [int(word) for word in re.findall(r" live (\d+) bytes", output)] == marks
    assert f"maximum {100 * 114688} bytes, now {10 * 114688} bytes\n" in output


@pytest.mark.line("requests for dumps")
def test_requests_for_dumps(lab, lines):
    puppet = exact_puppet(lab)
    session = lab.attach(puppet.target_pid)
    tracer = lines.start("requests for dumps", puppet.target_pid)
    for number in (1, 2):
        assert puppet.ask("call prof.dump") == "0"
        line = f"{puppet.target_pid} puppet asks for dump {number}, kind m, into its descriptor "
        wait_until(lambda: line in tracer.stdout(), "its line")
    assert len(re.findall("asks for dump", end(tracer))) == 2
    session.signal(signal.SIGINT)
    session.ends()


@pytest.mark.line("bytes by stack, of all processes")
def test_all_processes(lab, lines):
    """Without -p, bpftrace finds later processes, too."""
    def run():
        first = exact_puppet(lab)
        tracer = lines.start("bytes by stack, of all processes")
        wait_until(lambda: listens(tracer), "it listens")
        first.ask(KEEP)
        second = exact_puppet(lab)
        second.ask("keep 10 5000")
        end(tracer)
        first.ends()
        second.ends()
        return tracer
    # The cache of symbols does not help here (one_liners.py).
    for _ in range(10):
        tracer = run()
        if "failed to look up stack id" not in tracer.stderr():
            break
    stacks = [(stack, int(number)) for stack, number in
              re.findall(r"^@\[puppet, \n(.*?)^\]: (\d+)$", tracer.stdout(), re.MULTILINE | re.DOTALL)]
    assert through(stacks, "keep_blocks") == KEPT_BYTES + 10 * 5120


def test_each_ends_by_itself(lab):
    """Each script ends at the given time, with status 0 and no warning, and sampling is off again."""
    puppet = exact_puppet(lab)
    arguments = {"old_objects": ["1", "1"], "stack_sizes": ["0x1000", "1"], "high_water": ["20", "1"]}
    tracers = [lab.program("bpftrace", "-p", puppet.target_pid, f"{ROOT}/scripts/{script}.bt",
                           *arguments.get(script, ["1"])) for script in SCRIPTS]
    for tracer in tracers:
        tracer.ends()
        warnings = [line for line in tracer.stderr().splitlines() if "WARNING" in line]
        assert [line for line in warnings if not OF_THE_MACHINE.search(line)] == []
    assert set(control.semaphores(puppet.target_pid, LIBRARY).values()) == {0}


@pytest.mark.without_bpf
def test_every_line_is_tested():
    """A new line in the table needs a test here."""
    assert marked_questions(globals()) == set(questions(BPFTRACE))
