# SPDX-License-Identifier: Apache-2.0
"""malloc_stats_print: the form is jemalloc's, and the figures are what the kernel says.

Error bounds: the keys and headings, none. The allocator's mappings are told from others by their flag "nr" (mapped
without a reserve), which no others have in these programs.

  resident  1 % of the Rss of these mappings, and 64 KiB for the library's own table, which is not among them
  resident, mapped  5 % of what smaps_rollup has of anonymous memory, less that of mappings that have a name (files'
            data, stacks), and 256 KiB for what the dynamic linker and libc map for themselves
"""

import glob
import json
import os
import re
import subprocess

import programs
from harness import LIBRARY, Case, target, wait_until

JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
PROBE = target("libstatistics.so")
KIB = 1024

# Keys that jemalloc 5.3.0 does not print, and we do.
OURS = {
    # Printed by jemalloc 5.3.1.
    "config.prof_frameptr",
    # Debian's jemalloc is built without it.
    "opt.xmalloc",
    # jemalloc has these options, and its mallctl shows them, but its report forgets them.
    "opt.prof_bt_max", "opt.prof_stats", "opt.prof_sys_thread_name",
    "opt.prof_time_resolution", "opt.prof_pid_namespace",
}


def key_tree(value, path=""):
    """The dotted names of all leaves. Elements of arrays are all alike, which is checked too; arenas are one."""
    if isinstance(value, dict):
        leaves = set()
        for key, inner in value.items():
            key = "<arena>" if path == "stats.arenas" else key
            leaves |= key_tree(inner, f"{path}.{key}" if path else key)
        return leaves or {path}
    if isinstance(value, list):
        trees = [key_tree(inner, path + "[]") for inner in value]
        assert all(tree == trees[0] for tree in trees), path
        return trees[0] if trees else {path}
    return {path}


def without_repetitions(pairs):
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"a key twice: {keys}"
    return dict(pairs)


