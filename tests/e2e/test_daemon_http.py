# SPDX-License-Identifier: Apache-2.0
"""The daemon's HTTP endpoints as real tools see them: curl, jeprof, google-pprof, go tool pprof, promtool, and
Prometheus' own parser; and libmtev's answers, byte for byte those of an application on Debian's jemalloc.

Everything is recorded: no error bounds.
"""

import http.client
import os
import re
import shutil
import subprocess
import tempfile

from prometheus_client.parser import text_string_to_metric_families

from daemon import DaemonCase
from harness import PATIENCE_SECONDS, target
from heap_v2 import Dump
from libmtev import Answer, Endpoints
from walkthrough import JEMALLOC

BLOCK = 65536
PROFILE = "/mtev/heap_profile"
# What a libmtev application may be asked, in an order in which each answer depends on those before.
QUESTIONS = ["", "?active=true", "", "?active=1", "", "?active=true", "?active=TRUE", "", "?active=",
             "?active=true&trigger_dump=true", "", "?trigger_dump=false", "?other=1"]


class Http(DaemonCase):
    def setUp(self):
        super().setUp()
        # What tools keep has names like dumps'.
        self.kept = tempfile.mkdtemp(prefix="heaptap-tools.")
        self.addCleanup(shutil.rmtree, self.kept)
        self.collector = self.daemon("--exact", "--listen", "127.0.0.1:0")
        self.url = self.collector.wait_said(r"^heaptap: recording; .* and (http://127\.0\.0\.1:\d+)")[1]

    def steered(self, conf="prof:true,lg_prof_sample:0", blocks=100):
        process = self.preloaded(target("steered"), talks=True, env={"MALLOC_CONF": conf})
        self.assertRegex(process.answer(), "ready")
        self.assertEqual(process.ask(f"keep {blocks} {BLOCK}"), f"kept {blocks}")
        return process

    def tool(self, *command, status=0):
        environment = dict(os.environ, JEPROF_TMPDIR=self.kept, PPROF_TMPDIR=self.kept, HOME=self.kept)
        result = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=self.folder,
                                env=environment, timeout=PATIENCE_SECONDS, check=False)
        self.assertEqual(result.returncode, status, f"{command}: {result.stdout}\n{result.stderr}")
        return result.stdout

    def fetch(self, path, method="GET", body=None):
        host = self.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return Answer(answer.status, answer.reason, answer.getheader("Content-Type"), answer.read())
        finally:
            connection.close()

    def save(self, path, name):
        answer = self.fetch(path)
        self.assertEqual(answer.status, 200, answer)
        path = os.path.join(self.kept, name)
        with open(path, "wb") as file:
            file.write(answer.body)
        return path

    def test_libmtev_answers_byte_for_byte(self):
        conf = "prof:true,prof_active:false,lg_prof_sample:0"
        env = {"LD_PRELOAD": JEMALLOC, "MALLOC_CONF": conf}
        application = Endpoints(self.program(target("mtev_endpoints"), env=env, talks=True))
        process = self.steered(conf)
        for ways in (f"/pid/{process.pid}{PROFILE}", PROFILE):
            self.fetch(PROFILE + "?active=false")
            application.get(PROFILE + "?active=false")
            for question in QUESTIONS:
                self.assertEqual(self.fetch(ways + question), application.get(PROFILE + question), question)
        by_pid = self.fetch(f"{PROFILE}?pid={process.pid}")
        self.assertEqual(by_pid, application.get(PROFILE))

    def test_libmtev_dump(self):
        process = self.steered()
        answer = self.fetch(PROFILE + "?trigger_dump=true")
        self.assertEqual((answer.status, answer.type), (200, "application/x-jemalloc-heap-profile"))
        dump = Dump(self.save(PROFILE + "?trigger_dump=true", "profile.heap"))
        dump.check()
        table = self.tool("jeprof", "--text", target("steered"), dump.path)
        self.assertRegex(table, r"6\.\d +\d+\.\d% .* keep_blocks")
        memory = self.fetch("/mtev/memory.json")
        self.assertEqual((memory.status, memory.type), (200, "application/json"))
        self.assertEqual(process.ask("drop"), "dropped 100")

    def test_which_process(self):
        nobody = self.fetch(PROFILE)
        self.assertEqual(nobody.status, 404)
        one, two = self.steered(), self.steered()
        for path in (PROFILE, "/mtev/memory.json", "/debug/pprof/heap", "/pprof/heap"):
            answer = self.fetch(path)
            self.assertEqual((answer.status, answer.type), (400, "text/plain"), path)
            for process in (one, two):
                self.assertIn(str(process.pid), answer.body.decode())
        self.assertEqual(self.fetch(f"{PROFILE}?pid=1").status, 404)
        for nonsense in ("0", "-1", "x", "1e3", "99999999999999999999", "", "1%00"):
            self.assertIn(self.fetch(f"{PROFILE}?pid={nonsense}").status, (400, 404), nonsense)

    def test_jeprof(self):
        process = self.steered()
        for page in ("heap", "growth"):
            table = self.tool("jeprof", "--text", f"{self.url}/pid/{process.pid}/pprof/{page}")
            self.assertRegex(table, r"6\.\d +\d+\.\d% .* keep_blocks", page)
        symbolized = self.save(f"/pid/{process.pid}/jeprof", "symbolized.heap")
        self.assertRegex(self.tool("jeprof", "--text", symbolized), "keep_blocks")
        head = self.fetch(f"/pid/{process.pid}/pprof/symbol", method="HEAD")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertRegex(self.fetch(f"/pid/{process.pid}/pprof/symbol").body, rb"^num_symbols: [1-9]")
        self.assertIn(target("steered").encode(), self.fetch(f"/pid/{process.pid}/pprof/cmdline").body)

    def test_google_pprof(self):
        process = self.steered()
        dump = self.save(f"/pid/{process.pid}/heap?format=gperftools", "gperftools.heap")
        self.assertRegex(self.tool("google-pprof", "--text", target("steered"), dump), "keep_blocks")
        growth = self.tool("google-pprof", "--text", f"{self.url}/pid/{process.pid}/pprof/growth")
        self.assertRegex(growth, "keep_blocks")

    def test_go_tool_pprof(self):
        process = self.steered()
        for page in ("heap", "allocs"):
            url = f"{self.url}/pid/{process.pid}/debug/pprof/{page}"
            self.assertRegex(self.tool("go", "tool", "pprof", "-top", url), "keep_blocks")
            answer = self.fetch(f"/pid/{process.pid}/debug/pprof/{page}")
            self.assertEqual((answer.status, answer.type), (200, "application/octet-stream"))
            self.assertEqual(answer.body[:2], b"\x1f\x8b")
        raw = self.tool("go", "tool", "pprof", "-raw", f"{self.url}/pid/{process.pid}/debug/pprof/heap")
        self.assertRegex(raw, r"alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes\[dflt\]")
        notes = self.tool("readelf", "-n", target("steered"))
        build_id = re.search(r"Build ID: ([0-9a-f]+)", notes)
        if build_id:
            self.assertIn(build_id[1], raw)
        self.assertRegex(raw, rf"\n +100 +{100 * BLOCK} +100 +{100 * BLOCK}: ")

    def test_difference_of_seconds(self):
        process = self.steered()
        url = f"{self.url}/pid/{process.pid}/debug/pprof/heap?seconds=3"
        with subprocess.Popen(["go", "tool", "pprof", "-raw", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=dict(os.environ, HOME=self.kept, PPROF_TMPDIR=self.kept)) as pprof:
            said = pprof.stderr.readline()  # it has asked, or is about to
            self.assertIn("Fetching", said)
            count = 0
            while pprof.poll() is None and count < 10000:
                self.assertEqual(process.ask(f"start 1 {BLOCK}"), "started 1")
                count += 1
                try:
                    pprof.wait(0.01)
                except subprocess.TimeoutExpired:
                    pass
            raw, errors = pprof.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(pprof.returncode, 0, errors)
        functions = {number: name for number, name in re.findall(r"^ +(\d+): 0x\w+ M=\d+ (\w+)", raw, re.MULTILINE)}
        self.assertIn("start_blocks", functions.values())
        self.assertNotIn("keep_blocks", functions.values())

    def test_prometheus(self):
        process = self.steered()
        text = self.fetch("/metrics").body.decode()
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True,
                                 timeout=PATIENCE_SECONDS, check=False)
        self.assertEqual((checked.returncode, checked.stdout), (0, ""), checked.stderr)
        families = {family.name: family for family in text_string_to_metric_families(text)}
        live = families["heaptap_live_bytes"].samples
        self.assertEqual([sample.labels for sample in live], [{"pid": str(process.pid), "command": "steered"}])
        self.assertGreaterEqual(live[0].value, 100 * BLOCK)
        self.assertGreater(families["heaptap_kernel_memory_bytes"].samples[0].value, 0)

    def test_curl(self):
        process = self.steered()
        curl = ["curl", "-sS", "--fail", "--unix-socket", self.collector.socket]
        self.assertEqual(self.tool(*curl, "http://localhost/healthz"), "ok\n")
        self.assertIn(f"/pid/{process.pid}/", self.tool(*curl, "http://localhost/"))
        self.assertRegex(self.tool(*curl, f"http://localhost/pid/{process.pid}/collapsed"), r"keep_blocks \d+\n")
        self.tool(*curl, "http://localhost/pid/1/heap", status=22)
        path = self.tool(*curl, "-X", "POST", f"http://localhost/pid/{process.pid}/dump")
        self.assertRegex(path, rf'"path":"[^"]*/steered\.{process.pid}\.0\.m0\.heap"')
