// SPDX-License-Identifier: Apache-2.0
//
// A file that a process has mapped, or will map, as the collector knows it from what hands have seen (crews/hands.h).
// The collector itself opens no file of another process.
#ifndef HEAPTAP_USERSPACE_SPACES_SEEN_FILE_H_
#define HEAPTAP_USERSPACE_SPACES_SEEN_FILE_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/user_ids.h"
#include "userspace/bpf/books.h"
#include "userspace/worker/file_jobs.h"
#include "userspace/worker/request.h"

namespace heaptap::recording {

struct SeenFile {
  worker::MappedFile identity = {};
  worker::JobFile file = {};                              // for jobs about it
  std::shared_ptr<const base::FileDescriptor> open = {};  // of `file`, if that is an open file
  std::string name = {};                                  // for messages; may hold any byte

  // Who pays for reading it: the user whose process has mapped it; the owner, if the process has ended and the owner is
  // not root.
  uid_t payer() const {
    const bool has_ended = identity.process_user == base::kUnknownUser;
    return has_ended && identity.owner != base::kRoot ? identity.owner : identity.process_user;
  }
  // The user for whose files its readers work. A file may take over its reader, which must not see files of other users
  // then.
  uid_t user() const {
    const bool is_of_others = identity.owner != identity.process_user && identity.owner != 0;
    return is_of_others ? base::kUnknownUser : identity.process_user;
  }
};

SeenFile ToSeenFile(const worker::MappedFile& seen, pid_t pid, const elf::Mapping& mapping);

// A file that this process opens, because root has named it. NotFound: it cannot be opened.
absl::StatusOr<SeenFile> OpenOwn(const bpf::Books& books, const std::string& path);

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_SPACES_SEEN_FILE_H_
