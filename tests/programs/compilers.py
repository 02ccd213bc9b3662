# SPDX-License-Identifier: Apache-2.0
"""Compilers and build tools. Their output is compared byte for byte; programs are run."""

import os

import programs
from harness import ROOT
from program import outcome, program, write

program("gcc", "gcc")(programs.PROGRAMS["gcc"])
program("clang", "clang")(programs.PROGRAMS["clang"])


@program("g++", "g++")
def gxx(folder, start):
    """Compiles, assembles and links, each in its own process."""
    source = os.path.join(ROOT, "tests/targets/cpp_program.cc")
    return outcome(start(["g++", "-std=c++20", "-O1", "-frandom-seed=1", "-pthread", source, "-o", "out"]),
                   folder, ["out"])


@program("rustc")
def rustc(folder, start):
    write(folder, "main.rs", """
use std::collections::HashMap;
use std::thread;
fn main() {
    let map: HashMap<u64, String> = (0..50000u64).map(|i| (i * 7919 % 50021, "x".repeat((i % 60) as usize))).collect();
    let threads: Vec<_> =
        (0..4).map(|n| thread::spawn(move || (0..20000).map(|i| format!("{n} {i}")).count())).collect();
    let lines: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("{} {} {}", map.len(), map.values().map(|text| text.len()).sum::<usize>(), lines);
}
""")
    built = outcome(start(["rustc", "main.rs"]))
    return {"built": built, "main": outcome(start(["./main"]))}


@program("golang-go")
def go(folder, start):
    """With cgo, so that the program allocates with malloc too."""
    write(folder, "main.go", """package main

// #include <stdlib.h>
import "C"
import "fmt"

func main() {
	done := make(chan int)
	for n := 0; n < 4; n++ {
		go func() {
			for i := 0; i < 10000; i++ {
				C.free(C.malloc(C.size_t(i)))
			}
			done <- 1
		}()
	}
	fmt.Println(<-done + <-done + <-done + <-done)
}
""")
    env = {"GOCACHE": os.path.join(folder, "cache"), "GOFLAGS": "-mod=mod", "GO111MODULE": "off", "GOPATH": folder}
    built = outcome(start(["go", "build", "-o", "main", "main.go"], env=env))
    return {"built": built, "main": outcome(start(["./main"]))}


@program("cmake")
def cmake(folder, start):
    """Configures, generates, builds with make, and tests."""
    write(folder, "CMakeLists.txt", """
cmake_minimum_required(VERSION 3.20)
project(small C)
enable_testing()
foreach(i RANGE 1 5)
  file(WRITE ${CMAKE_BINARY_DIR}/part${i}.c "int part${i}(void) { return ${i}; }\\n")
  list(APPEND parts ${CMAKE_BINARY_DIR}/part${i}.c)
endforeach()
add_library(parts STATIC ${parts})
file(WRITE ${CMAKE_BINARY_DIR}/main.c "int part3(void); int main(void) { return part3() - 3; }\\n")
add_executable(main ${CMAKE_BINARY_DIR}/main.c)
target_link_libraries(main parts)
add_test(NAME main COMMAND main)
""")
    configured = outcome(start(["cmake", "-S", ".", "-B", "out"]), hide=[r"\([\d.]+s\)"])
    built = outcome(start(["cmake", "--build", "out"]))
    return {"configured": configured, "built": built,
            "tested": outcome(start(["ctest", "--test-dir", "out"]), hide=[r"[\d.]+ sec"])}


@program("bison")
def bison(folder, start):
    rules = "".join(f"  | 'a' '{chr(98 + i % 20)}' expression {'expression ' * (i % 4)} 'z'\n" for i in range(120))
    write(folder, "grammar.y", f"""%{{
int yylex(void);
void yyerror(const char *text);
%}}
%glr-parser
%expect-rr 600
%left '+' '-'
%left '*' '/'
%%
expression: 'n'
  | expression '+' expression
  | expression '*' expression
{rules};
""")
    return outcome(start(["bison", "-Wnone", "--defines", "-v", "grammar.y"]), folder,
                   ["grammar.tab.c", "grammar.output"])


@program("ocaml-nox")
def ocaml(folder, start):
    write(folder, "main.ml", """
let () =
  let table = Hashtbl.create 16 in
  for i = 0 to 100_000 do Hashtbl.replace table (i * 7919 mod 100_003) (String.make (i mod 60) 'x') done;
  let total = Hashtbl.fold (fun _ text sum -> sum + String.length text) table 0 in
  let list = List.sort compare (List.init 50_000 (fun i -> string_of_int (i * 31 mod 50_021))) in
  Printf.printf "%d %d %s\\n" (Hashtbl.length table) total (List.nth list 100)
""")
    return outcome(start(["ocaml", "main.ml"]))
