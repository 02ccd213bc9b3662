# SPDX-License-Identifier: Apache-2.0
"""The daemon's HTTP endpoints as real tools see them: curl, jeprof, google-pprof, go tool pprof, promtool, and
Prometheus' own parser; and libmtev's answers, byte for byte those of an application on Debian's jemalloc.

Everything is recorded: no error bounds.
"""

import http.client
import json
import os
import re
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from allocators import JEMALLOC
from daemons import UnixConnection
from harness import GO_PPROF, PATIENCE_SECONDS, target, wait_until
from heap_v2 import Dump
from libmtev import Answer, Endpoints

# Nothing else is recorded: some pages show the only process.
DAEMON = ["--exact", "--listen", "127.0.0.1:0", "--rule", "comm=puppet", "--rule", "record=off"]
BLOCK = 65536
PROFILE = "/mtev/heap_profile"

# Requests to a libmtev application, in an order in which each answer depends on earlier ones.
QUESTIONS = ["", "?active=true", "", "?active=1", "", "?active=true", "?active=TRUE", "", "?active=",
             "?active=true&trigger_dump=true", "", "?trigger_dump=false", "?other=1"]


class Site:
    """A daemon's endpoints; `kept` is the folder for files that tools save under names like those of dumps."""

    def __init__(self, collector, kept):
        self.collector, self.kept = collector, kept
        self.url = collector.wait_said(r"^heaptap: recording; .* and (http://127\.0\.0\.1:\d+)")[1]

    def tool(self, *command, status=0):
        environment = dict(os.environ, JEPROF_TMPDIR=self.kept, PPROF_TMPDIR=self.kept, HOME=self.kept)
        result = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=self.kept,
                                env=environment, timeout=PATIENCE_SECONDS, check=False)
        assert result.returncode == status, f"{command}: {result.stdout}\n{result.stderr}"
        return result.stdout

    def fetch(self, path, method="GET", body=None):
        return self._ask(http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=PATIENCE_SECONDS), path,
                         method, body)

    def fetch_by_socket(self, path):
        return self._ask(UnixConnection(self.collector.socket, PATIENCE_SECONDS), path)

    @staticmethod
    def _ask(connection, path, method="GET", body=None):
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return Answer(answer.status, answer.reason, answer.getheader("Content-Type"), answer.read())
        finally:
            connection.close()

    def save(self, path, name):
        answer = self.fetch(path)
        assert answer.status == 200, answer
        path = os.path.join(self.kept, name)
        with open(path, "wb") as file:
            file.write(answer.body)
        return path


@pytest.fixture
def site(daemon, tmp_path):
    return Site(daemon, str(tmp_path))


def holding_puppet(lab, site, conf="prof:true,lg_prof_sample:0", blocks=100):
    process = lab.preloaded_puppet(env={"MALLOC_CONF": conf})
    assert process.ask(f"keep {blocks} {BLOCK}") == f"kept {blocks}"
    site.collector.wait_recorded(process.pid)
    return process


def test_libmtev_answers_byte_for_byte(lab, site):
    conf = "prof:true,prof_active:false,lg_prof_sample:0"
    env = {"LD_PRELOAD": JEMALLOC, "MALLOC_CONF": conf}
    application = Endpoints(lab.program(target("mtev_endpoints"), env=env, talks=True))
    process = holding_puppet(lab, site, conf)
    for ways in (f"/pid/{process.pid}{PROFILE}", PROFILE):
        site.fetch_by_socket(PROFILE + "?active=false")
        application.get(PROFILE + "?active=false")
        for question in QUESTIONS:
            answer = application.get(PROFILE + question)
            assert site.fetch_by_socket(ways + question) == answer, question
            assert site.fetch(ways + question) == answer, question
    by_pid = site.fetch(f"{PROFILE}?pid={process.pid}")
    assert by_pid == application.get(PROFILE)


