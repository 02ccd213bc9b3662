// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/words/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/files.h"
#include "userspace/base/printable_text.h"

namespace heaptap::cli {
namespace {

absl::Status Failure(const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("cannot write ", base::Printable(path), ": ", why));
}

absl::Status WriteStdout(absl::string_view contents) {
  const bool is_written = fwrite(contents.data(), 1, contents.size(), stdout) == contents.size() && fflush(stdout) == 0;
  return is_written ? absl::OkStatus() : Failure("stdout", strerror(errno));
}

mode_t ModeOfNewFiles() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

absl::Status WriteWholeFile(const std::string& path, absl::string_view contents, Readers readers) {
  if (path == "-") return WriteStdout(contents);
  struct stat present;
  const bool is_there = lstat(path.c_str(), &present) == 0;
  if (is_there && !S_ISREG(present.st_mode)) {
    return Failure(path, "it exists and is not a regular file; use -o - for stdout");
  }
  std::string temporary = absl::StrCat(path, ".XXXXXX");
  // mkostemp creates the file with mode 0600.
  base::FileDescriptor file(mkostemp(temporary.data(), O_CLOEXEC));
  if (!file.valid()) return Failure(path, strerror(errno));
  absl::Cleanup remove = [&temporary] { unlink(temporary.c_str()); };
  // Another user's file in a shared folder could be open to all.
  const bool is_own = is_there && present.st_uid == geteuid();
  const mode_t usual = is_own ? present.st_mode & 0666 : ModeOfNewFiles();
  if (readers == Readers::kUsual && fchmod(file.get(), usual) != 0) return Failure(path, strerror(errno));
  if (const int error = base::WriteAll(file.get(), contents); error != 0) return Failure(path, strerror(error));
  // Some file systems report a lack of space only when a file is closed.
  if (close(file.Release()) != 0 && errno != EINTR) return Failure(path, strerror(errno));
  if (rename(temporary.c_str(), path.c_str()) != 0) return Failure(path, strerror(errno));
  std::move(remove).Cancel();
  return absl::OkStatus();
}

}  // namespace heaptap::cli
