// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/residency.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/process/maps.h"
#include "userspace/process/proc_files.h"
#include "userspace/process/short_file.h"

namespace heaptap::process {
namespace {

// Documentation/admin-guide/mm/pagemap.rst: a word for each page; bit 63: it is present.
constexpr uint64_t kPresent = uint64_t{1} << 63;
// Words that are read at a time: 8 MiB of a stack, the default limit.
constexpr size_t kWords = 2048;
// A larger mapping is not a stack.
constexpr uint64_t kMaxStackBytes = uint64_t{1} << 30;

// The kilobytes of a line such as "RssAnon:	     512 kB", in bytes.
uint64_t BytesOfLine(absl::string_view status, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    if (!absl::StartsWith(line, name)) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line.substr(name.size()), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    uint64_t kilobytes = 0;
    return !words.empty() && absl::SimpleAtoi(words[0], &kilobytes) ? kilobytes * 1024 : 0;
  }
  return 0;
}

std::vector<uint64_t> StackPointers(pid_t pid) {
  const std::string folder = ThreadFile(pid, "task");
  std::vector<uint64_t> pointers;
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir(folder.c_str()), closedir);
  if (tasks == nullptr) return pointers;
  while (const dirent* entry = readdir(tasks.get())) {
    if (pointers.size() == kMaxStacks) break;
    const uint64_t pointer = StackPointerIn(ReadShortFile(absl::StrCat(folder, "/", entry->d_name, "/syscall")));
    if (pointer != 0) pointers.push_back(pointer);
  }
  return pointers;
}

using Range = std::pair<uint64_t, uint64_t>;

// The mappings that hold the addresses, each once.
std::set<Range> RangesWith(absl::string_view maps, std::vector<uint64_t> addresses) {
  std::sort(addresses.begin(), addresses.end());
  std::set<Range> ranges;
  for (const absl::string_view line : absl::StrSplit(maps, '\n')) {
    const std::pair<absl::string_view, absl::string_view> words = absl::StrSplit(line, absl::MaxSplits('-', 1));
    uint64_t begin = 0;
    uint64_t end = 0;
    if (!absl::SimpleHexAtoi(words.first, &begin)) continue;
    if (!absl::SimpleHexAtoi(words.second.substr(0, words.second.find(' ')), &end)) continue;
    const auto first = std::ranges::lower_bound(addresses, begin);
    if (first != addresses.end() && *first < end) ranges.emplace(begin, end);
  }
  return ranges;
}

uint64_t PresentBytes(int pagemap, const Range& range) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (range.second - range.first > kMaxStackBytes) return 0;
  uint64_t pages = 0;
  std::vector<uint64_t> words(kWords);
  for (uint64_t at = range.first / page; at < range.second / page;) {
    const size_t wanted = std::min<uint64_t>(kWords, range.second / page - at);
    const ssize_t got =
        pread(pagemap, words.data(), wanted * sizeof(uint64_t), static_cast<off_t>(at * sizeof(uint64_t)));
    if (got <= 0) break;
    const size_t count = static_cast<size_t>(got) / sizeof(uint64_t);
    for (size_t i = 0; i < count; i++) pages += (words[i] & kPresent) != 0 ? 1 : 0;
    at += count;
  }
  return pages * page;
}

uint64_t StackBytes(pid_t pid) {
  const std::vector<uint64_t> pointers = StackPointers(pid);
  const absl::StatusOr<std::string> maps = ReadMaps(pid);
  if (pointers.empty() || !maps.ok()) return 0;
  uint64_t bytes = 0;
  AskThreads(pid, [&](pid_t thread) {
    bytes = 0;
    const base::FileDescriptor pagemap(open(ThreadFile(thread, "pagemap").c_str(), O_RDONLY | O_CLOEXEC));
    if (!pagemap.valid()) return false;
    for (const Range& range : RangesWith(*maps, pointers)) bytes += PresentBytes(pagemap.get(), range);
    return bytes > 0;
  });
  return bytes;
}

}  // namespace

uint64_t StackPointerIn(absl::string_view text) {
  // "NUMBER ARGUMENTS... SP PC", or "running".
  const std::vector<absl::string_view> words = absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  uint64_t pointer = 0;
  const bool has_one = words.size() >= 3 && absl::SimpleHexAtoi(words[words.size() - 2], &pointer);
  return has_one ? pointer : 0;
}

absl::StatusOr<profile::ResidentBytes> ReadResidency(pid_t pid) {
  std::string status;
  AskThreads(pid, [&](pid_t thread) {
    status = ReadShortFile(ThreadFile(thread, "status"));
    return absl::StrContains(status, "\nRssAnon:");  // only a process with memory has this line
  });
  if (status.empty()) return absl::NotFoundError(absl::StrCat("no process ", pid));
  profile::ResidentBytes resident = {.anonymous = BytesOfLine(status, "RssAnon:"),
                                     .files = BytesOfLine(status, "RssFile:"),
                                     .shared = BytesOfLine(status, "RssShmem:")};
  // The kernel counts the pages of each thread in batches, so the kernel's sum can lag behind.
  resident.stacks = std::min(StackBytes(pid), resident.anonymous);
  return resident;
}

}  // namespace heaptap::process
