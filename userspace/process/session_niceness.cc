// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/session_niceness.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::process {

void UseNicenessForSession() {
  if (getsid(0) != getpid()) return;
  const base::FileDescriptor file(open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return;
  const std::string niceness = absl::StrCat(getpriority(PRIO_PROCESS, 0));
  [[maybe_unused]] const ssize_t put = write(file.get(), niceness.data(), niceness.size());
}

}  // namespace heaptap::process
