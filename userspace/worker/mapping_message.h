// SPDX-License-Identifier: Apache-2.0
//
// A mapping in the messages of workers. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_WORKER_MAPPING_MESSAGE_H_
#define HEAPTAP_USERSPACE_WORKER_MAPPING_MESSAGE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/elf/mappings.h"

namespace heaptap::worker {

std::string Encode(const elf::Mapping& mapping);

// The bytes may be hostile, and so may the result. InvalidArgument: they are not such a message.
absl::StatusOr<elf::Mapping> DecodeMapping(absl::string_view bytes);

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_MAPPING_MESSAGE_H_
