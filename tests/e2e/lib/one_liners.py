# SPDX-License-Identifier: Apache-2.0
"""Runs the one-liners of heaptap-probes(7) verbatim on programs with known allocations, and parses the output of bpftrace
and BCC.

MALLOC_CONF=lg_prof_sample:0 makes every allocation a sample, so that every printed number is known. The programs have no
ready blocks of the sizes that the tests use, so sampling takes effect at once.
"""

import os
import re
import shlex
import signal

import bcc_tools
import control
from attached_probes import attached_probes
from harness import LIBRARY, PATIENCE_SECONDS, ROOT, target, wait_until

_INSTALLED_LIBRARY = "/usr/local/lib/heaptap/libheaptap.so"
_INSTALLED_SCRIPTS = "/usr/local/share/heaptap"
BPFTRACE, BCC = 1, 2

EXACT = {"MALLOC_CONF": "prof:true,lg_prof_sample:0"}
# 20000 blocks of 1000 bytes: 1024 usable; 1000 blocks of 100 bytes: 112 usable.
CHURN, CHURNED_SAMPLES, CHURNED_BYTES = "churn 20000 1000", 20000, 20000 * 1024
# A round for tools that print each second. They lose what happens while they print, so a round takes about a millisecond.
SHORT_CHURN, SHORT_SAMPLES, SHORT_BYTES = "churn 200 1000", 200, 200 * 1024
KEEP, KEPT_SAMPLES, KEPT_BYTES = "keep 1000 100", 1000, 1000 * 112
# Longer than any test: the test ends the line itself.
ENDLESS = "6000"
# A sample every 64 KiB, with a fixed seed. 20000 blocks of 1024 bytes give about 310 samples: a relative error of
# 1/sqrt(310) = 5.7 %; the bound is five times that.
SAMPLED = {"MALLOC_CONF": "lg_prof_sample:16", "HEAPTAP_CONF": "prof_seed:1"}
SAMPLED_KEEP, SAMPLED_BYTES, SAMPLED_ERROR = "keep 20000 1000", 20000 * 1024, 0.28


