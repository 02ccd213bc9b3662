# SPDX-License-Identifier: Apache-2.0
"""What real programs cost with each allocator: processor time and the largest resident process."""

import math
import os
import shutil
import statistics

import harness
from peers import PEAK_RSS, PRELOADS, RECORDED
from programs import PYTHON, SQL
from table import print_table

ROUNDS = 7

CPP = """
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>
int main() {
  std::map<std::string, std::vector<std::shared_ptr<int>>> map;
  std::unordered_map<int, std::function<int(int)>> functions;
  std::regex regex("(a|b)*c");
  std::ostringstream stream;
  for (int i = 0; i < 10; i++) map[std::to_string(i)].push_back(std::make_shared<int>(i));
  functions[1] = [&](int i) { return static_cast<int>(map.size()) + i; };
  stream << functions[1](2) << std::regex_match("aabbc", regex);
  std::cout << stream.str() << '\\n';
}
"""

OBJECTS = """
class Node:
    def __init__(self, left, right):
        self.left, self.right = left, right
def tree(depth):
    return Node(tree(depth - 1), tree(depth - 1)) if depth else None
for _ in range(6):
    tree(15)
print(sum(len(str(i) * 3) for i in range(400000)), len({str(i): [i] for i in range(300000)}))
"""

PERL = """
my %h; $h{"key$_"} = [$_, "x" x ($_ % 200)] for 1..150000;
my $n = 0; $n += length $h{$_}[1] for keys %h;
my @s = sort { $a cmp $b } keys %h; print "$n $s[0]\\n";
"""

RUBY = """
h = {}
150_000.times { |i| h["key#{i}"] = [i, "x" * (i % 200)] }
puts h.values.sum { |v| v[1].size }, (1..300_000).map(&:to_s).sort.first
"""

LUA = """
local t = {}
for i = 1, 300000 do t[i] = {i, tostring(i) .. string.rep("x", i % 100)} end
local n = 0
for _, v in ipairs(t) do n = n + #v[2] end
print(n)
"""

AWK = 'BEGIN { for (i = 0; i < 400000; i++) a["k" i] = i "x" i; for (k in a) n += length(a[k]); print n }'

# Name: command. Those of `scripts/bootstrap programs` run only where they are installed.
PROGRAMS = {
    "g++": ["g++", "-O1", "-std=c++20", "-c", "program.cc", "-o", "program.o"],
    "clang++": ["clang++", "-O1", "-std=c++20", "-c", "program.cc", "-o", "program.o"],
    "python, JSON": ["/usr/bin/python3", "-c", PYTHON],
    "python, objects": ["/usr/bin/python3", "-c", OBJECTS],
    "perl": ["perl", "-e", PERL],
    "ruby": ["ruby", "-e", RUBY],
    "lua": ["lua5.4", "-e", LUA],
    "gawk": ["gawk", AWK],
    "sqlite3": ["sqlite3", ":memory:", ".read script.sql"],
    "jq": ["jq", "map(.[0]) | add", "data.json"],
}


def prepare(folder):
    for name, text in (("program.cc", CPP), ("script.sql", SQL),
                       ("data.json", "[" + ",".join(f'[{i}, "{"x" * (i % 50)}", {{"a": {i}}}]' for i in range(120000)) + "]")):
        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
            file.write(text)


def measure(command, way, folder):
    """Seconds of processor time, MiB of the largest process, page faults: of the program, not of the collector."""
    costs = os.path.join(folder, "costs")
    if way == RECORDED:
        command = [harness.HEAPTAP, "run", "--report=never", "-o", "profile", "--", PEAK_RSS, costs, *command]
    else:
        command = [PEAK_RSS, costs, "env", f"LD_PRELOAD={PRELOADS[way]}", *command]
    process = harness.Process(command, folder)
    assert process.wait(120) == 0, f"{command}: {process.stderr()}"
    with open(costs, encoding="ascii") as file:
        kib, microseconds, faults = map(int, file.read().splitlines()[-1].split())
    return microseconds / 1e6, kib / 2**10, faults


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def programs(folder):
    prepare(folder)
    ways = [*PRELOADS, RECORDED]
    present = {name: command for name, command in PROGRAMS.items() if shutil.which(command[0])}
    runs = {name: {way: [] for way in ways} for name in present}
    for _ in range(ROUNDS):
        for name, command in present.items():
            for way in ways:
                runs[name][way].append(measure(command, way, folder))
    medians = {name: {way: [statistics.median(one[i] for one in runs[name][way]) for i in range(3)] for way in ways}
               for name in present}
    for i, title in enumerate(("processor time", "largest resident process")):
        ratios = {name: {way: medians[name][way][i] / medians[name]["glibc"][i] for way in ways} for name in present}
        rows = [(name, [f"{medians[name]['glibc'][i]:.2f}", *(f"{ratios[name][way]:.2f}" for way in ways[1:])])
                for name in present]
        rows.append(("geometric mean", ["", *(f"{geometric_mean([ratios[name][way] for name in present]):.3f}"
                                              for way in ways[1:])]))
        print_table(f"Programs, {title}: times glibc's, median of {ROUNDS}",
                    ["glibc, " + ("s", "MiB")[i], *ways[1:]], rows)
    print_table("Programs, page faults", ways,
                [(name, [f"{medians[name][way][2]:.0f}" for way in ways]) for name in present])
    missing = [name for name in PROGRAMS if name not in present]
    if missing:
        print(f"  not installed (scripts/bootstrap programs): {', '.join(missing)}")
    return {"medians": medians, "all": runs}
