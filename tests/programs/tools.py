# SPDX-License-Identifier: Apache-2.0
"""Everyday tools: archives, texts, version control, debuggers, terminals, solvers, emulators."""

import json
import os
import re

import programs
from harness import wait_until
from program import client, digest, outcome, program, write

program("procps")(programs.w)
program("coreutils", "ls")(programs.PROGRAMS["ls"])

LATER = 4102444800  # 2100-01-01, as st_mtime

NUMBERS = "".join(f"{i * 7919 % 300007} {'x' * (i % 40)}\n" for i in range(150000))


@program("git")
def git(folder, start):
    """A repository: files, commits, a merge, a pack; fixed dates give fixed hashes."""
    names = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
             for what, value in (("NAME", "A"), ("EMAIL", "a@b"), ("DATE", "2026-01-01T00:00:00Z"))}

    def command(*words):
        return outcome(start(["git", "-c", "init.defaultBranch=main", "-c", "pack.threads=2", "-c", "gc.auto=0",
                              *words], env=names))

    for i in range(300):
        write(folder, f"part{i % 7}/file{i}", f"line {i}\n" * (i % 100))
    results = [command("init", "-q"), command("add", "."), command("commit", "-qm", "one"),
               command("checkout", "-qb", "side")]
    write(folder, "part1/file1", "side\n")
    results += [command("commit", "-qam", "two"), command("checkout", "-q", "main")]
    write(folder, "part2/file2", "main\n")
    results += [command("commit", "-qam", "three"), command("merge", "-q", "-m", "four", "side"),
                command("log", "--stat", "--graph"), command("gc", "-q"), command("fsck", "--no-progress"),
                command("blame", "part1/file99"), command("grep", "-c", "line 9")]
    return {"results": results, "status": max(result["status"] for result in results)}


@program("rsync")
def rsync(folder, start):
    """Three processes; a full copy, then an update."""
    for i in range(500):
        write(folder, f"from/part{i % 9}/file{i}", f"line {i}\n" * (i % 300))
    first = outcome(start(["rsync", "-aic", "from/", "to"]))
    with open(os.path.join(folder, "from/part1/file1"), "a", encoding="ascii") as file:
        file.write("more\n")
    # The copy has the time of the first version, which may be in the same second.
    os.utime(os.path.join(folder, "from/part1/file1"), (LATER, LATER))
    second = outcome(start(["rsync", "-aic", "--no-whole-file", "--delete", "from/", "to"]))
    return {"first": first, "second": second, "difference": client(folder, "diff", "-r", "from", "to")}


def archiver(package, name, *options):
    """Packs, with several threads if supported, and unpacks."""
    def run(folder, start):
        write(folder, "text", NUMBERS)
        packed = outcome(start([name, *options, "-k", "-f", "text"]))
        (file,) = (file for file in os.listdir(folder) if file.startswith("text."))
        tested = outcome(start([name, "-t", file]))
        os.rename(os.path.join(folder, "text"), os.path.join(folder, "old"))
        unpacked = outcome(start([name, "-d", "-q", "-f", file] if name != "bzip2" else [name, "-d", "-f", file]))
        return {"packed": packed, "tested": tested, "unpacked": unpacked,
                "same": digest(folder, "old") == digest(folder, "text")}
    program(package, name)(run)


archiver("xz-utils", "xz", "-1", "-T2", "--block-size=1MiB")
archiver("zstd", "zstd", "-q", "-9", "-T2")
archiver("bzip2", "bzip2")


@program("coreutils")
def sort(folder, start):
    """In parallel and with temporary files."""
    write(folder, "numbers", NUMBERS)
    return outcome(start(["sort", "--parallel=4", "-S", "2M", "-T", folder, "-k2,2", "-k1,1n", "-o", "sorted",
                          "numbers"]), folder, ["sorted"])


@program("coreutils", "coreutils in a loop")
def coreutils(folder, start):
    """Hundreds of processes that live for milliseconds."""
    write(folder, "script", r"""
for i in $(seq 60); do
  seq $i 1000 | tac | head -n 50 | cut -c1-3 | sort -n | uniq -c | wc -l
  mkdir -p d$i/a && touch d$i/a/f && cp -a d$i e$i && mv e$i/a e$i/b && ls -R d$i | md5sum && rm -r d$i e$i
done
find /usr/share/doc -maxdepth 1 -name 'b*' | wc -l >/dev/null
tar -c --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner script | gzip -n | sha256sum
date -u -d @0; expr 6 \* 7; printf '%s\n' a b | paste -sd,; factor 1234567890123456789; stat -c %a script; env -i echo x
""")
    return outcome(start(["sh", "script"]))


