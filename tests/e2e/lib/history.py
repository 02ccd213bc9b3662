# SPDX-License-Identifier: Apache-2.0
"""The history of a daemon in tests: what it has of a puppet, and waiting for it."""

import json
import os
import time

from harness import wait_until
from security import keeping_puppet

SIZE = 1024  # a size class: usable bytes are those that are asked for


def start(lab, daemon, **options):
    puppet = keeping_puppet(lab, count=0, **options)
    daemon.wait_recorded(puppet.pid)
    return puppet


def document(daemon, name, *options):
    return json.loads(daemon.client("history", name, "--json", *options))


def database(daemon):
    return os.path.join(daemon.state_folder, "history.db")


def live(daemon, pid):
    """Live bytes at the latest point."""
    points = document(daemon, pid)["points"]
    return points[-1]["live_bytes"] if points else None


def functions(shown):
    """The functions of the paths of a document."""
    return {frame["function"] for path in shown["paths"] for frame in path["frames"]}


def wait_known(daemon, pid):
    """Waits until the process is in the history."""
    wait_until(lambda: daemon.get(f"/history.json?pid={pid}").status == 200, f"process {pid} has a history")


def wait_live(daemon, pid, size):
    wait_known(daemon, pid)
    wait_until(lambda: live(daemon, pid) == size, f"the history has {size} bytes of {pid}")


def moment(daemon, pid):
    """The time of the latest point."""
    return document(daemon, pid)["points"][-1]["time"]


def when(seconds):
    """A moment after that second is over, as people write it."""
    wait_until(lambda: time.time() > int(seconds) + 1, "the second is over")
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(int(seconds) + 1))
