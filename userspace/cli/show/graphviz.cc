// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/show/graphviz.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::cli {
namespace {

absl::Status Failure(const char* what, int error) {
  return absl::FailedPreconditionError(absl::StrCat("cannot draw with graphviz: ", what, ": ", strerror(error)));
}

bool WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = pwrite(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) done += static_cast<size_t>(count);
  }
  return true;
}

}  // namespace

absl::StatusOr<std::string> DrawWithGraphviz(const std::string& graph, const char* format) {
  // Files in memory: with two pipes, each side could wait for the other.
  const base::FileDescriptor input(memfd_create("graph", MFD_CLOEXEC));
  const base::FileDescriptor output(memfd_create("picture", MFD_CLOEXEC));
  if (!input.valid() || !output.valid() || !WriteAll(input.get(), graph)) return Failure("memory", errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const absl::Cleanup destroy = [&actions] { posix_spawn_file_actions_destroy(&actions); };
  posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.get(), STDOUT_FILENO);
  std::string option = absl::StrCat("-T", format);
  char program[] = "dot";
  char* const arguments[] = {program, option.data(), nullptr};
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, program, &actions, nullptr, arguments, environ);
  if (error == ENOENT) {
    return absl::NotFoundError(
        "there is no program dot; install graphviz (apt-get install graphviz), or use --dot or --svg");
  }
  if (error != 0) return Failure("dot", error);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  struct stat size = {};
  if (status != 0 || fstat(output.get(), &size) != 0 || size.st_size == 0) {
    return absl::FailedPreconditionError("cannot draw with graphviz: dot has failed");
  }
  std::string picture(static_cast<size_t>(size.st_size), '\0');
  for (size_t done = 0; done < picture.size();) {
    const ssize_t count = pread(output.get(), picture.data() + done, picture.size() - done, static_cast<off_t>(done));
    if (count <= 0) return Failure("memory", errno);
    done += static_cast<size_t>(count);
  }
  return picture;
}

}  // namespace heaptap::cli
