// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/pinned_map.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/bpf/kernel_error.h"

namespace heaptap::bpf {
namespace {

// Bound of keys and values: more than heaptap's will ever have.
constexpr uint32_t kMaxEntryBytes = 64 * 1024;

// One system call reads this many bytes, and at least this many entries: the kernel refuses a batch smaller than a
// bucket.
constexpr uint32_t kBatchBytes = 1024 * 1024;
constexpr uint32_t kSmallestBatch = 16;

constexpr uint32_t kBitsPerByte = 8;

// Depth of unnamed structs inside each other.
constexpr int kMaxNesting = 8;

// The type that a typedef, const and the like stand for. Null: none.
const btf_type* ActualType(const btf* types, uint32_t id) {
  const int actual = btf__resolve_type(types, id);
  return actual < 0 ? nullptr : btf__type_by_id(types, actual);
}

struct Member {
  uint32_t type;
  uint64_t bits;  // from the beginning of the struct
};

std::optional<Member> FindMember(const btf* types, const btf_type* whole, absl::string_view name, int nesting = 0) {
  if (whole == nullptr || !btf_is_composite(whole) || nesting > kMaxNesting) return std::nullopt;
  const btf_member* members = btf_members(whole);
  for (uint32_t i = 0; i < btf_vlen(whole); i++) {
    const uint64_t bits = btf_member_bit_offset(whole, i);
    const char* member_name = btf__name_by_offset(types, members[i].name_off);
    if (member_name == nullptr) return std::nullopt;
    if (member_name == name) {
      if (btf_member_bitfield_size(whole, i) != 0) return std::nullopt;
      return Member{members[i].type, bits};
    }
    if (member_name[0] != '\0') continue;
    // Members of an unnamed struct or union count as members of the outer one.
    const std::optional<Member> inner = FindMember(types, ActualType(types, members[i].type), name, nesting + 1);
    if (inner.has_value()) return Member{inner->type, bits + inner->bits};
  }
  return std::nullopt;
}

// Bytes of an integer; 0: another type, or a size that cannot be read.
uint32_t IntegerSize(const btf_type* type) {
  if (type == nullptr) return 0;
  if (btf_is_int(type) && (btf_int_offset(type) != 0 || btf_int_bits(type) != type->size * kBitsPerByte)) return 0;
  if (!btf_is_int(type) && !btf_is_any_enum(type)) return 0;
  return type->size == 1 || type->size == 2 || type->size == 4 || type->size == 8 ? type->size : 0;
}

}  // namespace

struct PinnedMap::Place {
  const btf_type* type;
  uint32_t offset;  // bytes, less than the size of the side
};

// The programs ran on this machine, which is little-endian.
uint64_t IntegerField::Read(absl::Span<const uint8_t> bytes) const {
  uint64_t value = 0;
  memcpy(&value, bytes.data() + offset, size);
  return value;
}

uint64_t ArrayField::Read(absl::Span<const uint8_t> bytes, uint32_t index) const {
  uint64_t value;
  memcpy(&value, bytes.data() + offset + index * sizeof(value), sizeof(value));
  return value;
}

void PinnedMap::FreeTypes::operator()(btf* types) const { btf__free(types); }

absl::Status PinnedMap::Unreadable(absl::string_view why) const {
  return absl::FailedPreconditionError(absl::StrCat(path_, " cannot be read: ", why));
}

absl::Status PinnedMap::NoField(const Side& side, absl::string_view field, absl::string_view why) const {
  return Unreadable(
      absl::StrCat(field.empty() ? "one of its" : absl::StrCat("field ", field, " of its"), " ", side.what, " ", why));
}

absl::StatusOr<PinnedMap> PinnedMap::Open(const Pins& pins, absl::string_view name) {
  PinnedMap map;
  const std::string pin = absl::StrCat("map_", name);
  map.path_ = absl::StrCat(pins.folder(), "/", pin);
  absl::StatusOr<base::FileDescriptor> fd = pins.Get(pin);
  if (!fd.ok()) return fd.status();
  map.fd_ = *std::move(fd);

  // If something other than a map is pinned, the info is nonsense, but the kernel refuses every read of entries.
  bpf_map_info info = {};
  uint32_t size = sizeof(info);
  if (const int error = bpf_obj_get_info_by_fd(map.fd_.get(), &info, &size); error != 0) {
    return KernelError(error, absl::StrCat("looking at ", map.path_));
  }
  // For other types, such as those with a value for each CPU, the kernel writes more than the size of a value.
  if (info.type != BPF_MAP_TYPE_HASH && info.type != BPF_MAP_TYPE_LRU_HASH)
    return map.Unreadable("it is not a hash map");
  if (info.key_size == 0 || info.key_size > kMaxEntryBytes || info.value_size == 0 ||
      info.value_size > kMaxEntryBytes) {
    return map.Unreadable(absl::StrCat("its keys have ", info.key_size, " bytes, its values have ", info.value_size));
  }
  if (info.btf_id == 0) return map.Unreadable("it has no BTF");
  map.max_entries_ = info.max_entries;
  map.key_.type = info.btf_key_type_id;
  map.key_.size = info.key_size;
  map.value_.type = info.btf_value_type_id;
  map.value_.size = info.value_size;
  map.types_.reset(btf__load_from_kernel_by_id(info.btf_id));
  if (map.types_ == nullptr) return KernelError(errno, absl::StrCat("reading the BTF of ", map.path_));
  return map;
}

absl::StatusOr<PinnedMap::Place> PinnedMap::Find(const Side& side, absl::string_view field) const {
  uint32_t type = side.type;
  uint64_t bits = 0;
  if (!field.empty()) {
    for (const absl::string_view name : absl::StrSplit(field, '.')) {
      const std::optional<Member> member = FindMember(types_.get(), ActualType(types_.get(), type), name);
      if (!member.has_value()) return NoField(side, field, "is missing");
      type = member->type;
      bits += member->bits;
    }
  }
  const btf_type* actual = ActualType(types_.get(), type);
  if (actual == nullptr) return NoField(side, field, "has no type");
  if (bits % kBitsPerByte != 0 || bits / kBitsPerByte >= side.size) return NoField(side, field, "is out of place");
  return Place{actual, static_cast<uint32_t>(bits / kBitsPerByte)};
}

absl::StatusOr<IntegerField> PinnedMap::Integer(const Side& side, absl::string_view field) const {
  const absl::StatusOr<Place> place = Find(side, field);
  if (!place.ok()) return place.status();
  const uint32_t size = IntegerSize(place->type);
  if (size == 0) return NoField(side, field, "is not an integer of up to 64 bits");
  if (size > side.size - place->offset) return NoField(side, field, "is out of place");
  return IntegerField{place->offset, size};
}

absl::StatusOr<IntegerField> PinnedMap::KeyInteger(absl::string_view field) const { return Integer(key_, field); }
absl::StatusOr<IntegerField> PinnedMap::ValueInteger(absl::string_view field) const { return Integer(value_, field); }

absl::StatusOr<ArrayField> PinnedMap::ValueArray(absl::string_view field) const {
  const absl::StatusOr<Place> place = Find(value_, field);
  if (!place.ok()) return place.status();
  if (!btf_is_array(place->type)) return NoField(value_, field, "is not an array");
  const auto* array = btf_array(place->type);
  if (IntegerSize(ActualType(types_.get(), array->type)) != sizeof(uint64_t)) {
    return NoField(value_, field, "is not an array of 64-bit integers");
  }
  if (array->nelems == 0 || array->nelems > (value_.size - place->offset) / sizeof(uint64_t)) {
    return NoField(value_, field, "is out of place");
  }
  return ArrayField{place->offset, array->nelems};
}

absl::Status PinnedMap::ForEachEntry(const Visit& visit) const {
  uint32_t batch = std::max(kBatchBytes / (key_.size + value_.size), kSmallestBatch);
  batch = std::max(std::min(batch, max_entries_), uint32_t{1});
  std::vector<uint8_t> keys(size_t{batch} * key_.size);
  std::vector<uint8_t> values(size_t{batch} * value_.size);
  uint32_t position = 0;  // the kernel's bucket number; opaque
  bool first = true;
  for (;;) {
    uint32_t count = batch;
    const int error = bpf_map_lookup_batch(fd_.get(), first ? nullptr : &position, &position, keys.data(),
                                           values.data(), &count, nullptr);
    if (error == -ENOSPC && batch < max_entries_) {
      // A bucket has more entries than the batch; nothing was read.
      batch = std::min(max_entries_ - batch, batch) + batch;
      keys.resize(size_t{batch} * key_.size);
      values.resize(size_t{batch} * value_.size);
      continue;
    }
    if (error != 0 && error != -ENOENT) return KernelError(error, absl::StrCat("reading ", path_));
    for (size_t i = 0; i < std::min(count, batch); i++) {
      visit(absl::MakeConstSpan(&keys[i * key_.size], key_.size),
            absl::MakeConstSpan(&values[i * value_.size], value_.size));
    }
    if (error == -ENOENT) return absl::OkStatus();
    first = false;
  }
}

absl::Status PinnedMap::LookUp(uint64_t key, absl::Span<uint8_t> value) const {
  if (key_.size != sizeof(key) || value.size() != value_.size) return Unreadable("its keys are not 64-bit integers");
  const int error = bpf_map_lookup_elem(fd_.get(), &key, value.data());
  if (error == 0) return absl::OkStatus();
  if (error == -ENOENT) return absl::NotFoundError(absl::StrCat("no such entry in ", path_));
  return KernelError(error, absl::StrCat("reading ", path_));
}

}  // namespace heaptap::bpf
