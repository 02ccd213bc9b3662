# SPDX-License-Identifier: Apache-2.0
"""A server of debug information: /buildid/HEX/debuginfo and /buildid/HEX/executable (debuginfod(8))."""

import http.server
import re
import subprocess
import threading


def build_id_of(path):
    note = subprocess.run(["readelf", "-n", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    return re.search(r"Build ID: ([0-9a-f]+)", note).group(1)


class DebugServer:
    """Serves `files` by path. It counts `requests`, and waits for `may_answer` in the middle of each answer."""

    def __init__(self):
        self.files, self.requests = {}, []
        self.may_answer = threading.Event()
        self.may_answer.set()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802
                server.requests.append(self.path)
                contents = server.files.get(self.path)
                self.send_response(404 if contents is None else 200)
                contents = contents or b""
                self.send_header("Content-Length", str(len(contents)))
                self.end_headers()
                self.wfile.write(contents[:len(contents) // 2])
                self.wfile.flush()
                server.may_answer.wait()
                self.wfile.write(contents[len(contents) // 2:])

            def log_message(self, *arguments):
                pass

            def handle(self):
                try:
                    super().handle()
                except ConnectionError:
                    pass  # the client was killed

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def serve(self, build_id, path, kind="debuginfo"):
        with open(path, "rb") as file:
            self.files[f"/buildid/{build_id}/{kind}"] = file.read()

    def end(self):
        self.may_answer.set()
        self.server.shutdown()
        self.server.server_close()
