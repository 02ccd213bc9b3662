/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code generated at run time, without unwind tables: jit WHAT COUNT calls malloc(64) COUNT times through main() ->
 * call_jit() -> generated code -> call_back() -> malloc. WHAT is the value of RBP in the generated code:
 *
 *   frame      its frame pointer
 *   own        its caller's: it does not touch RBP
 *   small      1
 *   unmapped   an unmapped address
 *   mine       an address on the stack without a frame
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NOINLINE __attribute__((noinline, noclone))

static void* volatile kept;
static char* code;

NOINLINE void call_back(void) { kept = malloc(64); }

NOINLINE void call_jit(void) {
  volatile uintptr_t local[64];
  memset((void*)local, 0, sizeof local);
  ((void (*)(volatile uintptr_t*))(uintptr_t)code)(local);
  local[0] = 0;
}

static void emit(const char* bytes, size_t count) {
  memcpy(code, bytes, count);
  code += count;
}

static void emit_address(uintptr_t address) { emit((char*)&address, sizeof address); }

static void make(const char* what) {
  void (*target)(void) = call_back;
  emit("\x55", 1); /* push %rbp */
  if (strcmp(what, "frame") == 0) {
    emit("\x48\x89\xe5", 3); /* mov %rsp, %rbp */
  } else if (strcmp(what, "mine") == 0) {
    emit("\x48\x89\xfd", 3); /* mov %rdi, %rbp */
  } else if (strcmp(what, "own") != 0) {
    emit("\x48\xbd", 2); /* movabs ..., %rbp */
    emit_address(strcmp(what, "small") == 0 ? 1 : 0x600000000000);
  }
  emit("\x48\xb8", 2); /* movabs ..., %rax */
  emit_address((uintptr_t)target);
  emit("\xff\xd0\x5d\xc3", 4); /* call *%rax; pop %rbp; ret */
}

int main(int argc, char** argv) {
  static char output[BUFSIZ];
  setvbuf(stdout, output, _IOFBF, sizeof output);
  if (argc < 3) return 1;
  char* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 1;
  code = page;
  make(argv[1]);
  code = page;
  if (mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0) return 1;
  for (long i = 0; i < atol(argv[2]); i++) call_jit();
  printf("done\n");
  return 0;
}