@program("gdb")
def gdb(folder, start):
    """A debugger and its program, both with heaptap: breakpoint, backtrace, expressions in Python."""
    write(folder, "main.c", """
#include <stdlib.h>
static void *keep(int size) { return malloc(size); }
int main(void) { for (int i = 1; i < 100; i++) { void *p = keep(i); free(p); } return 7; }
""")
    client(folder, "gcc", "-g", "-O0", "main.c", "-o", "main")
    return outcome(start(["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex",
                          "break keep if size == 50", "-ex", "run", "-ex", "backtrace", "-ex",
                          "python print(sum(range(1000)))", "-ex", "print size * 2", "-ex", "delete", "-ex",
                          "continue", "./main"]),
                   hide=[r"0x[0-9a-f]+", r"process \d+"])


@program("strace")
def strace(folder, start):
    """Traces processes with heaptap; the trace shows how they end."""
    result = outcome(start(["strace", "-f", "-o", "trace", "sh", "-c", "ls / | sort | wc -l; exit 0"]))
    with open(os.path.join(folder, "trace"), encoding="utf-8", errors="replace") as file:
        result["ends"] = sorted(re.findall(r"\+\+\+ .* \+\+\+", file.read()))
    return result


@program("tmux")
def tmux(folder, start):
    """A server in the background, the contents of its window, and its end."""
    def command(*words):
        return outcome(start(["tmux", "-f", "/dev/null", "-S", os.path.join(folder, "socket"), *words]))

    def shown():
        return client(folder, "tmux", "-S", os.path.join(folder, "socket"), "capture-pane", "-p", "-S", "-")

    begun = command("new-session", "-d", "-x", "100", "-y", "30", "sh -c 'seq 2000; echo end; read x'")
    wait_until(lambda: "end" in shown(), "tmux shows the end")
    return {"begun": begun, "windows": command("list-windows", "-F", "#{window_width}"), "shown": shown(),
            "ended": command("kill-server")}


@program("graphviz")
def dot(folder, start):
    edges = "".join(f"n{i} -> n{i * 7 % 150}; n{i} -> n{(i * i + 1) % 150};\n" for i in range(150))
    write(folder, "graph.dot", f"digraph {{ node [shape=box]; {edges} }}")
    return outcome(start(["dot", "-Tsvg", "-o", "graph.svg", "graph.dot"]), folder, ["graph.svg"])


@program("qemu-system-x86")
def qemu(folder, start):
    """A machine whose boot sector prints a line to the serial port and switches the machine off."""
    # mov si, text; next: lodsb; or al, al; jz end; mov dx, 0x3f8; out dx, al; jmp next;
    # end: mov dx, 0xf4; out dx, al; hlt
    code = bytes.fromhex("be157cac08c07406ba f803ee ebf5 baf400 ee f4 90 90".replace(" ", ""))
    sector = (code + b"heaptap\n\0").ljust(510, b"\0") + b"\x55\xaa"
    with open(os.path.join(folder, "disk"), "wb") as file:
        file.write(sector)
    result = outcome(start(["qemu-system-x86_64", "-accel", "tcg", "-m", "32", "-display", "none", "-serial", "stdio",
                            "-no-reboot", "-device", "isa-debug-exit,iobase=0xf4", "-drive", "file=disk,format=raw"]))
    return {**result, "exit": result["status"], "status": 0 if result["status"] == 1 else result["status"]}


@program("z3")
def z3(folder, start):
    """Eight queens."""
    queens = range(8)
    lines = [f"(declare-const q{i} Int) (assert (and (<= 0 q{i}) (< q{i} 8)))" for i in queens]
    lines += [f"(assert (not (or (= q{i} q{j}) (= (- q{i} q{j}) {j - i}) (= (- q{j} q{i}) {j - i}))))"
              for i in queens for j in queens if i < j]
    write(folder, "queens.smt2", "\n".join([*lines, "(check-sat)", f"(eval (+ {' '.join(f'q{i}' for i in queens)}))"]))
    return outcome(start(["z3", "queens.smt2"]))


@program("jq")
def jq(folder, start):
    write(folder, "data.json", json.dumps([{"id": i, "name": f"name {i * 7919 % 5003}", "tags": [i % 7, i % 11]}
                                           for i in range(20000)]))
    return outcome(start(["jq", "-S", "group_by(.tags[0]) | map({tag: .[0].tags[0], count: length, names: map(.name) | "
                          "unique | .[:3]})", "data.json"]))


@program("stress-ng", "stress-ng malloc")
def stress(folder, start):
    """Blocks of all sizes, each filled and verified, by two processes of two threads each."""
    return outcome(start(["stress-ng", "--malloc", "2", "--malloc-ops", "20000", "--malloc-bytes", "16M",
                          "--malloc-pthreads", "2", "--verify", "--no-rand-seed", "--temp-path", folder, "--log-brief",
                          "-q"]))
