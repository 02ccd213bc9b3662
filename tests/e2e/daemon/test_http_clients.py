# SPDX-License-Identifier: Apache-2.0
"""HTTP clients that attack a root daemon. Each test also checks that others are still served.
"""

import contextlib
import os
import re
import socket

from harness import PATIENCE_SECONDS, wait_until
from security import assert_answers, assert_serves, keeping_puppet

DAEMON = ["--exact"]
# One user may have eight connections.
SLOW_CLIENTS = 6


def raw(daemon, text):
    """Sends these bytes; returns everything received until the connection ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(daemon.socket)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(text)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                answer += part
        return answer


def test_what_is_no_request(lab, daemon):
    puppet = keeping_puppet(lab)
    daemon.wait_recorded(puppet.pid)
    close = b"Connection: close\r\n\r\n"
    for path in (b"/../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/pid/../../etc/passwd", b"/pid/1/../heap",
                 b"//etc/passwd", b"/pid/%00/heap", f"/pid/{puppet.pid}/heap/../../x".encode(),
                 f"/pid/{puppet.pid}//etc/passwd".encode()):
        answer = raw(daemon, b"GET " + path + b" HTTP/1.1\r\n" + close)
        assert re.search(rb"^HTTP/1.1 40[04] ", answer), path
        assert b"root:" not in answer
    # Parameters are not paths either.
    path = lab.path("x")
    answer = daemon.get(f"/pid/{puppet.pid}/mtev/heap_profile?trigger_dump=true&file={path}&filename={path}")
    assert path.encode() not in answer.body
    assert not os.path.exists(path)
    for status, request in ((431, b"GET / HTTP/1.1\r\nX: " + b"y" * (64 << 10)),
                            (414, b"GET /" + b"y" * 9000 + b" HTTP/1.1\r\n" + close),
                            (413, b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n" + close),
                            (400, b"\x16\x03\x01\x02\x00\r\n\r\n")):
        assert raw(daemon, request).startswith(b"HTTP/1.1 %d " % status)
    assert_serves(lab, daemon)


def test_slow_clients(lab, daemon, request):
    """Clients that send a byte now and then are disconnected in time; others are answered meanwhile, not after them."""
    slow = []
    for _ in range(SLOW_CLIENTS):
        connection = socket.socket(socket.AF_UNIX)
        request.addfinalizer(connection.close)
        connection.connect(daemon.socket)
        connection.setblocking(False)
        slow.append(connection)
    text = b"GET /processes.json HTTP/1.1\r\n" + b"X-Slow: yes\r\n" * 1000
    sent = 0
    open_ones = set(slow)
    answers_beside_all = 0

    def drip():
        nonlocal sent, answers_beside_all
        assert_answers(daemon)
        for connection in list(open_ones):
            try:
                connection.send(text[sent:sent + 1])
                if connection.recv(1000) is not None:
                    open_ones.discard(connection)
            except BlockingIOError:
                pass
            except OSError:
                open_ones.discard(connection)
        sent += 1
        answers_beside_all += len(open_ones) == SLOW_CLIENTS
        return not open_ones
    wait_until(drip, "all slow clients are sent away")
    # The server takes the latest connection first, so each of the first answers may have found a slow client not yet taken.
    assert answers_beside_all > SLOW_CLIENTS
    assert_serves(lab, daemon)
