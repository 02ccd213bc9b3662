// SPDX-License-Identifier: Apache-2.0
//
// The kernel features that heaptap uses: the first version that has each feature, and what is lost without it.
#ifndef HEAPTAP_USERSPACE_DOCTOR_KERNEL_FEATURES_H_
#define HEAPTAP_USERSPACE_DOCTOR_KERNEL_FEATURES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

struct btf;

namespace heaptap::daemon {

struct KernelFeature {
  const char* name;
  const char* since;  // the first kernel with it; for information only: each feature is tried
  enum Need { kRequired, kOptional } need;
  const char* lost;  // "without it ..."
  // What the attempt itself needs; without it, the attempt would prove nothing.
  enum Takes { kNothing, kPrograms, kTypes } takes;
  // `types`: the types of the kernel; not null for features with kTypes.
  absl::Status (*attempt)(const btf* types);
};

struct FeatureFinding {
  std::string name;
  std::string since;
  bool required;
  std::string lost;
  absl::Status status;  // OK, or the reason
  bool tried;           // false: what the attempt needs is missing
};

// All features; those that other attempts need come first.
absl::Span<const KernelFeature> KernelFeatures();

// Tries each feature; leaves nothing behind. PermissionDenied if more rights would be enough.
std::vector<FeatureFinding> CheckKernelFeatures(absl::Span<const KernelFeature> features = KernelFeatures());

}  // namespace heaptap::daemon

#endif  // HEAPTAP_USERSPACE_DOCTOR_KERNEL_FEATURES_H_