def test_the_commands_of_libmtev_s_documents(lab, site):
    """As they stand there, but for the machine and the port."""
    process = lab.preloaded_puppet(env={"MALLOC_CONF": "prof:true,prof_active:false"})

    def type_in(command):
        return site.tool("sh", "-c", command.replace("http://yourmachine:yourport", site.url)
                         .replace("yourmachine:yourport", site.url.removeprefix("http://"))
                         .replace("/path/to/your/executable", target("puppet")))

    def is_active():
        return type_in("curl yourmachine:yourport/mtev/heap_profile").splitlines()[1] == "prof.active: true"

    wait_until(lambda: b"opt.prof" in site.fetch(PROFILE).body, "the process is recorded")
    assert not is_active()
    assert type_in("curl yourmachine:yourport/mtev/heap_profile?active=true") == "Profiling is activated\n"
    assert is_active()
    assert process.ask(f"keep 100 {BLOCK}") == "kept 100"
    assert "keep_blocks" not in type_in("curl yourmachine:yourport/mtev/heap_profile?trigger_dump=true > profile.prof")
    table = type_in("jeprof --text --lines --exclude='(mtev_memory_|ck_hs_)' /path/to/your/executable profile.prof")
    assert re.search(r"6\.\d +\d+\.\d% .* keep_blocks", table), table
    assert type_in("curl yourmachine:yourport/mtev/heap_profile?active=false") == "Profiling is deactivated\n"
    assert not is_active()
    assert json.loads(type_in("curl yourmachine:yourport/mtev/memory.json"))


