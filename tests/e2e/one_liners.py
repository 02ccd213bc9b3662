# SPDX-License-Identifier: Apache-2.0
"""The README's table of one-liners, and what bpftrace and BCC print, taken apart."""

import os
import re
import shlex

from harness import LIBRARY, ROOT

_INSTALLED_LIBRARY = "/usr/local/lib/heaptap/libheaptap.so"
_INSTALLED_SCRIPTS = "/usr/local/share/heaptap"
BPFTRACE, BCC = 1, 2


def _rows():
    """{question: [question, bpftrace's command, BCC's command]}, None for a cell without a command."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        section = re.search(r"^## One-liners$(.*?)^## ", file.read(), re.MULTILINE | re.DOTALL)
    assert section, "the README has no section One-liners"
    rows = {}
    for line in section.group(1).splitlines():
        if line.startswith("| ") and not line.startswith("| question "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            commands = [re.match(r"`([^`]*)`", cell) for cell in cells[1:]]
            rows[cells[0]] = [cells[0], *(match.group(1) if match else None for match in commands)]
    return rows


def questions(tool):
    """Those that the tool has a command for."""
    return [question for question, cells in _rows().items() if cells[tool]]


def command(question, tool, words):
    """The words of the README's command, paths as in this tree, and each word replaced that is in `words`."""
    text = _rows()[question][tool]
    text = text.replace(_INSTALLED_LIBRARY, LIBRARY).replace(_INSTALLED_SCRIPTS, os.path.join(ROOT, "scripts"))
    return [words.get(word, word) for word in shlex.split(text)]


def by_stack(text, name):
    """[(stack, number)] of a bpftrace map whose key is a stack."""
    found = re.findall(rf"^@{name}\[\n(.*?)^\]: (-?\d+)$", text, re.MULTILINE | re.DOTALL)
    return [(stack, int(number)) for stack, number in found]


def through(stacks, function):
    """The sum over the stacks that go through a function; there must be one."""
    numbers = [number for stack, number in stacks if re.search(rf"\b{function}\b", stack)]
    assert numbers, f"no stack goes through {function}: {stacks}"
    return sum(numbers)


def histogram(text):
    """{low bound: count} of bpftrace's or BCC's histogram, empty rows left out."""
    units = {"": 1, "K": 1 << 10, "M": 1 << 20}
    rows = [(int(low) * units[unit], int(count)) for low, unit, count in
            re.findall(r"^\[(\d+)([KM]?)(?:\]|, \d+[KM]?\)) +(\d+) \|", text, re.MULTILINE)]
    rows += [(int(low), int(count)) for low, count in re.findall(r"^ +(\d+) -> \d+ +: (\d+) +\|", text, re.MULTILINE)]
    return {low: count for low, count in rows if count}
