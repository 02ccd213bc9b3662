// SPDX-License-Identifier: Apache-2.0
#include "dump_name.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "process.h"
#include "system.h"

namespace heaptap {
namespace {

bool prefix_changed;
char changed_prefix[PATH_MAX];
uint64_t sequence;
uint64_t log_sequence;
uint64_t kind_sequence[256];

const char* Prefix() { return prefix_changed ? changed_prefix : ProcessConfiguration().prefix; }

// The number in "pid:[4026531836]"; 0 if it cannot be read.
uint64_t PidNamespaceInode() {
  char link[64] = {};
  constexpr char kPath[] = "/proc/self/ns/pid";
  if (SystemCall(SYS_readlink, reinterpret_cast<long>(kPath), reinterpret_cast<long>(link), sizeof(link) - 1) <= 0) {
    return 0;
  }
  uint64_t inode = 0;
  for (const char* c = link; *c != '\0'; c++) {
    if (*c >= '0' && *c <= '9') inode = inode * 10 + static_cast<uint64_t>(*c - '0');
  }
  return inode;
}

// "<prefix>[.<inode>].<pid>"; returns its length.
int Begin(DumpName* name) {
  if (ProcessConfiguration().prof_pid_namespace) {
    return snprintf(name->text, sizeof(name->text), "%s.%" PRIu64 ".%" PRIu32, Prefix(), PidNamespaceInode(),
                    ProcessId());
  }
  return snprintf(name->text, sizeof(name->text), "%s.%" PRIu32, Prefix(), ProcessId());
}

}  // namespace

bool HasDumpPrefix() { return Prefix()[0] != '\0'; }

void MakeDumpName(heaptap_dump_kind kind, DumpName* name) {
  char* end = name->text + Begin(name);
  const size_t room = static_cast<size_t>(name->text + sizeof(name->text) - end);
  const char letter = static_cast<char>(kind);
  if (kind == HEAPTAP_DUMP_FINAL) {
    snprintf(end, room, ".%" PRIu64 ".%c.heap", sequence++, letter);
  } else {
    const uint64_t number = kind_sequence[static_cast<uint8_t>(letter)]++;
    snprintf(end, room, ".%" PRIu64 ".%c%" PRIu64 ".heap", sequence++, letter, number);
  }
}

void MakeLogName(DumpName* name) {
  char* end = name->text + Begin(name);
  snprintf(end, static_cast<size_t>(name->text + sizeof(name->text) - end), ".%" PRIu64 ".json", log_sequence++);
}

void ChangePrefix(const char* prefix) {
  const size_t length = strnlen(prefix, sizeof(changed_prefix) - 1);
  memcpy(changed_prefix, prefix, length);
  changed_prefix[length] = '\0';
  prefix_changed = true;
}

}  // namespace heaptap
