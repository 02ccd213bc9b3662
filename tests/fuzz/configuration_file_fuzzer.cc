// SPDX-License-Identifier: Apache-2.0
//
// A configuration file of any text: it is refused with its name and a line, or sets options within their bounds.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/fuzz/check.h"
#include "userspace/cli/words/configuration_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace heaptap::cli;

  static const int fd = memfd_create("configuration", MFD_CLOEXEC);
  static const std::string path = absl::StrCat("/proc/self/fd/", fd);
  Check(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, size, 0) == static_cast<ssize_t>(size));

  CommandLine line;
  Command command = line.AddCommand("daemon", "");
  std::vector<std::string> rules;
  int lg_sample = 19;
  bool exact = false;
  uint64_t bytes_kept = 1;
  command.Add("--rule", rules, "");
  Option rate = command.Add("--lg-sample", lg_sample, "").Range(0, 63);
  command.AddFlag("--exact", exact, "").Excludes(rate);
  command.Add("--max-bytes", bytes_kept, "").Bytes();
  absl::Status status;
  command.Runs([&] {
    status = ApplyConfigurationFile(path, command);
    return 0;
  });
  Check(line.Run({"daemon"}) == 0);
  if (!status.ok()) Check(absl::IsInvalidArgument(status) && absl::StrContains(status.message(), path));
  Check(lg_sample >= 0 && lg_sample <= 63);
  return 0;
}
