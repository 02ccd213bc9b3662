// SPDX-License-Identifier: Apache-2.0
//
// Builds the samples of one process from the kernel's record of the latest samples.
#ifndef HEAPTAP_USERSPACE_PROFILES_RECORD_BUILDER_H_
#define HEAPTAP_USERSPACE_PROFILES_RECORD_BUILDER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "userspace/bpf/entries.h"
#include "userspace/profile/sample_record.h"
#include "userspace/profiles/profile_builder.h"

namespace heaptap::recording {

// The latest samples of the process that are still in the record, at most `count`. `name_living`: as for ThreadNames.
absl::StatusOr<profile::SampleRecords> BuildRecords(const bpf::Entries& entries, const ProfileSubject& subject,
                                                    uint64_t count, const NameLiving& name_living);

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_PROFILES_RECORD_BUILDER_H_
