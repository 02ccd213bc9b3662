# SPDX-License-Identifier: Apache-2.0
"""Allocators that call <heaptap/sample.h>, by name in the dump: a pool in C, mapped buffers and an arena in C++, Rust's
global allocator (tests/targets/heaps).

Error bounds: none with --exact. Otherwise the relative standard error of an estimate of N bytes in blocks far below the
interval R is sqrt(R / N); seeds are fixed, and the bound is five standard errors.
"""

import os
import re
import signal

import pytest

from harness import BUILD, target
from symbols import live

LONG_NAME = "answers, which are rather long, and longer"


def heaps(dump):
    """{name: (live objects, live bytes, all objects, all bytes)} from the head of a dump, as written."""
    with open(dump.path, encoding="utf-8") as file:
        head = file.read().split("\n@")[0]
    return {name: tuple(int(number) for number in numbers) for *numbers, name in
            re.findall(r'^  t\d+: (\d+): (\d+) \[(\d+): (\d+)\] heap:"(.*)"$', head, re.MULTILINE)}


def run(lab, *command, flags=("--exact",)):
    session = lab.heaptap("run", *flags, "--", *command, env={"HEAPTAP_CONF": "prof_seed:5"})
    session.ends()
    assert session.stdout() == "done\n"
    return lab.only_dump(kind="f")


@pytest.mark.parametrize("threads", (0, 4))
def test_pool(lab, threads):
    """The slabs of malloc are recorded too, and their first blocks have the same addresses."""
    times = threads or 1
    dump = run(lab, target("pool"), "1000", "500", str(threads))
    # A name has at most 31 characters.
    assert heaps(dump) == {"requests": (1000 * times, 64000 * times, 1500 * times, 96000 * times),
                           LONG_NAME[:31]: (1000 * times, 200000 * times, 1000 * times, 200000 * times)}
    # With threads, one that churns may make a slab for the others.
    objects = live(dump, "pool_keep")[0] + live(dump, "pool_churn")[0]
    assert objects == 2000 * times + live(dump, "add_slab")[0]
    # A slab may be larger than what was asked for.
    assert live(dump, "add_slab")[1] >= 2 * 16 * 64 * 64


def test_pool_at_a_rate(lab):
    """Estimates, and the weights of the samples: 100000 * 264 bytes at 2^12."""
    dump = run(lab, target("pool"), "100000", "100000", flags=("--lg-sample", "12"))
    found = heaps(dump)
    for name, size in (("requests", 64), (LONG_NAME[:31], 200)):
        threads = [count for tid, count in dump.threads.items() if tid >= 1 << 31 and count.bytes == found[name][1]]
        estimate = dump.unbiased(threads[0])
        truth = 100000 * size
        assert estimate.bytes == pytest.approx(truth, abs=5 * (4096 * truth) ** 0.5)
        # Fewer samples than blocks.
        assert 0 < found[name][0] < 20000
    assert live(dump, "pool_churn") == (0, 0)


def test_default_rate(lab):
    """The mean of the samples is 12 at 6.4 MB: they exist, and are few."""
    dump = run(lab, target("pool"), "100000", "0", flags=())
    assert 0 < sum(objects for objects, *_ in heaps(dump).values()) < 200


def test_buffers_and_an_arena(lab):
    """A pool with a bit of its own for samples, and an arena that is emptied at once."""
    dump = run(lab, target("buffers"), "10", "20", "1000")
    assert heaps(dump) == {"buffers": (10, 10 * 100000, 30, 30 * 100000),
                           "arena 1": (1000, 24000, 3000, 72000)}
    assert live(dump, "buffers_keep") == (10, 10 * 100000)
    assert live(dump, "arena_fill") == (1000, 24000)


def test_rust(lab):
    """Rust itself allocates and keeps a little more. malloc is recorded too, in size classes."""
    dump = run(lab, target("global"), "100", "200")
    objects, size, all_objects, all_bytes = heaps(dump)["rust"]
    assert 100 <= objects < 110 and 100 * 1000 <= size < 110 * 1000
    assert all_objects >= 300 and all_bytes >= 100 * 1000 + 200 * 3000
    assert live(dump, "rust_keep") == (200, 100 * 1000 + 100 * 1024)
    assert live(dump, "rust_churn") == (0, 0)


def test_without_another_allocator(lab):
    """A static program with a pool has its own control block; nothing but the pool is recorded."""
    dump = run(lab, target("pool_static"), "1000", "500")
    assert heaps(dump) == {"requests": (1000, 64000, 1500, 96000), LONG_NAME[:31]: (1000, 200000, 1000, 200000)}
    assert (dump.total.objects, dump.total.bytes) == (2000, 264000)
    assert len(dump.stacks) == 3


def test_reports(lab):
    dump = run(lab, target("pool"), "1000", "500")
    for form in ("--top", "--tree"):
        text = lab.answer_of("report", form, "--by", "thread", dump.path)
        assert re.search(r' heap:"requests"$', text, re.MULTILINE), text


def test_hostile_name(lab):
    """A name of a terminal's commands, a quote and a line feed."""
    name = 'a"\x1b[31m\n%s\x80'
    session = lab.heaptap("run", "--exact", "-o", "hostile", "--", target("named_heap"), name)
    session.ends()
    dump = lab.only_dump(kind="f")
    with open(dump.path, "rb") as file:
        head = file.read().split(b"\n@")[0]
    assert b"\x1b" not in head and b"heap:\"a" in head, head
    text = lab.answer_of("report", "--top", "--by", "thread", dump.path)
    assert "\x1b" not in text and 'heap:"a"' in text, text


def test_names_outlive_the_process(lab):
    """The last dump is written after the process has been killed."""
    session = lab.heaptap("run", "--exact", "--", target("named_heap"), "short", "wait", talks=True)
    pid = int(session.answer().split()[1])
    os.kill(pid, signal.SIGKILL)
    session.ends(status=128 + signal.SIGKILL)
    assert heaps(lab.only_dump(kind="f")) == {"short": (10, 1000, 10, 1000)}


def test_fork(lab):
    """The child has books of its own, with the name; its free of a parent's block changes nothing."""
    session = lab.heaptap("run", "--exact", "--", target("named_heap"), "shared name", "fork")
    session.ends()
    found = sorted(heaps(name.read())["shared name"] for name in lab.dumps() if heaps(name.read()))
    assert found == [(1, 100, 1, 100), (10, 1000, 10, 1000)]


@pytest.mark.parametrize("library", ("libheaptap.so", "libheaptap-guest.so", None))
def test_attach(lab, library):
    """To a pool in a program with the library, with a guest, or with nothing else; the rate is set in whichever control
    block there is. The thread notices it within 64 KiB."""
    env = {"LD_PRELOAD": os.path.join(BUILD, library)} if library else {}
    process = lab.program(target("named_heap"), "pool", "ask", talks=True, env=env)
    process.target_pid = int(process.answer().split()[1])
    session = lab.attach(process.target_pid, "--exact")
    session.losses_allowed = ("missed_free",)
    for _ in range(100):
        process.ask("more")
    session.signal(signal.SIGINT)
    session.ends()
    live_objects, _, _, all_bytes = heaps(lab.only_dump(process.target_pid, "f"))["pool"]
    # Ten addresses, each allocated again and again without a free.
    assert live_objects == 10
    assert 100000 - (1 << 16) <= all_bytes <= 100000
    process.ends()