def _sections():
    """{question: {tool: command}}, from the page's subsections: a heading, and a block with a command of each tool."""
    with open(os.path.join(ROOT, "scripts/man/heaptap-probes.7.scd"), encoding="utf-8") as file:
        sections = re.findall(r"^## ([^\n]*)\n\n```\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
    assert sections, "heaptap-probes(7) has no one-liners"
    return {question: {BPFTRACE if line.startswith("bpftrace ") else BCC: line for line in block.splitlines()}
            for question, block in sections}


def questions(tool):
    """The questions for which the tool has a command."""
    return [question for question, commands in _sections().items() if tool in commands]


def command(question, tool, words):
    """The words of the page's command, with paths of this tree, and with the replacements in `words`."""
    text = _sections()[question][tool]
    text = text.replace(_INSTALLED_LIBRARY, LIBRARY).replace(_INSTALLED_SCRIPTS, os.path.join(ROOT, "scripts"))
    return [words.get(word, word) for word in shlex.split(text)]


def marked_questions(tests):
    """The questions in the marks of a module's tests."""
    return {mark.args[0] for test in tests.values() for mark in getattr(test, "pytestmark", ())
            if getattr(mark, "name", None) == "line"}


class Lines:
    """The lines of one tool. A test must start exactly those of the `questions` in its marks."""

    def __init__(self, lab, tool, questions):
        self._lab, self._tool, self._questions = lab, tool, questions
        self._asked = set()

    def check(self):
        assert self._asked == self._questions

    def start(self, question, pid=None, words=None, wait=True):
        """Starts a line of the page, with some `words` replaced; waits until it has attached."""
        assert question in self._questions, f"the test is not marked with {question!r}"
        self._asked.add(question)
        words = command(question, self._tool, dict(words or {}, PID=str(pid)))
        # Without the cache, bpftrace 0.17 reads the files anew for each frame. With each [vdso] or [uprobes-trampoline], which
        # are no files, it closes a descriptor at random, which can be that of its map of stacks. The cache is wrong where
        # two processes run one program.
        env = {"BPFTRACE_MAP_KEYS_MAX": "100000", "BPFTRACE_CACHE_USER_SYMBOLS": "0" if pid is None else "1"}
        if self._tool == BCC:
            words, env = bcc_tools.wrapper() + words, bcc_tools.environment(self._lab.folder)
        tracer = self._lab.program(*words, cwd=ROOT, env=env)
        if pid is not None and wait:
            wait_until(lambda: listens(tracer), f"{words} listens")
        return tracer

    def run_on_puppet(self, question, *orders, words=None, env=None):
        """The output of a line about a puppet that follows these orders."""
        puppet = self._lab.preloaded_puppet(env=env or EXACT)
        tracer = self.start(question, puppet.target_pid, words)
        for order in orders:
            puppet.ask(order)
        return end(tracer)


def _probes(words):
    """The number of places in the library to which a command attaches: those of the probes that it or its script names."""
    text = " ".join(words)
    for word in words:
        if word.startswith(os.path.join(ROOT, "scripts")):
            with open(word, encoding="utf-8") as file:
                text += file.read()
    names = set(re.findall(r"usdt:[^:\s]*:\w+:(\w+)|u:[^:\s]+:(\w+)|enable_probe\(\"\w+:(\w+)", text))
    names = {name for names_of_tools in names for name in names_of_tools if name}
    assert names, f"{words} names no probe"
    return sum(name in names for name in control.probes(LIBRARY))


def listens(tracer):
    """Whether the programs of the tool run at all places of its probes."""
    assert tracer.alive(), f"{tracer.command} ended:\n{tracer.stdout()}\n{tracer.stderr()}"
    # Some tools name it by the root folder of the process.
    return sum(path.endswith(LIBRARY) for path, _ in attached_probes(tracer.pid)) == _probes(tracer.command)


def _status(tracer, key):
    """A field of /proc/PID/status; None after the end."""
    try:
        with open(f"/proc/{tracer.pid}/status", encoding="ascii", errors="replace") as file:
            return re.search(rf"^{key}:\s*(\S+)", file.read(), re.MULTILINE).group(1)
    except FileNotFoundError:
        return None


def end(tracer):
    """Sends SIGINT to a tool that listens, as soon as it waits, and returns the output. The exit status depends on the
    tool: trace's is 1.

    bpftrace ignores a SIGINT in the instants, ten times a second, when it does not wait for events. Then its loop goes on
    with its probes attached, and another SIGINT follows."""
    def interrupt():
        wait_until(lambda: not tracer.alive() or _status(tracer, "State") == "S", f"{tracer.command} waits")
        if tracer.alive():
            tracer.signal(signal.SIGINT)
        return _turns(tracer)

    def ignores(since):
        return "bpftrace" in tracer.command and attached_probes(tracer.pid) and _turns(tracer) > since + _IGNORED_TURNS

    while tracer.alive():
        since = interrupt()
        wait_until(lambda turns=since: not tracer.alive() or ignores(turns), f"{tracer.command} ends")
    return tracer.stdout()


# Of bpftrace's loop. The end of the loop closes a probe's descriptor before it waits for anything.
_IGNORED_TURNS = 5


def _turns(tracer):
    """How often the tool has waited."""
    return int(_status(tracer, "voluntary_ctxt_switches") or 0)


def repeat_until(is_seen, what, held):
    """Repeats a round that falls into two seconds; returns the number of rounds."""
    rounds = 0

    def one_more():
        nonlocal rounds
        rounds += 1
        return is_seen()
    wait_until(one_more, what)
    held(f"rounds, for {what}", f"{PATIENCE_SECONDS:.0f} s", rounds)


def exact_puppet(lab):
    return lab.preloaded_puppet(env=EXACT)


def exact_workers(lab):
    """Starts threads with names (tests/targets/named_threads.c), which wait for an order."""
    workers = lab.preloaded(target("named_threads"), talks=True, env=EXACT)
    workers.target_pid = int(workers.answer().split()[1])
    return workers


def by_stack(text, name):
    """[(stack, number)] of a bpftrace map whose key is a stack."""
    found = re.findall(rf"^@{name}\[\n(.*?)^\]: (-?\d+)$", text, re.MULTILINE | re.DOTALL)
    return [(stack, int(number)) for stack, number in found]


def through(stacks, function):
    """The sum over the stacks through a function; there must be at least one."""
    numbers = [number for stack, number in stacks if re.search(rf"\b{function}\b", stack)]
    assert numbers, f"no stack goes through {function}: {stacks}"
    return sum(numbers)


def histogram(text):
    """{lower bound: count} of bpftrace's or BCC's histogram, without empty rows."""
    units = {"": 1, "K": 1 << 10, "M": 1 << 20}
    rows = [(int(low) * units[unit], int(count)) for low, unit, count in
            re.findall(r"^\[(\d+)([KM]?)(?:\]|, \d+[KM]?\)) +(\d+) \|", text, re.MULTILINE)]
    rows += [(int(low), int(count)) for low, count in re.findall(r"^ +(\d+) -> \d+ +: (\d+) +\|", text, re.MULTILINE)]
    return {low: count for low, count in rows if count}
