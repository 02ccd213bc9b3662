// SPDX-License-Identifier: Apache-2.0
#include "allocator/profiling/dump_name.h"

#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>

#include "allocator/platform/system.h"
#include "allocator/process/process.h"

namespace heaptap {
namespace {

bool prefix_changed;
char changed_prefix[PATH_MAX];
uint64_t sequence;
uint64_t log_sequence;
uint64_t kind_sequence[256];

const char* CurrentPrefix() { return prefix_changed ? changed_prefix : ProcessConfiguration().prefix; }

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

// "<prefix>[.<inode>].<pid>"
void BeginName(DumpName* name) {
  name->Clear();
  *name << CurrentPrefix() << '.';
  if (ProcessConfiguration().prof_pid_namespace) *name << PidNamespaceInode() << '.';
  *name << uint64_t{ProcessId()};
}

}  // namespace

DumpName& DumpName::operator<<(const char* text) {
  while (*text != '\0') *this << *text++;
  return *this;
}

DumpName& DumpName::operator<<(uint64_t number) {
  char digits[kMaxDigits];
  for (const char* digit = FormatDecimal(number, digits); digit != digits + kMaxDigits; digit++) *this << *digit;
  return *this;
}

DumpName& DumpName::operator<<(char letter) {
  if (length_ < sizeof(text_) - 1) text_[length_++] = letter;
  text_[length_] = '\0';
  return *this;
}

bool HasDumpPrefix() { return CurrentPrefix()[0] != '\0'; }

void MakeDumpName(heaptap_dump_kind kind, DumpName* name) {
  BeginName(name);
  const char letter = static_cast<char>(kind);
  *name << '.' << sequence++ << '.' << letter;
  if (kind != HEAPTAP_DUMP_FINAL) *name << kind_sequence[static_cast<uint8_t>(letter)]++;
  *name << ".heap";
}

void MakeLogName(DumpName* name) {
  BeginName(name);
  *name << '.' << log_sequence++ << ".json";
}

void ChangePrefix(const char* prefix) {
  const size_t length = strnlen(prefix, sizeof(changed_prefix) - 1);
  memcpy(changed_prefix, prefix, length);
  changed_prefix[length] = '\0';
  prefix_changed = true;
}

}  // namespace heaptap
