# SPDX-License-Identifier: Apache-2.0
"""An HTTP client for tests/targets/mtev_endpoints.c, which plays the role of a libmtev application."""

import collections
import http.client
import re

from harness import PATIENCE_SECONDS

Answer = collections.namedtuple("Answer", "status reason type body")


class Endpoints:
    """An application that has printed "ready PORT PID" from the program `process`."""

    def __init__(self, process):
        self.process = process
        port, pid = re.fullmatch(r"ready (\d+) (\d+)", process.answer()).groups()
        self.port, self.pid = int(port), int(pid)

    def get(self, path, method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return Answer(answer.status, answer.reason, answer.getheader("Content-Type"), answer.read())
        finally:
            connection.close()
