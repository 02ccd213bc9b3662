# SPDX-License-Identifier: Apache-2.0
"""Interpreters, each with a script that fills maps and lists, joins texts, and starts threads if the language has them."""

import programs
from program import outcome, program, write

program("python3", "python3")(programs.PROGRAMS["python3"])


# Without heaptap too.
PHP = dict.fromkeys(("jemalloc", "tcmalloc", "mimalloc"), "php ends with SIGSEGV when such a library is preloaded")


def script(package, *command, name, text, not_over=None):
    """Runs an interpreter with a script as its last argument."""
    def run(folder, start):
        write(folder, "script", text)
        return outcome(start([*command, "script"]))
    program(package, name, not_over=not_over)(run)


@program("libpython3.11-testsuite|libpython3.13-testsuite", "python3 -m test")
def python_tests(folder, start):
    """Python's own tests of modules that allocate a lot, and of extensions in C. The seed: 3.13 draws and prints one."""
    return outcome(start(["python3", "-m", "test", "-q", "--randseed=1", "test_ctypes", "test_struct", "test_thread"]),
                   hide=[r"[\d.]+ (?:sec|ms|min).*", r"^\d+:\d+:\d+ load avg: [\d.]+", r"^Total duration: .*"])


script("perl", "perl", name="perl", text=r"""
use strict; use threads;
my %count;
$count{$_ * 7919 % 20011} .= "x" x ($_ % 50) for 1 .. 30000;
my @sorted = sort { length $count{$b} <=> length $count{$a} || $a <=> $b } keys %count;
print scalar(@sorted), " @sorted[0 .. 4]\n";
my $text = join " ", map { "word$_" } @sorted;
$text =~ s/(\d)(\d)/$2$1/g;
print length $text, " ", unpack("%32C*", $text), "\n";
my @threads = map { my $n = $_; threads->create(sub { my @list = map { "$n $_" } 1 .. 5000; scalar @list }) } 1 .. 4;
print join(" ", map { $_->join } @threads), "\n";
my $pid = fork // die; exit 3 if !$pid; waitpid $pid, 0; print $? >> 8, "\n";
""")

script("ruby", "ruby", name="ruby", text=r"""
require 'json'; require 'set'
map = (1..30_000).to_h { |i| [(i * 7919 % 100_003).to_s, 'x' * (i % 60)] }
puts JSON.parse(JSON.generate(map)) == map, map.values.sum(&:size)
puts Set.new(map.keys.map { |key| key[-3..] }).size
GC.compact; GC.start
puts (1..4).map { |n| Thread.new { (1..5_000).map { |i| "#{n} #{i}" }.join.size } }.sum(&:value)
puts IO.popen(['echo', 'child']).read
""")

script("php-cli", "php", name="php", not_over=PHP, text=r"""<?php
ini_set('memory_limit', '1G');
$map = [];
for ($i = 0; $i < 100000; $i++) $map[($i * 7919) % 100003] = str_repeat('x', $i % 60);
ksort($map);
echo count($map), ' ', crc32(json_encode($map)), "\n";
echo count(array_unique(array_map('strlen', $map))), ' ', md5(serialize($map)), "\n";
$text = preg_replace_callback('/\d+/', fn($m) => strrev($m[0]), implode(' ', array_keys($map)));
echo strlen(gzcompress($text)) > 0, ' ', md5($text), "\n";
""")

script("nodejs", "node", name="node", text=r"""
const { Worker, isMainThread, parentPort } = require('worker_threads');
function work(n) {
  const map = new Map();
  for (let i = 0; i < 20000; i++) map.set(String(i * 7919 % 100003), Buffer.alloc(i % 300, n));
  let sum = 0;
  for (const value of map.values()) sum += value.reduce((a, b) => a + b, 0);
  return sum;
}
if (isMainThread) {
  console.log(work(1), require('zlib').gzipSync('heap'.repeat(100000)).length);
  for (let i = 0; i < 2; i++) new Worker(__filename).on('message', sum => console.log(sum));
} else {
  parentPort.postMessage(work(2));
}
""")

