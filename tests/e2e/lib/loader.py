# SPDX-License-Identifier: Apache-2.0
"""A program that opens plugins (tests/targets/loader.c), and the expected stacks through them."""

import json
import os
import re
import signal
import subprocess

import symbols
from harness import HEAPTAP, TARGETS, target

LEFT = os.path.join(TARGETS, "libleft.so")
RIGHT = os.path.join(TARGETS, "libright.so")
DEEP = os.path.join(TARGETS, "libdeep.so")
BARE = os.path.join(TARGETS, "libbare.so")


def plugin_path(side, count):
    return tuple(f"{side}_{name}" for name in ("inner", "middle", "enter")[:count])


def offset_of(path, function):
    output = subprocess.run(["nm", "-D", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    return int(re.search(rf"^([0-9a-f]+) T {function}$", output, re.MULTILINE).group(1), 16)


def notices_every_mapping():
    """Whether stack walks notice a file mapped over another of the same size (Linux 6.4 and later)."""
    report = subprocess.run([HEAPTAP, "doctor", "--json"], stdout=subprocess.PIPE, text=True, check=False).stdout
    (feature,) = [one for one in json.loads(report)["kernel_features"] if one["name"] == "mm_struct.mm_lock_seq"]
    return feature["ok"]


def loader(lab, *options):
    session = lab.heaptap("run", "--exact", *options, "--", target("loader"), talks=True)
    session.target_pid = int(session.answer().split()[1])
    return session


def preloaded_loader(lab):
    process = lab.preloaded(target("loader"), talks=True)
    process.target_pid = int(process.answer().split()[1])
    return process


def end(lab, session):
    session.ends()
    return lab.only_dump(session.target_pid, "f")


def settle(session):
    """Waits until heaptap has handled all earlier events: then it has written the second of two more dumps."""
    written = r"^heaptap: wrote .*\.m\d+\.heap"
    before = sum(re.search(written, line) is not None for line in session.lines())
    for number in range(2):
        session.signal(signal.SIGUSR1)
        session.wait_said(written, before + number + 1)


def open_plugin(process, path):
    answer = process.ask(f"open {path}")
    assert re.search(r"^opened \d+$", answer), answer
    return int(answer.split()[1])


def call(process, function, count):
    assert process.ask(f"call {function} {count}") == "called"


def paths(dump, function, copies=None):
    """{names: objects} of the call paths through a function."""
    result = {}
    for stack in dump.stacks:
        names = tuple(symbols.names(dump, stack, copies))
        if function in names:
            result[names] = result.get(names, 0) + stack.total.objects
    return result


def assert_called(dump, side, count, copies=None):
    """This many objects came through the plugin, all of them through call_plugin() in main() up to _start, plus the
    objects of its constructor."""
    found = paths(dump, f"{side}_middle", copies)
    called = {names: objects for names, objects in found.items() if f"{side}_enter" in names}
    for names in called:
        assert names[:4] == (*plugin_path(side, 3), "call_plugin")
        assert (names[4], names[-1]) == ("main", "_start")
    assert sum(called.values()) == count
    constructed = [names for names in found if names not in called]
    for names in constructed:
        assert names[:3] == (*plugin_path(side, 2), f"{side}_construct")
        assert "main" in names
        assert names[-1] == "_start"
    return len(constructed)
