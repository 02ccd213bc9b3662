// SPDX-License-Identifier: Apache-2.0
//
// Gets profiles to look at: from dumps, and from processes that the daemon records. Not thread-safe.
//
// A dump may come from anybody. So root's commands have dumps parsed by a process without rights (worker/dump_job.h);
// for other users, a parser has no more rights than the user who chose the file.
#ifndef HEAPTAP_USERSPACE_CLI_SUBJECTS_PROFILE_SOURCE_H_
#define HEAPTAP_USERSPACE_CLI_SUBJECTS_PROFILE_SOURCE_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/subjects/local_names.h"
#include "userspace/formats/dump_reader.h"
#include "userspace/profile/profile.h"

namespace heaptap::cli {

using formats::Dump;

// Reads a dump, from a file or from a URL (http::IsUrl): heap_v2, gperftools' form, or pprof's, with symbols or
// without, compressed with gzip or not. FailedPrecondition: it cannot be read, or is not a dump; the message names the
// file, the line and the mistake. For a URL, also the errors of FetchRemote. `threads` is for heap_v2; pprof's profiles
// always have their threads.
absl::StatusOr<Dump> ReadDump(const std::string& path, formats::ReadThreads threads = formats::ReadThreads::kSum);

// The current profile of a process that the daemon records. Errors of Client.
absl::StatusOr<profile::Profile> FetchProfile(const Client& client, pid_t pid,
                                              formats::ReadThreads threads = formats::ReadThreads::kSum);

// Like FetchProfile, with blocks by size and age, and names.
absl::StatusOr<Dump> FetchBlocks(const Client& client, pid_t pid);

// Tells which files gave no names or no lines, and which could not be fetched.
void SayMissing(const LocalNames& names);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SUBJECTS_PROFILE_SOURCE_H_
