# SPDX-License-Identifier: Apache-2.0
"""Names of functions in programs without a symbol table of their own."""

import json
import subprocess

import pytest

from harness import target
from mini_debug_info import strip_as_fedora

DAEMON = ["--exact"]
FUNCTIONS = ("do_something", "do_something_else")


def dump_of(lab, program):
    lab.heaptap("run", "--exact", "--", program).ends()
    return lab.dumps()[0].path


def test_mini_debug_information(lab):
    program = lab.copy("wiki_leak", "stripped")
    strip_as_fedora(program)
    text = lab.answer_of("report", "--top", dump_of(lab, program))
    assert all(name in text for name in FUNCTIONS)


@pytest.mark.parametrize("damage", ("cut", "random", "bomb", "text"))
def test_hostile_mini_debug_information(lab, damage):
    """The report is as without it: addresses, and no message."""
    section = lab.path("section")
    contents = {"cut": b"\xfd7zXZ\0", "random": bytes(range(256)) * 100, "text": b"x" * 5000}.get(damage)
    if contents is None:
        # 100 MB, in 15 KB.
        contents = subprocess.run(["xz", "-c"], input=bytes(100_000_000), stdout=subprocess.PIPE, check=True).stdout
    with open(section, "wb") as file:
        file.write(contents)
    program = lab.copy("wiki_leak", "stripped")
    subprocess.run(["strip", program], check=True)
    subprocess.run(["objcopy", "--add-section", f".gnu_debugdata={section}", program], check=True)
    text = lab.answer_of("report", "--top", dump_of(lab, program))
    assert "stripped" in text and not any(name in text for name in FUNCTIONS)


def test_mini_debug_information_in_the_daemon(lab, daemon):
    """The daemon's dumps with symbols, and the data of its page."""
    strip_as_fedora(lab.copy("puppet", "stripped"))
    puppet = lab.preloaded_puppet("stripped")
    puppet.ask("keep 100 65536")
    daemon.wait_recorded(puppet.pid)
    assert "keep_blocks" in daemon.client("dump", puppet.pid, "--symbolized", "-o", "-")
    page = json.loads(daemon.get(f"/pid/{puppet.pid}/profile.json").body)
    assert "keep_blocks" in json.dumps(page)
    assert target("puppet") not in json.dumps(page)
