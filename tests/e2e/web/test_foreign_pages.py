# SPDX-License-Identifier: Apache-2.0
"""A page of another site cannot steer the recording: a real browser with such a page sends every kind of request that a
page can cause. The documented GET works for curl at the same time.

Recording is exact; error bounds: none.
"""

import contextlib
import http.server
import subprocess
import threading

import pytest

from browser import chromium
from harness import PATIENCE_SECONDS, wait_until
from pages import address_of
from security import keeping_puppet

DAEMON = ["--exact", "--listen", "127.0.0.1:0", "--history", "none"]

# What a page can do to make its browser request the address TARGET, without consent of its server.
WAYS = {
    "image": "<img src='TARGET' referrerpolicy='no-referrer'>",
    "script": "<script src='TARGET'></script>",
    "style": "<link rel='stylesheet' href='TARGET'>",
    "frame": "<iframe src='TARGET'></iframe>",
    "fetch": "<script>fetch('TARGET', {mode: 'no-cors', referrerPolicy: 'no-referrer', credentials: 'omit'})</script>",
    "headers": "<script>fetch('TARGET', {headers: {'User-Agent': 'curl/7.88.1', 'Accept-Language': '*'}})</script>",
    "navigation": "<meta name='referrer' content='no-referrer'><script>location = 'TARGET'</script>",
    "form": "<form action='TARGET'><input name='active' value='false'></form><script>document.forms[0].submit()</script>",
    "beacon": "<script>navigator.sendBeacon('TARGET')</script>",
    "window": "<script>window.open('TARGET', '_self', 'noreferrer')</script>",
}


@contextlib.contextmanager
def serve(pages):
    """A site: {path: body}. Its address, and the paths that were asked for."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(pages.get(self.path, "").encode())

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def victim(tmp_path_factory):
    """A browser whose console may complain: of refused requests."""
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def curl(address):
    return subprocess.run(["curl", "-sS", address], capture_output=True, text=True, timeout=PATIENCE_SECONDS,
                          check=True).stdout


def test_requests_of_a_foreign_page(lab, daemon, victim):
    process = keeping_puppet(lab, env={"MALLOC_CONF": "prof:true,lg_prof_sample:0"})
    daemon.wait_recorded(process.pid)
    base = f"{address_of(daemon).rstrip('/')}/pid/{process.pid}/mtev/heap_profile"
    targets = {way: f"{base}?active=false&way={way}" for way in WAYS}
    pages = {f"/{way}": text.replace("TARGET", targets[way]) for way, text in WAYS.items()}
    with serve(pages) as (site, asked):
        for way in WAYS:
            victim.open(f"{site}/{way}")
            wait_until(lambda: f"/{way}" in asked, f"the page {way} is loaded")
            wait_until(lambda: victim.script("return document.readyState") == "complete", f"{way} is done")
            assert process.ask("read bool prof.active") == "0 true", way
    # A person who follows a link from a mail.
    victim.open(targets["image"])
    assert "use curl" in victim.text("body")
    assert process.ask("read bool prof.active") == "0 true"
    assert curl(f"{base}?active=false") == "Profiling is deactivated\n"
    assert process.ask("read bool prof.active") == "0 false"
    assert curl(f"{base}?active=true") == "Profiling is activated\n"
    assert process.ask("read bool prof.active") == "0 true"