class Form(Case):
    needs_bpf = False

    def printed(self, library, *options, env=None):
        program = self.program(target("statistics_print"), *options, env={"LD_PRELOAD": library, **(env or {})})
        self.assertEqual(program.wait(), 0, program.stderr())
        return program.stderr()

    def test_json_has_jemalloc_s_keys(self):
        theirs = key_tree(json.loads(self.printed(JEMALLOC, "J"))["jemalloc"])
        ours = key_tree(json.loads(self.printed(LIBRARY, "J"), object_pairs_hook=without_repetitions)["jemalloc"])
        self.assertGreater(len(theirs), 200)
        self.assertEqual(theirs - ours, set())
        self.assertEqual(ours - theirs, OURS)

    def test_json_types_are_jemalloc_s(self):
        """Numbers, truth values and texts where jemalloc has them."""
        def types(value, path=""):
            if isinstance(value, dict):
                return {name: kind for key, inner in value.items()
                        for name, kind in types(inner, f"{path}.{key}").items()}
            if isinstance(value, list):
                return types(value[0], path + "[]")
            return {path: type(value)}
        theirs = types(json.loads(self.printed(JEMALLOC, "J")))
        ours = types(json.loads(self.printed(LIBRARY, "J")))
        self.assertEqual({name: (theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]}, {})

    def test_letters_leave_out_what_jemalloc_leaves_out(self):
        for letters in ("g", "m", "d", "a", "b", "l", "x", "e", "h", "ma", "gmdablxeh", "blx", "bogus"):
            with self.subTest(letters):
                theirs = key_tree(json.loads(self.printed(JEMALLOC, "J" + letters)))
                ours = key_tree(json.loads(self.printed(LIBRARY, "J" + letters)))
                self.assertEqual({key for key in theirs ^ ours if key.replace("jemalloc.", "") not in OURS}, set())

    def test_text_has_jemalloc_s_headings(self):
        """Every line of jemalloc's that has no number is one of ours, and the others begin with the same words. Rows of
        size classes, and the marks for gaps between them, depend on the allocator."""
        def shape(text):
            lines = []
            for line in text.splitlines():
                if re.match(r" +\d+ +\d+ ", line) or line.strip() == "---":
                    continue
                lines.append(re.sub(r' +\d[\d.]*|"[^"]*"|: (true|false)\b|-\d+', " #", line))
            return lines
        theirs = shape(self.printed(JEMALLOC))
        ours = shape(self.printed(LIBRARY))
        missing = [line for line in theirs if line not in ours]
        self.assertEqual(missing, [])
        # In the same order, but for what the table of options adds.
        added = re.compile(r"  (" + "|".join(map(re.escape, OURS)) + r")\b")
        once = list(dict.fromkeys(theirs))
        self.assertEqual([line for line in dict.fromkeys(ours) if not added.match(line)], once)

    def test_rows_stand_under_their_headings(self):
        """Each column ends where its heading ends, and the totals are the sums of the rows."""
        lines = self.printed(LIBRARY).splitlines()
        for title, size in (("bins:", 41), ("large:          size", 191), ("extents:", 199)):
            start = next(i for i, line in enumerate(lines) if line.startswith(title))
            ends = [match.end() for match in re.finditer(r"\S+", lines[start])]
            ends = ends[1:] if lines[start].startswith(title.split()[0]) else ends
            rows = 0
            for line in lines[start + 1:]:
                if line.strip() == "---":
                    continue
                if not line.startswith("  ") or not re.match(r" +\d", line):
                    break
                rows += 1
                self.assertEqual([match.end() for match in re.finditer(r"\S+", line)], ends, line)
            self.assertGreater(rows, 0)
            self.assertLessEqual(rows, size)

    def test_figures_agree_with_each_other(self):
        report = json.loads(self.printed(LIBRARY, "J"))["jemalloc"]
        arena = report["stats.arenas"]["0"]
        stats = report["stats"]
        bins = zip(report["arenas"]["bin"], arena["bins"])
        small = 0
        for description, figures in bins:
            small += description["size"] * figures["curregs"]
            self.assertEqual(figures["nmalloc"] - figures["ndalloc"], figures["curregs"])
            self.assertLessEqual(figures["nrequests"], figures["nmalloc"])
        large = sum(description["size"] * figures["curlextents"]
                    for description, figures in zip(report["arenas"]["lextent"], arena["lextents"]))
        self.assertEqual(arena["small"]["allocated"], small)
        self.assertEqual(arena["large"]["allocated"], large)
        self.assertEqual(stats["allocated"], small + large)
        self.assertEqual(arena["pactive"] * report["arenas"]["page"], stats["active"])
        self.assertEqual(arena["pdirty"] * report["arenas"]["page"], sum(e["dirty_bytes"] for e in arena["extents"]))
        self.assertLessEqual(stats["allocated"], stats["active"])
        self.assertLessEqual(stats["active"], stats["mapped"])
        self.assertEqual(arena["nthreads"], 1)
        # 1000 of the blocks of 8 + 40 i bytes live, and little else.
        live = sum(8 + 40 * i for i in range(1, 2000, 2))
        self.assertGreaterEqual(stats["allocated"], live)
        self.assertLess(stats["allocated"], live * 1.3)

    def test_stats_print(self):
        """stats_print prints when the process exits, as stats_print_opts has it."""
        for options, begins in (("stats_print:true", "___ Begin jemalloc statistics ___\n"),
                                ("stats_print:true,stats_print_opts:Jg", '{"jemalloc":{"stats":{')):
            program = self.program("/usr/bin/python3", "-c", "pass",
                                   env={"LD_PRELOAD": LIBRARY, "MALLOC_CONF": options})
            self.assertEqual(program.wait(), 0)
            self.assertTrue(program.stderr().startswith(begins), program.stderr()[:200])


def read_smaps(path):
    mappings = []
    with open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            header = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$", line)
            if header:
                mappings.append({"name": header.group(1)})
                continue
            key, value = line.split(":", 1)
            mappings[-1][key] = value.split() if key == "VmFlags" else int(value.split()[0]) * KIB
    return mappings


def read_rollup(path):
    with open(path, encoding="ascii") as file:
        next(file)
        return {key: int(value.split()[0]) * KIB for key, value in (line.split(":", 1) for line in file)}


