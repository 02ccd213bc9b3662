// SPDX-License-Identifier: Apache-2.0
//
// The collector's side of a dump that the process asks for (struct heaptap_dump_request in contract.h).
//
// The process opened the file; only descriptors change hands. They are checked before they are used: a regular file
// open for writing, a real eventfd. Not thread safe.
#ifndef HEAPTAP_USERSPACE_SERVICE_DUMP_REQUEST_H_
#define HEAPTAP_USERSPACE_SERVICE_DUMP_REQUEST_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bpf/events.h"
#include "heaptap/contract.h"
#include "userspace/profile/profile.h"
#include "userspace/service/process_handle.h"

namespace heaptap::service {

// The request as it was when the process fired heaptap:dump: what an event of kind DUMP or RESET has of it.
heaptap_dump_request AskedBy(const heaptap_event& event);

// Reads the request at `address`. InvalidArgument if it makes no sense.
absl::StatusOr<heaptap_dump_request> ReadDumpRequest(const ProcessHandle& process, uint64_t address);

// Writes the dump and answers. Into a file that lies in memory it is written as a member of the process's memory
// control group, which the calling process stays in: it should be a child that ends then. `is_current`: whether the
// process still runs the program that asked; asked once the descriptors are taken, since a memory that somebody else
// uses too outlives an exec, and descriptors taken after it are another program's. The process gets an answer in each
// case that leaves it reachable: if the file is not good, an error. The returned status is for the collector's own log.
absl::Status AnswerWithDump(const ProcessHandle& process, uint64_t address, const heaptap_dump_request& request,
                            absl::string_view contents, const profile::LeakSummary& leaks,
                            absl::FunctionRef<bool()> is_current);

// Answers with an errno value.
absl::Status AnswerWithError(const ProcessHandle& process, uint64_t address, const heaptap_dump_request& request,
                             int error);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_DUMP_REQUEST_H_
