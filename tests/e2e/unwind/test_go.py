# SPDX-License-Identifier: Apache-2.0
"""Go calls C on another stack than its own: a call path leads from the allocation in C to the callers in Go.

Every allocation is a sample. The counts are exact. A raw stack holds only one of the two stacks, so the program waits until
the unwind tables are loaded.
"""

import pytest

import go_programs
import symbols
from loader import settle

BLOCKS = {"from_main": 500, "from_a_goroutine": 300, "from_c": 200}
SOURCE = """
package main

/*
#include <stdlib.h>
#define KEEP __asm__ volatile("" ::: "memory")
extern void backInGo(int);
static __attribute__((noinline)) void keep_blocks(int n) {
  for (int i = 0; i < n; i++) { void* block = malloc(100); __asm__ volatile("" :: "r"(block) : "memory"); }
}
static __attribute__((noinline)) void warm_up(void) { free(malloc(100)); KEEP; }
static __attribute__((noinline)) void through_c(int n) { backInGo(n); KEEP; }
*/
import "C"
import "fmt"
import "sync"

//go:noinline
func keep(n C.int) { C.keep_blocks(n) }

//export backInGo
func backInGo(n C.int) { from_c(n) }

//go:noinline
func from_c(n C.int) { keep(n) }

//go:noinline
func from_main() { keep(FROM_MAIN) }

//go:noinline
func from_a_goroutine() { keep(FROM_A_GOROUTINE) }

func main() {
	C.warm_up()
	fmt.Println("ready")
	fmt.Scanln()
	from_main()
	var all sync.WaitGroup
	all.Add(1)
	go func() { defer all.Done(); from_a_goroutine() }()
	all.Wait()
	C.through_c(FROM_C)
}
"""


def source():
    text = SOURCE
    for name, blocks in BLOCKS.items():
        text = text.replace(name.upper(), str(blocks))
    return text


@pytest.mark.parametrize("arguments", [(), ("-ldflags=-compressdwarf=false",), ("-buildmode=pie",)], ids=["plain", "debug-frame", "pie"])
def test_callers_in_go(lab, arguments):
    program = go_programs.built(lab.folder, source(), *arguments, with_c=True)
    session = lab.heaptap("run", "--exact", "--", program, talks=True)
    assert session.answer() == "ready"
    settle(session)
    session.tell("go")
    session.ends()
    dump = lab.only_dump(kind="f")
    found = {}
    for stack in symbols.stacks_through(dump, "keep_blocks"):
        names = symbols.names(dump, stack)
        assert "main.keep" in names, names
        callers = [name.removeprefix("main.") for name in names if name and name.removeprefix("main.") in BLOCKS]
        found[callers[0] if callers else None] = found.get(callers[0] if callers else None, 0) + stack.total.objects
    assert found == BLOCKS
