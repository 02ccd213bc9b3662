// SPDX-License-Identifier: Apache-2.0
#include "userspace/spaces/seen_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "userspace/bpf/identify.h"

namespace heaptap::recording {

SeenFile ToSeenFile(const worker::MappedFile& seen, pid_t pid, const elf::Mapping& mapping) {
  return {.identity = seen,
          .file = {.pid = pid, .mapping = mapping, .version = seen.version},
          .open = {},
          .name = mapping.path};
}

absl::StatusOr<SeenFile> OpenOwn(const bpf::Books& books, const std::string& path) {
  auto file = std::make_shared<const base::FileDescriptor>(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (!file->valid() || fstat(file->get(), &status) != 0) {
    return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ", strerror(errno)));
  }
  const absl::StatusOr<heaptap_identify> found = bpf::Identify(books.program(bpf::Program::kIdentify), file->get());
  if (!found.ok()) return found.status();
  return SeenFile{.identity = {.key = found->file,
                               .inode_address = found->inode_address,
                               .version = worker::ToVersion(status),
                               .process_user = 0,
                               .owner = status.st_uid},
                  .file = {.fd = file->get()},
                  .open = file,
                  .name = path};
}

}  // namespace heaptap::recording
