// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/memory_use.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/process/memory_group.h"

namespace heaptap::process {
namespace {

// The list of control groups is the longest of these files; the memory group is among its first lines.
constexpr size_t kMaxBytes = 8192;

// Version 1 says "no limit" with the greatest multiple of a page.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::string ReadShort(const std::string& path) {
  const base::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[kMaxBytes];
  const ssize_t got = file.valid() ? read(file.get(), text, sizeof(text)) : -1;
  return got > 0 ? std::string(text, got) : "";
}

int64_t ResidentBytes(pid_t pid) {
  const std::string text = ReadShort(absl::StrCat("/proc/", pid, "/statm"));
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  int64_t pages = 0;
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &pages)) return -1;
  return pages * sysconf(_SC_PAGESIZE);
}

int64_t LimitBytes(pid_t pid) {
  const std::string folder = MemoryGroupFolder(ReadShort(absl::StrCat("/proc/", pid, "/cgroup")));
  if (folder.empty()) return -1;
  for (const char* file : {"/memory.max", "/memory.limit_in_bytes"}) {
    int64_t limit = 0;
    if (absl::SimpleAtoi(ReadShort(absl::StrCat(folder, file)), &limit) && limit > 0 && limit < kNoLimit) return limit;
  }
  return -1;
}

}  // namespace

MemoryUse ReadMemoryUse(pid_t pid) { return {.resident_bytes = ResidentBytes(pid), .limit_bytes = LimitBytes(pid)}; }

}  // namespace heaptap::process
