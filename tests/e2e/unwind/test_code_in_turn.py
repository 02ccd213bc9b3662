# SPDX-License-Identifier: Apache-2.0
"""Two plugins that are mapped at one address in turn: each has its own names, in every view, or none.

Recording is exact; error bounds: none.
"""

import json
import os
import shutil
import subprocess

import pytest

from harness import HEAPTAP, wait_until
from history import document, wait_known
from loader import DEEP, LEFT, RIGHT, call, end, loader, notices_every_mapping, offset_of, open_plugin, preloaded_loader, settle
from stack_ends import counts_by_end

pytestmark = pytest.mark.skipif(not notices_every_mapping(),
                                reason="this kernel does not tell walks of changed mappings (before Linux 6.4)")
ROUNDS = 200
# A plugin may be gone before its build-id was read. Then nothing says that a file with its path is the same.
MAY_LACK_NAMES = r"(heaptap: no function names from files that are missing here or have changed: \S+\n)?"


def side_of(name):
    """The plugin of a function, or of a place in it: the history may lack the name of a function."""
    for side in ("left", "right", "deep"):
        if name and name.startswith((f"{side}_", f"lib{side}.so+")):
            return side
    return "no name"


def blocks_by_side(report):
    """{side: objects} of the call paths through call_mapped or call_plugin, by the functions below; a path has one side."""
    found = {}
    for path in report["call_paths"]:
        functions = [frame["function"] for frame in path["frames"]]
        callers = [name for name in functions if name in ("call_mapped", "call_plugin")]
        if not callers:
            continue
        below = functions[: functions.index(callers[0])]
        sides = {side_of(name) for name in below}
        assert len(sides) == 1, functions
        side = sides.pop()
        found[side] = found.get(side, 0) + path["live"]["objects"]
    return found


def report(lab, dump):
    """Files that are no longer there are named on standard error."""
    return json.loads(subprocess.run([HEAPTAP, "report", "--json", dump], cwd=lab.folder, capture_output=True, check=True).stdout)


def test_of_a_daemon(lab, start_daemon):
    """Its profile, a dump, its history; and those of the daemon that goes on with its recording."""
    daemon = start_daemon("--exact", "--history-interval", "100ms")
    process = preloaded_loader(lab)
    pid = process.target_pid
    daemon.wait_recorded(pid)
    assert process.ask(f"remap {LEFT} {RIGHT} {offset_of(LEFT, 'left_enter')} {ROUNDS}") == "remapped"
    both = {"left": ROUNDS // 2, "right": ROUNDS // 2}
    # A library that is no longer mapped, nor anything in its place.
    open_plugin(process, DEEP)
    call(process, "deep_enter", ROUNDS)
    assert process.ask("close") == "closed 0"

    def history_has_both():
        """What lies outside 99 % is in the row of all others."""
        if not document(daemon, pid)["points"]:
            return False
        found = blocks_by_side(json.loads(daemon.client("report", "--json", f"{pid}@now")))
        assert "no name" not in found, found
        return all(0.95 * blocks <= found.get(side, 0) <= blocks for side, blocks in both.items())

    for _ in range(2):
        live = daemon.client("report", "--json", pid, says=MAY_LACK_NAMES)
        assert blocks_by_side(json.loads(live)) == {**both, "deep": ROUNDS}
        assert blocks_by_side(report(lab, daemon.client("dump", pid).strip())) == {**both, "deep": ROUNDS}
        wait_known(daemon, pid)
        wait_until(history_has_both, "the history has both")
        daemon.stop()
        daemon.start()


def test_a_plugin_that_is_built_again(lab):
    """Another file has the plugin's path, and perhaps the number of its inode."""
    path = os.path.join(lab.folder, "libplugin.so")
    session = loader(lab)
    for source, side in ((LEFT, "left"), (RIGHT, "right"), (LEFT, "left")):
        if os.path.exists(path):
            os.unlink(path)
        shutil.copy(source, path)
        open_plugin(session, path)
        call(session, f"{side}_enter", 10)
        settle(session)
        assert session.ask("close") == "closed 0"
    dump = end(lab, session)
    found = blocks_by_side(report(lab, dump.path))
    # The latest file is the same build as the first one, so it has the names of both, unless the first one was gone before its
    # build-id and its unwind table were read.
    cut = sum(counts_by_end(dump).values())
    assert 30 - cut <= sum(found.values()) <= 30
    assert set(found) <= {"left", "no name"}
    assert 10 - cut <= found.get("left", 0) <= 20
