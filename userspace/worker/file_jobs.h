// SPDX-License-Identifier: Apache-2.0
//
// The jobs of hands on a file that a process has mapped: which file it is, and its probes. To attach a probe, the
// kernel reads the file, which can take for ever.
#ifndef HEAPTAP_USERSPACE_WORKER_FILE_JOBS_H_
#define HEAPTAP_USERSPACE_WORKER_FILE_JOBS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bpf/unwind.h"
#include "userspace/worker/file_version.h"
#include "userspace/worker/hands_output.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

// A file that hands have looked at.
struct MappedFile {
  heaptap_file_key key = {};
  uint64_t inode_address = 0;  // bpf::Identify
  FileVersion version = {};
  // The user who may look at the process, as the folder /proc/PID shows; root if only root may. base::kUnknownUser: it
  // has ended.
  uid_t process_user = 0;
  // The owner of the file. The file system decides who that is, so for a file system in user space this is
  // `process_user`.
  uid_t owner = 0;
};

// Job::kLook answers with a MappedFile. If its question is a key, the answer is about the file with this key, which the
// process has or had mapped there. Request::descriptors: the program `identify`.

// Job::kVersion answers with the FileVersion of the file that is mapped, without opening it.

// Job::kAttach answers with links to probes, as Answer::files. Request::descriptors: the programs.
struct AttachOrder {
  FileVersion version = {};
  uint64_t inode_address = 0;
  int32_t pid = -1;             // -1: every process
  uint32_t has_many_sites = 0;  // one link to all sites, for the first program
  uint32_t identify = 0;        // index of the program `identify`
  uint32_t reserved = 0;
};
struct AttachSite {
  uint64_t offset = 0;
  uint64_t semaphore_offset = 0;
  uint32_t program = 0;  // index
  uint32_t cookie = 0;
};
std::string AttachQuestion(const AttachOrder& order, absl::Span<const AttachSite> sites);

// Each returns the end of the answer (DoHandsJob).
absl::Status Look(const Request& request, absl::Span<const int> descriptors, const HandsOutput& output);
absl::Status WriteVersion(const Request& request, const HandsOutput& output);
absl::Status Attach(const Request& request, absl::Span<const int> descriptors, const HandsOutput& output);

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_FILE_JOBS_H_