@pytest.mark.parametrize("header", (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Referer: http://127.0.0.1/", "Accept-Language: en-US", "Sec-Fetch-Site: none", "Upgrade-Insecure-Requests: 1"))
def test_a_browser_s_get_changes_nothing(lab, site, header):
    """Any web page can make a browser send it; each sign of a browser is enough."""
    process = holding_puppet(lab, site)
    before = site.fetch(PROFILE)
    refused = site.tool("curl", "-sS", "-H", header, "-w", "%{http_code}", f"{site.url}{PROFILE}?active=false")
    assert refused.endswith("403") and "POST /pid/N/active?value=on" in refused
    assert site.fetch(PROFILE) == before
    assert site.fetch(f"/pid/{process.pid}/active?value=off", method="POST").status == 200
    assert site.fetch(PROFILE) != before


def test_libmtev_dump(lab, site):
    process = holding_puppet(lab, site)
    answer = site.fetch(PROFILE + "?trigger_dump=true")
    assert (answer.status, answer.type) == (200, "application/x-jemalloc-heap-profile")
    dump = Dump(site.save(PROFILE + "?trigger_dump=true", "profile.heap"))
    dump.check()
    table = site.tool("jeprof", "--text", target("puppet"), dump.path)
    assert re.search(r"6\.\d +\d+\.\d% .* keep_blocks", table), table
    memory = site.fetch("/mtev/memory.json")
    assert (memory.status, memory.type) == (200, "application/json")
    assert process.ask("drop") == "dropped 100"


def test_which_process(lab, site):
    nobody = site.fetch(PROFILE)
    assert nobody.status == 404
    one, two = holding_puppet(lab, site), holding_puppet(lab, site)
    for path in (PROFILE, "/mtev/memory.json", "/debug/pprof/heap", "/pprof/heap"):
        answer = site.fetch(path)
        assert (answer.status, answer.type) == (400, "text/plain"), path
        for process in (one, two):
            assert str(process.pid) in answer.body.decode()
    assert site.fetch(f"{PROFILE}?pid=1").status == 404
    for nonsense in ("0", "-1", "x", "1e3", "99999999999999999999", "", "1%00"):
        assert site.fetch(f"{PROFILE}?pid={nonsense}").status in (400, 404), nonsense


def test_jeprof(lab, site):
    process = holding_puppet(lab, site)
    for page in ("heap", "growth"):
        table = site.tool("jeprof", "--text", f"{site.url}/pid/{process.pid}/pprof/{page}")
        assert re.search(r"6\.\d +\d+\.\d% .* keep_blocks", table), page
    symbolized = site.save(f"/pid/{process.pid}/jeprof", "symbolized.heap")
    assert re.search("keep_blocks", site.tool("jeprof", "--text", symbolized))
    head = site.fetch(f"/pid/{process.pid}/pprof/symbol", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert re.search(rb"^num_symbols: [1-9]", site.fetch(f"/pid/{process.pid}/pprof/symbol").body)
    assert target("puppet").encode() in site.fetch(f"/pid/{process.pid}/pprof/cmdline").body


def test_google_pprof(lab, site):
    process = holding_puppet(lab, site)
    dump = site.save(f"/pid/{process.pid}/heap?format=gperftools", "gperftools.heap")
    assert re.search("keep_blocks", site.tool("google-pprof", "--text", target("puppet"), dump))
    growth = site.tool("google-pprof", "--text", f"{site.url}/pid/{process.pid}/pprof/growth")
    assert re.search("keep_blocks", growth), growth


def test_go_tool_pprof(lab, site):
    process = holding_puppet(lab, site)
    for page in ("heap", "allocs"):
        url = f"{site.url}/pid/{process.pid}/debug/pprof/{page}"
        assert re.search("keep_blocks", site.tool(*GO_PPROF, "-top", url))
        answer = site.fetch(f"/pid/{process.pid}/debug/pprof/{page}")
        assert (answer.status, answer.type) == (200, "application/octet-stream")
        assert answer.body[:2] == b"\x1f\x8b"
    raw = site.tool(*GO_PPROF, "-raw", f"{site.url}/pid/{process.pid}/debug/pprof/heap")
    assert re.search(r"alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes\[dflt\]", raw), raw
    notes = site.tool("readelf", "-n", target("puppet"))
    build_id = re.search(r"Build ID: ([0-9a-f]+)", notes)
    if build_id:
        assert build_id[1] in raw
    assert re.search(rf"\n +100 +{100 * BLOCK} +100 +{100 * BLOCK}: ", raw), raw


def test_difference_of_seconds(lab, site):
    process = holding_puppet(lab, site)
    url = f"{site.url}/pid/{process.pid}/debug/pprof/heap?seconds=3"
    with subprocess.Popen([*GO_PPROF, "-raw", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, env=dict(os.environ, HOME=site.kept, PPROF_TMPDIR=site.kept)) as pprof:
        said = pprof.stderr.readline()  # the request was sent, or is about to be
        assert "Fetching" in said
        count = 0
        while pprof.poll() is None and count < 10000:
            assert process.ask(f"start 1 {BLOCK}") == "started 1"
            count += 1
            try:
                pprof.wait(0.01)
            except subprocess.TimeoutExpired:
                pass
        raw, errors = pprof.communicate(timeout=PATIENCE_SECONDS)
    assert pprof.returncode == 0, errors
    functions = {number: name for number, name in re.findall(r"^ +(\d+): 0x\w+ M=\d+ (\w+)", raw, re.MULTILINE)}
    assert "start_blocks" in functions.values()
    assert "keep_blocks" not in functions.values()


def test_prometheus(lab, site):
    process = holding_puppet(lab, site)
    text = site.fetch("/metrics").body.decode()
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True,
                             timeout=PATIENCE_SECONDS, check=False)
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr
    families = {family.name: family for family in text_string_to_metric_families(text)}
    live = families["heaptap_live_bytes"].samples
    assert [sample.labels for sample in live] == [{"pid": str(process.pid), "command": "puppet"}]
    assert live[0].value >= 100 * BLOCK
    assert families["heaptap_kernel_memory_most_bytes"].samples[0].value > 0


def test_curl(lab, site):
    process = holding_puppet(lab, site)
    curl = ["curl", "-sS", "--fail", "--unix-socket", site.collector.socket]
    assert site.tool(*curl, "http://localhost/healthz") == "ok\n"
    assert "/page.js" in site.tool(*curl, "http://localhost/")
    assert re.search(r"keep_blocks \d+\n", site.tool(*curl, f"http://localhost/pid/{process.pid}/collapsed"))
    site.tool(*curl, "http://localhost/pid/1/heap", status=22)
    path = site.tool(*curl, "-X", "POST", f"http://localhost/pid/{process.pid}/dump")
    assert re.search(rf'"path":"[^"]*/puppet\.{process.pid}\.0\.m0\.heap"', path), path