class Figures(Case):
    needs_bpf = False

    def setUp(self):
        super().setUp()
        self.results = os.path.join(self.folder, "statistics")
        os.mkdir(self.results)

    def start(self, command, at_exit=True, **options):
        env = {"LD_PRELOAD": f"{LIBRARY} {PROBE}", "STATISTICS_FOLDER": self.results, **options.pop("env", {})}
        if at_exit:
            env["STATISTICS_AT_EXIT"] = "1"
        return self.program(*command, env=env, **options)

    def check(self, touches=True):
        """Compares what each process has left, once; gives how many had enough memory for a percentage. `touches`: the
        programs use the memory that they allocate."""
        counted = 0
        for path in sorted(glob.glob(f"{self.results}/*.json")):
            base = path[:-len(".json")]
            with open(path, encoding="ascii") as file:
                stats = json.load(file)["jemalloc"]["stats"]
            mappings = read_smaps(base + ".smaps")
            own = sum(mapping["Rss"] for mapping in mappings if "nr" in mapping["VmFlags"])
            named = sum(mapping["Anonymous"] for mapping in mappings if mapping["name"])
            others = sum(mapping["Rss"] for mapping in mappings
                         if not mapping["name"] and "nr" not in mapping["VmFlags"] and mapping["Rss"] > 256 * KIB)
            whole = read_rollup(base + ".smaps_rollup")["Anonymous"] - named - others
            told = f"{path}: {stats}, own {own}, whole {whole}, others {others}"
            self.assertAlmostEqual(stats["resident"], own, delta=0.01 * own + 64 * KIB, msg=told)
            self.assertAlmostEqual(stats["resident"], whole, delta=0.05 * whole + 256 * KIB, msg=told)
            self.assertGreaterEqual(stats["mapped"] + 64 * KIB, 0.95 * own, told)
            if touches:
                self.assertAlmostEqual(stats["mapped"], whole, delta=0.05 * whole + 256 * KIB, msg=told)
            counted += own > 4 * 1024 * KIB
            os.unlink(path)
        return counted

    def run_to_end(self, *command, **options):
        process = self.start(command, **options)
        self.assertEqual(process.wait(programs.LIMIT_SECONDS), 0, process.stderr())

    def test_python(self):
        """Asked in the middle of its work, and again when most is free. Its own pools would hide what it does."""
        work = ("import ctypes, json, os\n"
                "library = ctypes.CDLL(None)\n"
                "live = [json.loads(json.dumps({'a': [i] * 5, 'b': 'x' * (i % 300)})) for i in range(60000)]\n"
                "if os.environ['WHEN'] == 'empty': del live\n"
                "library.write_statistics()\n")
        for when in ("full", "empty"):
            with self.subTest(when):
                self.run_to_end("/usr/bin/python3", "-c", work, at_exit=False,
                                env={"PYTHONMALLOC": "malloc", "WHEN": when})
                self.assertEqual(self.check(), 1)

    def test_sqlite(self):
        with open(os.path.join(self.folder, "script.sql"), "w", encoding="ascii") as file:
            file.write(programs.SQL)
        self.run_to_end("sqlite3", ":memory:", ".read script.sql")
        self.assertEqual(self.check(), 1)

    def test_perl(self):
        self.run_to_end("perl", "-e", "my %h; $h{$_} = 'x' x ($_ % 100) for 1..200000;")
        self.assertEqual(self.check(), 1)

    def test_gcc(self):
        """The driver, the compiler proper and the assembler; the compiler's garbage collector maps memory itself."""
        source = os.path.join(self.folder, "a.cc")
        with open(source, "w", encoding="ascii") as file:
            file.write("#include <map>\n#include <string>\n#include <regex>\n"
                       "int main() { std::map<int, std::string> m; m[1] = \"a\"; return std::regex_match(m[1], "
                       "std::regex(\"a+b*\")) ? 0 : 1; }\n")
        self.run_to_end("g++", "-O1", "-c", source, "-o", os.path.join(self.folder, "a.o"))
        self.assertGreaterEqual(self.check(), 2)

    def test_xz(self):
        """Its tables are allocated for the worst case, and mostly not touched."""
        self.run_to_end("xz", "-6", "-k", "-c", LIBRARY)
        self.assertEqual(self.check(touches=False), 1)

    def test_redis(self):
        """Many clients and threads; statistics as it goes down."""
        socket = os.path.join(self.folder, "redis.sock")

        def client(*words):
            return subprocess.run(["redis-cli", "-s", socket, *words], stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.STDOUT, cwd=self.folder, timeout=programs.LIMIT_SECONDS,
                                  check=False).stdout
        server = self.start(["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", self.folder,
                             "--enable-debug-command", "yes"])
        wait_until(lambda: client("ping").strip() == "PONG", "redis answers")
        self.assertEqual(client("debug", "populate", "200000", "key", "100").strip(), "OK")
        client("shutdown", "nosave")
        self.assertEqual(server.wait(programs.LIMIT_SECONDS), 0, server.stderr())
        self.assertEqual(self.check(), 1)
