// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/memory_use.h"

#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/process/memory_group.h"
#include "userspace/process/proc_files.h"
#include "userspace/process/short_file.h"

namespace heaptap::process {
namespace {

// Version 1 says "no limit" with the greatest multiple of a page.
constexpr int64_t kNoLimit = int64_t{1} << 60;

int64_t LimitBytes(pid_t pid) {
  const std::string folder = MemoryGroupFolder(pid);
  if (folder.empty()) return -1;
  for (const char* file : {"/memory.max", "/memory.limit_in_bytes"}) {
    int64_t limit = 0;
    if (absl::SimpleAtoi(ReadShortFile(absl::StrCat(folder, file)), &limit) && limit > 0 && limit < kNoLimit)
      return limit;
  }
  return -1;
}

// In bytes.
struct Statm {
  int64_t resident;
  int64_t shared;  // with files, and with other processes
};
// None: a process that is ending or has ended has no address space. Its resident size is then 0 too, which says nothing
// about the memory that it held.
std::optional<Statm> ReadStatm(pid_t pid) {
  Statm pages = {};
  const bool has_memory = AskThreads(pid, [&](pid_t thread) {
    const std::string text = ReadShortFile(ThreadFile(thread, "statm"));
    const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
    return words.size() >= 3 && words[0] != "0" && absl::SimpleAtoi(words[1], &pages.resident) &&
           absl::SimpleAtoi(words[2], &pages.shared);
  });
  if (!has_memory) return std::nullopt;
  const int64_t page = sysconf(_SC_PAGESIZE);
  return Statm{.resident = pages.resident * page, .shared = pages.shared * page};
}

}  // namespace

int64_t ResidentBytes(pid_t pid) {
  const std::optional<Statm> statm = ReadStatm(pid);
  return statm.has_value() ? statm->resident : -1;
}

int64_t AnonymousBytes(pid_t pid) {
  const std::optional<Statm> statm = ReadStatm(pid);
  return statm.has_value() ? statm->resident - statm->shared : -1;
}

MemoryUse ReadMemoryUse(pid_t pid) { return {.resident_bytes = ResidentBytes(pid), .limit_bytes = LimitBytes(pid)}; }

}  // namespace heaptap::process
