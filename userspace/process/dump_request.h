// SPDX-License-Identifier: Apache-2.0
//
// The collector's side of a dump request (struct heaptap_dump_request in contract.h).
//
// The process opens the file; the collector copies its descriptors and checks them before use: a regular file that is
// open for writing, and an eventfd. Not thread safe.
#ifndef HEAPTAP_USERSPACE_PROCESS_DUMP_REQUEST_H_
#define HEAPTAP_USERSPACE_PROCESS_DUMP_REQUEST_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bpf/events.h"
#include "heaptap/contract.h"
#include "userspace/process/handle.h"
#include "userspace/profile/profile.h"

namespace heaptap::process {

// The request as it was when the process fired heaptap:dump, from an event of kind DUMP or RESET.
heaptap_dump_request RequestOf(const heaptap_event& event);

// Reads the request at `address`. InvalidArgument if it is malformed. AlreadyExists: it has been answered.
absl::StatusOr<heaptap_dump_request> ReadDumpRequest(const Handle& process, uint64_t address);

// Writes the dump and answers. For a file that lies in memory the caller joins the process's memory control group and
// stays in it, so the caller should be a child that ends afterwards. `is_current`: whether the process still runs the
// program that asked. It is called after the descriptors have been copied: shared memory survives an exec, but
// descriptors copied after it are another program's. If the file is unusable, the process gets an error as its answer.
// The returned status is for the collector's own log.
absl::Status AnswerWithDump(const Handle& process, uint64_t address, const heaptap_dump_request& request,
                            absl::string_view contents, const profile::LeakSummary& leaks,
                            absl::FunctionRef<bool()> is_current);

// Answers with an errno value.
absl::Status AnswerWithError(const Handle& process, uint64_t address, const heaptap_dump_request& request, int error);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_DUMP_REQUEST_H_
