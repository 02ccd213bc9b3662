# SPDX-License-Identifier: Apache-2.0
"""Profiles from web servers: heaptap's own, Go's, and servers that misbehave."""

import contextlib
import gzip
import http.server
import json
import os
import re
import socket
import subprocess
import threading

import pytest

import go_programs
from harness import PATIENCE_SECONDS, target
from lab import assert_one_clear_line

DAEMON = ["--exact", "--listen", "127.0.0.1:0", "--rule", "comm=puppet", "--rule", "record=off"]


class Server:
    """Answers each path with a status, headers and a body; `requests` are the heads of all requests."""

    def __init__(self):
        self.answers, self.requests = {}, []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):  # noqa: N802
                server.requests.append((self.path, dict(self.headers)))
                status, headers, body = server.answers.get(self.path, (404, {}, b"no such page\n"))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Transfer-Encoding" not in headers:
                    self.send_header("Content-Length", headers.get("Length", str(len(body))))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = True

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def put(self, path, body, status=200, **headers):
        self.answers[path] = (status, {name.replace("_", "-"): value for name, value in headers.items()}, body)
        return self.url + path


@pytest.fixture
def server():
    made = Server()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def leak(lab):
    lab.heaptap("run", "--exact", "--", target("wiki_leak")).ends()
    return lab.dumps()[0].path


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_dumps_of_any_server(lab, server, leak):
    """What a file gives, a URL gives: in each format, also in chunks."""
    url = server.put("/a.heap?x=a@b", read(leak))
    assert lab.answer_of("report", "--top", url) == lab.answer_of("report", "--top", leak).replace(leak, url)
    assert server.requests[0][1]["Host"] == server.url.removeprefix("http://")
    pprof = lab.path("pprof.gz")
    lab.answer_of("report", "--pprof", "-o", pprof, leak)
    compressed = server.put("/debug/pprof/heap", read(pprof))
    assert "do_something_else" in lab.answer_of("report", "--top", compressed)
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (read(leak)[:1000], read(leak)[1000:]))
    chunked = server.put("/chunked", chunks + b"0\r\n\r\n", Transfer_Encoding="chunked")
    assert "do_something_else" in lab.answer_of("report", "--top", chunked)
    # A fragment stays here.
    assert "do_something_else" in lab.answer_of("report", "--top", url + "#part")


def test_differences_and_the_page(lab, server, leak):
    url = server.put("/heap", read(leak))
    assert "live       0 in 0 objects" in lab.answer_of("report", "--base", url, leak)
    assert "live       0 in 0 objects" in lab.answer_of("report", "--base", leak, url)
    assert json.loads(lab.answer_of("diff", "--json", url, url))["call_paths"] == []
    lab.answer_of("view", server.put("/heap?debug=0", read(leak)))
    (page,) = [name for name in os.listdir(lab.folder) if name.endswith(".html")]
    assert re.fullmatch(r"127\.0\.0\.1_\d+_heap\.html", page)
    assert b"do_something_else" in read(lab.path(page))


def test_a_daemon_of_heaptap(lab, daemon):
    url = daemon.wait_said(r"^heaptap: recording; .* and (http://127\.0\.0\.1:\d+)")[1]
    puppet = lab.preloaded_puppet()
    puppet.ask("keep 100 65536")
    daemon.wait_recorded(puppet.pid)
    for path in (f"/pid/{puppet.pid}/heap", f"/pid/{puppet.pid}/pprof/heap", f"/pid/{puppet.pid}/debug/pprof/heap"):
        assert "keep_blocks" in lab.answer_of("report", "--top", url + path), path
    first, now = lab.path("first"), f"{url}/pid/{puppet.pid}/heap"
    daemon.dump(puppet.pid, first)
    puppet.ask("keep 50 65536")
    assert "+50 objects" in lab.answer_of("diff", first, now)
    assert_one_clear_line(lab.heaptap("report", url + "/pid/1/heap"), 3, r"404 \(Not Found\)")


GO = """
package main

import ("fmt"; "net"; "net/http"; _ "net/http/pprof"; "os"; "runtime")

var kept [][]byte

//go:noinline
func keepBlocks() { for i := 0; i < 100; i++ { kept = append(kept, make([]byte, 1<<20)) } }

func main() {
  runtime.MemProfileRate = 1
  keepBlocks()
  runtime.GC()
  listener, err := net.Listen("tcp", "127.0.0.1:0")
  if err != nil { os.Exit(1) }
  fmt.Println(listener.Addr())
  http.Serve(listener, nil)
}
"""


def test_a_program_in_go(lab):
    process = subprocess.Popen([go_programs.built(lab.folder, GO)], stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().strip()
        text = lab.answer_of("report", "--top", f"http://{address}/debug/pprof/heap")
        assert re.search(r"main\.keepBlocks", text) and "100" in text
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)
        process.stdout.close()


@pytest.mark.parametrize("path, status, words", (
    ("/missing", 3, r"404 \(Not Found\): no such page"),
    ("/forbidden", 4, r"403 \(Forbidden\)"),
    ("/broken", 1, r"500 \(Internal Server Error\)"),
    ("/elsewhere", 1, "sends you to file:///etc/passwd"),
    ("/empty", 1, "empty"),
    ("/text", 1, "first line .* is expected"),
    ("/html", 1, "first line .* is expected"),
    ("/damaged", 1, "damaged|cut off"),
    ("/cut", 1, "incomplete"),
    ("/large", 1, "longer than 1073741824 bytes")), ids=lambda value: str(value)[:12])
def test_bad_answers(lab, server, path, status, words):
    server.put("/forbidden", b"<html>\x1b[31m", 403)
    server.put("/broken", b"{}", 500)
    server.put("/elsewhere", b"", 302, Location="file:///etc/passwd")
    server.put("/empty", b"")
    server.put("/text", b"\x1b]0;title\x07hello\n")
    server.put("/html", b"<!DOCTYPE html><html></html>")
    server.put("/damaged", gzip.compress(b"heap profile: 1")[:-6])
    server.put("/cut", b"heap_v2/1\n", Length="1000")
    server.put("/large", b"heap_v2/1\n", Length=str(2 << 30))
    for command in ("report", "view"):
        assert_one_clear_line(lab.heaptap(command, server.url + path), status, words, re.escape(server.url))
    assert not [name for name in os.listdir(lab.folder) if name.endswith(".html")]
    # It asked there and nowhere else.
    assert {asked for asked, _ in server.requests} == {path}


def test_bad_urls(lab):
    with contextlib.closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/heap"
        for arguments in (("report", nobody), ("diff", nobody, nobody), ("view", nobody),
                          ("report", "--base", nobody, nobody)):
            assert_one_clear_line(lab.heaptap(*arguments), 3, "nothing listens there", nobody)
    for url, words in (("https://127.0.0.1/heap", "curl -o FILE URL"), ("ftp://127.0.0.1/heap", "begins with http://"),
                       ("http://127.0.0.1:x/", "expected http://HOST:PORT"), ("http://127.0.0.1/a b", "%XX"),
                       ("http://me:secret@127.0.0.1/", "curl -u USER")):
        session = lab.heaptap("report", url)
        assert_one_clear_line(session, 2, words)
        assert "secret" not in session.stderr()
    assert_one_clear_line(lab.heaptap("report", "http://no.such.host.invalid/"), 3, "no address of this host")
