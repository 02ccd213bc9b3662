// SPDX-License-Identifier: Apache-2.0
//
// Plain values as the bytes of questions and answers: both ends are the same program. Thread-safe.
#ifndef HEAPTAP_USERSPACE_WORKER_PLAIN_BYTES_H_
#define HEAPTAP_USERSPACE_WORKER_PLAIN_BYTES_H_

#include <string.h>

#include <type_traits>

#include "absl/strings/string_view.h"

namespace heaptap::worker {

// The type has no padding, whose bytes could tell secrets. The result is valid as long as the value.
template <typename T>
absl::string_view BytesOf(const T& value) {
  static_assert(std::has_unique_object_representations_v<T>);
  return absl::string_view(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Takes a value from the beginning of `bytes`. False: there are too few bytes.
template <typename T>
bool Take(absl::string_view& bytes, T& value) {
  static_assert(std::has_unique_object_representations_v<T>);
  if (bytes.size() < sizeof(value)) return false;
  memcpy(&value, bytes.data(), sizeof(value));
  bytes.remove_prefix(sizeof(value));
  return true;
}

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_PLAIN_BYTES_H_
