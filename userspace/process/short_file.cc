// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/short_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "userspace/base/file_descriptor.h"

namespace heaptap::process {
namespace {

// /proc/PID/cgroup is the longest of these files; the memory group is among its first lines.
constexpr size_t kMaxBytes = 8192;

}  // namespace

std::string ReadShortFile(const std::string& path) {
  const base::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[kMaxBytes];
  const ssize_t got = file.valid() ? read(file.get(), text, sizeof(text)) : -1;
  return got > 0 ? std::string(text, got) : "";
}

}  // namespace heaptap::process
