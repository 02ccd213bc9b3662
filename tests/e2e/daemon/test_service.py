# SPDX-License-Identifier: Apache-2.0
"""The daemon under systemd: the installed unit, with exactly its capabilities."""

import pwd
import signal
import socket

from harness import PATIENCE_SECONDS
from unit import with_its_capabilities

NOBODY = pwd.getpwnam("nobody")


def test_its_capabilities_are_enough(lab, start_daemon):
    """Another user's process is recorded and controlled, and dumped at its own request and at its death."""
    collector = start_daemon("--exact", before=with_its_capabilities())
    process = lab.preloaded_puppet(user=NOBODY.pw_uid, group=NOBODY.pw_gid,
                                   env={"MALLOC_CONF": "prof:true,lg_prof_sample:0"})
    process.ask("keep 10 65536")
    entry = collector.processes()[process.pid]
    assert entry["owner"] == NOBODY.pw_uid
    collector.client("active", process.pid, "off")
    assert process.ask("read bool prof.active") == "0 false"
    collector.client("active", process.pid, "on")
    assert "keep_blocks" in collector.get(f"/pid/{process.pid}/collapsed").body.decode()
    process.popen.kill()
    process.ends(-signal.SIGKILL)
    collector.wait_said(rf"^heaptap: wrote .*/puppet\.{process.pid}\.0\.f\.heap: ")


def test_it_tells_the_manager(lab, start_daemon):
    path = lab.path("notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(PATIENCE_SECONDS)
        collector = start_daemon(env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000000"})
        assert b"READY=1" in manager.recv(4096)
        assert b"WATCHDOG=1" in manager.recv(4096)
        collector.stop()
        while b"STOPPING=1" not in (said := manager.recv(4096)):
            assert b"WATCHDOG=1" in said
