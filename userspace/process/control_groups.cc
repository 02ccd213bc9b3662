// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/control_groups.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/base/printable_text.h"

namespace heaptap::process {
namespace {

absl::Status Wrong(absl::string_view path, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--cgroup ", base::Printable(path), ": ", why,
                   "; expected the folder of a control group of version 2, such as /sys/fs/cgroup/system.slice"));
}

// Whether `path` is `parent`, or lies below it.
bool IsBelow(absl::string_view path, absl::string_view parent) {
  if (parent == "/") parent = "";
  return absl::ConsumePrefix(&path, parent) && (path.empty() || path.front() == '/');
}

bool IsUnified(const std::string& path) {
  struct statfs status;
  return statfs(path.c_str(), &status) == 0 && status.f_type == CGROUP2_SUPER_MAGIC;
}

// The kernel writes white space and backslashes in /proc/self/mountinfo as octal numbers.
std::string Unescaped(absl::string_view word) {
  std::string text;
  return absl::CUnescape(word, &text) ? text : std::string(word);
}

std::string ReadMounts() {
  std::ostringstream text;
  text << std::ifstream("/proc/self/mountinfo").rdbuf();
  return text.str();
}

}  // namespace

std::optional<std::string> GroupPathOf(absl::string_view folder, absl::string_view mounts) {
  std::optional<std::string> path;
  size_t longest = 0;
  for (const absl::string_view line : absl::StrSplit(mounts, '\n', absl::SkipEmpty())) {
    // "ID PARENT DEVICE ROOT MOUNT-POINT OPTIONS [FIELD...] - TYPE SOURCE OPTIONS" (proc_pid_mountinfo(5))
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    const auto separator = std::find(words.begin(), words.end(), "-");
    if (std::distance(words.begin(), separator) < 6 || std::distance(separator, words.end()) < 2) continue;
    const std::string root = Unescaped(words[3]);
    const std::string mount_point = Unescaped(words[4]);
    if (separator[1] != "cgroup2" || !IsBelow(folder, mount_point) || mount_point.size() < longest) continue;
    longest = mount_point.size();
    const absl::string_view below = mount_point == "/" ? folder : folder.substr(mount_point.size());
    path = absl::StrCat(root == "/" ? "" : root, below);
    if (path->empty()) path = "/";
  }
  return path;
}

absl::StatusOr<ControlGroups::Group> ControlGroups::OpenOne(const std::string& folder) {
  Group group = {.folder = folder,
                 .fd = base::FileDescriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC))};
  if (!group.fd.valid()) {
    if (errno != ENOENT) return Wrong(folder, strerror(errno));
    // A typing error is more likely than a file system that will be mounted here.
    std::filesystem::path parent = folder;
    std::error_code error;
    while (!std::filesystem::exists(parent, error) && parent.has_relative_path()) parent = parent.parent_path();
    return IsUnified(parent) ? absl::StatusOr<Group>(std::move(group)) : Wrong(folder, strerror(ENOENT));
  }
  struct statfs system;
  struct stat status;
  if (fstatfs(group.fd.get(), &system) != 0 || fstat(group.fd.get(), &status) != 0) {
    return Wrong(folder, strerror(errno));
  }
  if (system.f_type == CGROUP_SUPER_MAGIC) return Wrong(folder, "it is a control group of version 1");
  if (system.f_type != CGROUP2_SUPER_MAGIC) return Wrong(folder, "it is no control group");
  std::optional<std::string> path = GroupPathOf(folder, ReadMounts());
  if (!path.has_value()) return Wrong(folder, "/proc/self/mountinfo does not show where it is mounted");
  group.inode = status.st_ino;
  group.path = *std::move(path);
  return group;
}

absl::StatusOr<ControlGroups> ControlGroups::Open(absl::Span<const std::string> paths, size_t most) {
  std::vector<std::string> folders;
  for (const std::string& path : paths) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::weakly_canonical(path, error);
    if (path.empty() || path.front() != '/' || error) return Wrong(path, "it is no path from the root");
    folders.push_back(folder.string());
    if (folders.back().size() > 1 && folders.back().back() == '/') folders.back().pop_back();
  }
  std::sort(folders.begin(), folders.end());
  ControlGroups groups;
  for (const std::string& folder : folders) {
    const bool is_covered =
        std::ranges::any_of(groups.groups_, [&](const Group& group) { return IsBelow(folder, group.folder); });
    if (is_covered) continue;
    absl::StatusOr<Group> group = OpenOne(folder);
    if (!group.ok()) return group.status();
    groups.groups_.push_back(*std::move(group));
  }
  if (groups.groups_.size() > most) {
    return absl::InvalidArgumentError(absl::StrCat("--cgroup is given for ", groups.groups_.size(),
                                                   " control groups, but at most ", most,
                                                   " are allowed; name a group above them"));
  }
  return groups;
}

std::vector<int> ControlGroups::fds() const {
  std::vector<int> fds;
  for (const Group& group : groups_) fds.push_back(group.fd.get());
  return fds;
}

std::vector<std::string> ControlGroups::Missing() const {
  std::vector<std::string> missing;
  for (const Group& group : groups_) {
    if (!group.fd.valid()) missing.push_back(group.folder);
  }
  return missing;
}

bool ControlGroups::Contain(absl::string_view path) const {
  return std::ranges::any_of(groups_,
                             [&](const Group& group) { return group.fd.valid() && IsBelow(path, group.path); });
}

std::vector<ControlGroups::Change> ControlGroups::Refresh() {
  replaced_.clear();
  std::vector<Change> changes;
  for (Group& group : groups_) {
    struct stat status;
    if (stat(group.folder.c_str(), &status) != 0 || status.st_ino == group.inode) continue;
    absl::StatusOr<Group> made = OpenOne(group.folder);
    if (!made.ok() || !made->fd.valid()) continue;  // gone again
    changes.push_back({.before = group.fd.get(), .now = made->fd.get()});
    replaced_.push_back(std::move(group.fd));
    group = *std::move(made);
  }
  return changes;
}

}  // namespace heaptap::process
