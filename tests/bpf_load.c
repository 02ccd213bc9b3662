// SPDX-License-Identifier: Apache-2.0
//
// Loads each program of an eBPF object alone into this kernel.
//
//   bpf_load OBJECT [OTHER]
//
// Prints the verifier's messages and the name of each program of OBJECT that the kernel refuses. OTHER is the same
// object from another compiler; what the kernel refuses there too, because of this machine, does not count. Exit
// status: 0 if no program counts, 1 if one does or if the kernel takes none, 2 for wrong usage or a file that is no
// object.
#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_quiet;

static int print(enum libbpf_print_level level, const char* format, va_list arguments) {
  return is_quiet || level == LIBBPF_DEBUG ? 0 : vfprintf(stderr, format, arguments);
}

// The sizes that the collector sets.
static void set_sizes(struct bpf_object* object) {
  const unsigned ring_bytes = 1 << 20;
  struct bpf_map* map;
  bpf_object__for_each_map(map, object) {
    if (bpf_map__type(map) == BPF_MAP_TYPE_RINGBUF) {
      bpf_map__set_max_entries(map, ring_bytes);
    } else if (bpf_map__max_entries(map) == 0) {
      bpf_map__set_max_entries(map, 1);
    }
  }
}

static bool loads(const char* path, const char* name) {
  struct bpf_object* object = bpf_object__open_file(path, NULL);
  if (object == NULL) return false;
  struct bpf_program* program;
  bpf_object__for_each_program(program, object) {
    bpf_program__set_autoload(program, strcmp(bpf_program__name(program), name) == 0);
  }
  set_sizes(object);
  const bool is_loaded = bpf_object__load(object) == 0;
  bpf_object__close(object);
  return is_loaded;
}

int main(int count, char** words) {
  if (count != 2 && count != 3) {
    fprintf(stderr, "usage: bpf_load OBJECT [OTHER]\n");
    return 2;
  }
  libbpf_set_print(print);
  struct bpf_object* object = bpf_object__open_file(words[1], NULL);
  if (object == NULL) return 2;
  int status = 0;
  bool is_one_loaded = false;
  struct bpf_program* program;
  bpf_object__for_each_program(program, object) {
    const char* name = bpf_program__name(program);
    is_quiet = true;
    const bool is_loaded = loads(words[1], name);
    is_one_loaded |= is_loaded;
    if (is_loaded || (count == 3 && !loads(words[2], name))) continue;
    is_quiet = false;
    loads(words[1], name);
    fprintf(stderr, "%s: the kernel refuses %s\n", words[1], name);
    status = 1;
  }
  bpf_object__close(object);
  if (is_one_loaded) return status;
  fprintf(stderr, "%s: the kernel takes no program; run this as root\n", words[1]);
  return 1;
}
