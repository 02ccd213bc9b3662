// SPDX-License-Identifier: Apache-2.0
//
// A pinned hash map of another build, whose BTF describes its keys and values.
//
// Fields are found by their names in the C source: "allocated.objects" is a field of a field; "" is the whole key or
// value. The place of a field is checked against the size of the key or value. Every error names the map and where it
// is pinned. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_PINNED_MAP_H_
#define HEAPTAP_USERSPACE_BPF_PINNED_MAP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/pins.h"

struct btf;

namespace heaptap::bpf {

// An unsigned integer of 1, 2, 4 or 8 bytes. Offset and size are bytes.
struct IntegerField {
  uint32_t offset = 0;
  uint32_t size = 0;

  uint64_t Read(absl::Span<const uint8_t> bytes) const;
};

// Integers of 8 bytes, one after the other.
struct ArrayField {
  uint32_t offset = 0;  // bytes
  uint32_t count = 0;

  uint64_t Read(absl::Span<const uint8_t> bytes, uint32_t index) const;
};

class PinnedMap {
 public:
  // `name`: the name of the map. NotFound: nothing is pinned under this name. FailedPrecondition: not a hash map, no
  // BTF, or keys or values of an impossible size.
  static absl::StatusOr<PinnedMap> Open(const Pins& pins, absl::string_view name);

  // FailedPrecondition: there is no such field, or it has another kind, or it lies outside the key or value.
  absl::StatusOr<IntegerField> KeyInteger(absl::string_view field) const;
  absl::StatusOr<IntegerField> ValueInteger(absl::string_view field) const;
  absl::StatusOr<ArrayField> ValueArray(absl::string_view field) const;

  // Entries that are not added or deleted meanwhile are visited once. The spans are valid until the visit ends.
  using Visit = std::function<void(absl::Span<const uint8_t> key, absl::Span<const uint8_t> value)>;
  absl::Status ForEachEntry(const Visit& visit) const;

  // The value of a key that is one integer. NotFound: there is no such key.
  absl::Status LookUp(uint64_t key, absl::Span<uint8_t> value) const;

  uint32_t value_size() const { return value_.size; }

 private:
  // Keys or values.
  struct Side {
    absl::string_view what;
    uint32_t type = 0;  // id in the BTF
    uint32_t size = 0;  // bytes
  };
  struct FreeTypes {
    void operator()(btf* types) const;
  };
  struct Place;

  PinnedMap() = default;
  absl::Status Unreadable(absl::string_view why) const;
  absl::Status NoField(const Side& side, absl::string_view field, absl::string_view why) const;
  absl::StatusOr<Place> Find(const Side& side, absl::string_view field) const;
  absl::StatusOr<IntegerField> Integer(const Side& side, absl::string_view field) const;

  std::string path_;
  base::FileDescriptor fd_;
  uint32_t max_entries_ = 0;
  std::unique_ptr<btf, FreeTypes> types_;
  Side key_ = {.what = "keys"};
  Side value_ = {.what = "values"};
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_PINNED_MAP_H_
