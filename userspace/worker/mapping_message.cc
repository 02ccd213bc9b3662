// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/mapping_message.h"

#include <protozero/pbf_builder.hpp>

#include "userspace/base/message_fields.h"

namespace heaptap::worker {
namespace {

enum class MappingField : protozero::pbf_tag_type {
  kStart = 1,
  kEnd = 2,
  kFileOffset = 3,
  kDeviceMajor = 4,
  kDeviceMinor = 5,
  kInode = 6,
  kPath = 7,
  kDeleted = 8,
  kBuildId = 9,
};

}  // namespace

std::string Encode(const elf::Mapping& mapping) {
  std::string bytes;
  protozero::pbf_builder<MappingField> out(bytes);
  out.add_uint64(MappingField::kStart, mapping.start);
  out.add_uint64(MappingField::kEnd, mapping.end);
  out.add_uint64(MappingField::kFileOffset, mapping.file_offset);
  out.add_uint32(MappingField::kDeviceMajor, mapping.device_major);
  out.add_uint32(MappingField::kDeviceMinor, mapping.device_minor);
  out.add_uint64(MappingField::kInode, mapping.inode);
  out.add_bytes(MappingField::kPath, mapping.path);
  out.add_bool(MappingField::kDeleted, mapping.deleted);
  out.add_bytes(MappingField::kBuildId, mapping.build_id);
  return bytes;
}

absl::StatusOr<elf::Mapping> DecodeMapping(absl::string_view bytes) {
  elf::Mapping mapping;
  const absl::Status status = base::ReadFields<MappingField>(bytes, "a mapping", [&](auto& in) {
    return in.Take(MappingField::kStart, mapping.start) || in.Take(MappingField::kEnd, mapping.end) ||
           in.Take(MappingField::kFileOffset, mapping.file_offset) ||
           in.Take(MappingField::kDeviceMajor, mapping.device_major) ||
           in.Take(MappingField::kDeviceMinor, mapping.device_minor) || in.Take(MappingField::kInode, mapping.inode) ||
           in.Take(MappingField::kPath, mapping.path) || in.Take(MappingField::kDeleted, mapping.deleted) ||
           in.Take(MappingField::kBuildId, mapping.build_id);
  });
  if (!status.ok()) return status;
  return mapping;
}

}  // namespace heaptap::worker