script("lua5.4", "lua5.4", name="lua", text=r"""
local map = {}
for i = 1, 50000 do map[i * 7919 % 200003] = string.rep("x", i % 60) .. i end
local list = {}
for _, text in pairs(map) do list[#list + 1] = text end
table.sort(list)
print(#list, list[1], list[#list], #table.concat(list))
map, list = nil, nil
collectgarbage()
""")

script("tcl", "tclsh", name="tclsh", text=r"""
for {set i 0} {$i < 60000} {incr i} { dict set map [expr {$i * 7919 % 100003}] [string repeat x [expr {$i % 60}]] }
set list [lsort -integer [dict keys $map]]
puts "[llength $list] [lindex $list 77] [string length [join [dict values $map] { }]]"
puts [regsub -all {(\d)(\d)} [lrange $list 0 20] {\2\1}]
""")

script("r-base-core", "Rscript", name="Rscript", text=r"""
set.seed(1)
x <- matrix(rnorm(90000), 300)
print(round(sum(solve(x) %*% x), 3))
words <- paste0("word", sample(50000) %% 1000)
print(head(sort(table(words), decreasing = TRUE), 3))
fit <- lm(y ~ a + b, data.frame(a = 1:2000, b = rnorm(2000), y = rnorm(2000)))
print(length(coef(fit)))
l <- lapply(1:20000, function(i) list(i, as.character(i)))
print(length(unlist(l)))
""")

script("guile-3.0", "guile", "--no-auto-compile", name="guile", text=r"""
(use-modules (ice-9 threads) (ice-9 regex))
(define table (make-hash-table))
(do ((i 0 (+ i 1))) ((= i 60000)) (hash-set! table (modulo (* i 7919) 100003) (make-string (modulo i 60) #\x)))
(display (hash-fold (lambda (key value sum) (+ sum key (string-length value))) 0 table)) (newline)
(display (apply + (par-map (lambda (n) (length (map number->string (iota 20000)))) (iota 4)))) (newline)
(display (expt 7 1000)) (newline)
(display (regexp-substitute/global #f "[0-9]+" "a1b22c333" 'pre "#" 'post)) (newline)
""")

script("gawk", "gawk", "-f", name="gawk", text=r"""
BEGIN {
  for (i = 0; i < 200000; i++) map[i * 7919 % 200003] = sprintf("%0*d", i % 60, i)
  for (key in map) sum += length(map[key])
  n = asorti(map, sorted)
  print n, sum, sorted[1], sorted[n]
  while (("seq 20000" | getline line) > 0) total += line
  print total
}
""")

script("bash", "bash", name="bash", text=r"""
declare -A map
for ((i = 0; i < 5000; i++)); do map[$((i * 7919 % 100003))]="text $i"; done
echo "${#map[@]} ${map[7919]}"
for ((i = 0; i < 20; i++)); do echo "$(printf '%s\n' "${!map[@]}" | sort -n | tail -1) $i"; done
text="${map[*]}"
echo "${#text} ${text//[0-9]/}" | md5sum
""")


@program("openjdk-17-jdk-headless|openjdk-21-jdk-headless")
def java(folder, start):
    """Compiled and run at once, with threads and direct buffers."""
    write(folder, "Main.java", r"""
import java.nio.ByteBuffer;
import java.util.*;
import java.util.stream.*;
import java.util.zip.*;
public class Main {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> map = new TreeMap<>();
    for (int i = 0; i < 100000; i++) map.put("key" + i * 7919 % 100003, "x".repeat(i % 60));
    System.out.println(map.values().stream().mapToInt(String::length).sum());
    List<ByteBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < 1000; i++) buffers.add(ByteBuffer.allocateDirect(1000 + i));
    System.out.println(buffers.stream().mapToInt(ByteBuffer::capacity).sum());
    System.out.println(IntStream.range(0, 100).parallel().map(i -> {
      Deflater deflater = new Deflater();
      deflater.setInput(new byte[10000 + i]);
      deflater.finish();
      int size = deflater.deflate(new byte[20000]);
      deflater.end();
      return size > 0 ? 1 : 0;
    }).sum());
  }
}
""")
    return outcome(start(["java", "-Xmx256m", "Main.java"]))
