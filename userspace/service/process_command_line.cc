// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/process_command_line.h"

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/elf/file_descriptor.h"
#include "userspace/symbolize/confined.h"

namespace heaptap::service {
namespace {

// The kernel allows two megabytes and more; the beginning is enough for people.
constexpr size_t kMaxBytes = 16 << 10;

bool Copy(int fd, const symbolize::Confined& confined) {
  if (!confined.Seal()) return false;
  char bytes[kMaxBytes];
  const ssize_t got = read(fd, bytes, sizeof(bytes));
  if (got > 0) confined.Write(absl::string_view(bytes, got));
  return got >= 0;
}

}  // namespace

std::vector<std::string> ProcessCommandLine(pid_t pid) {
  const elf::FileDescriptor file(open(absl::StrCat("/proc/", pid, "/cmdline").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
  const symbolize::Limits limits = {.time = absl::Seconds(2), .memory_bytes = 16 << 20, .answer_bytes = kMaxBytes};
  const symbolize::Answer answer = symbolize::RunConfined(
      limits, file.get(), [&](const symbolize::Confined& confined) { return Copy(file.get(), confined); });
  if (answer.bytes.empty()) return {};
  return absl::StrSplit(absl::StripSuffix(answer.bytes, absl::string_view("\0", 1)), '\0');
}

}  // namespace heaptap::service
