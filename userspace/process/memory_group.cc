// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/memory_group.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/process/proc_files.h"

namespace heaptap::process {
namespace {

constexpr absl::string_view kRoot = "/sys/fs/cgroup";
constexpr absl::string_view kController = "memory";
// A path of up to PATH_MAX for each hierarchy. There are at most a dozen hierarchies, and a few named ones.
constexpr size_t kMaxGroupBytes = size_t{16} * 4096;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string MemoryGroupFolder(absl::string_view text) {
  std::string folder;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    // Version 1 has lines like "4:memory:/path", version 2 has "0::/path".
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || absl::StartsWith(parts[2], "/..")) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), kController) != controllers.end()) {
      return absl::StrCat(kRoot, "/", kController, parts[2]);
    }
    if (parts[0] == "0" && parts[1].empty()) folder = absl::StrCat(kRoot, parts[2]);
  }
  return folder;
}

std::string MemoryGroupFolder(pid_t pid) {
  return MemoryGroupFolder(ReadProcFile(pid, "cgroup", kMaxGroupBytes).value_or(""));
}

absl::Status JoinMemoryGroup(pid_t pid) {
  const std::string folder = MemoryGroupFolder(pid);
  if (folder.empty())
    return absl::PermissionDeniedError(
        absl::StrCat("the memory control group of process ", pid, " is not visible here"));
  if (folder == MemoryGroupFolder(ReadText("/proc/self/cgroup"))) return absl::OkStatus();
  const base::FileDescriptor members(open(absl::StrCat(folder, "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  // 0 stands for the writer.
  if (!members.valid() || write(members.get(), "0", 1) != 1) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot join ", folder));
  }
  return absl::OkStatus();
}

}  // namespace heaptap::process
