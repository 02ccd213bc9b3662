// SPDX-License-Identifier: Apache-2.0
//
// What heaptap uses of the kernel: since when kernels have it, and what is lost without it.
#ifndef HEAPTAP_USERSPACE_SERVICE_KERNEL_FEATURES_H_
#define HEAPTAP_USERSPACE_SERVICE_KERNEL_FEATURES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

struct btf;

namespace heaptap::service {

struct KernelFeature {
  const char* name;
  const char* since;  // the first kernel with it, for the reader; whether it is there is tried
  enum Need { kRequired, kOptional } need;
  const char* lost;  // "without it ..."
  // What trying it takes; if that is missing, trying it says nothing.
  enum Takes { kNothing, kPrograms, kTypes } takes;
  // `types`: the kernel's; not null for those that take them.
  absl::Status (*attempt)(const btf* types);
};

struct FeatureFinding {
  std::string name;
  std::string since;
  bool required;
  std::string lost;
  absl::Status status;  // OK, or why it is missing
  bool tried;           // false: what trying it takes is missing
};

// All of them, those that others take first.
absl::Span<const KernelFeature> KernelFeatures();

// Tries each; leaves nothing behind. Those that only need more rights are PermissionDenied.
std::vector<FeatureFinding> CheckKernelFeatures(absl::Span<const KernelFeature> features = KernelFeatures());

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_KERNEL_FEATURES_H_
