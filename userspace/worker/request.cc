// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/request.h"

#include <exception>
#include <protozero/pbf_builder.hpp>
#include <protozero/pbf_message.hpp>

#include "absl/strings/str_cat.h"

namespace heaptap::worker {
namespace {

enum class OrderField : protozero::pbf_tag_type {
  kJob = 1,
  kPid = 2,
  kStart = 3,
  kEnd = 4,
  kFileOffset = 5,
  kDeviceMajor = 6,
  kDeviceMinor = 7,
  kInode = 8,
  kPath = 9,
  kIsDeleted = 10,
  kRoot = 11,
  kPaths = 12,
  kQuestion = 13,
  kMemoryBytes = 14,
  kVersion = 15,
};

// The first byte of a packet.
constexpr char kPart = 'p';
constexpr char kEnd = 'e';
constexpr char kQuestion = '?';

constexpr int kMostStatus = 16;  // absl::StatusCode

}  // namespace

std::string Encode(const Order& order) {
  const Request& request = order.request;
  std::string bytes;
  protozero::pbf_builder<OrderField> out(bytes);
  out.add_uint32(OrderField::kJob, static_cast<uint32_t>(request.job));
  out.add_int32(OrderField::kPid, request.file.pid);
  const elf::Mapping& mapping = request.file.mapping;
  out.add_uint64(OrderField::kStart, mapping.start);
  out.add_uint64(OrderField::kEnd, mapping.end);
  out.add_uint64(OrderField::kFileOffset, mapping.file_offset);
  out.add_uint32(OrderField::kDeviceMajor, mapping.device_major);
  out.add_uint32(OrderField::kDeviceMinor, mapping.device_minor);
  out.add_uint64(OrderField::kInode, mapping.inode);
  out.add_bytes(OrderField::kPath, mapping.path);
  out.add_bool(OrderField::kIsDeleted, mapping.deleted);
  if (request.file.version.has_value()) out.add_bytes(OrderField::kVersion, Encode(*request.file.version));
  out.add_bytes(OrderField::kRoot, request.root);
  for (const std::string& path : request.paths) out.add_bytes(OrderField::kPaths, path);
  out.add_bytes(OrderField::kQuestion, request.question);
  out.add_uint64(OrderField::kMemoryBytes, order.memory_bytes);
  return bytes;
}

absl::StatusOr<Order> DecodeOrder(absl::string_view bytes) {
  Order order;
  Request& request = order.request;
  elf::Mapping& mapping = request.file.mapping;
  try {
    protozero::pbf_message<OrderField> in(bytes.data(), bytes.size());
    while (in.next()) {
      switch (in.tag_and_type()) {
        case protozero::tag_and_type(OrderField::kJob, protozero::pbf_wire_type::varint):
          request.job = static_cast<Job>(in.get_uint32());
          break;
        case protozero::tag_and_type(OrderField::kPid, protozero::pbf_wire_type::varint):
          request.file.pid = in.get_int32();
          break;
        case protozero::tag_and_type(OrderField::kStart, protozero::pbf_wire_type::varint):
          mapping.start = in.get_uint64();
          break;
        case protozero::tag_and_type(OrderField::kEnd, protozero::pbf_wire_type::varint):
          mapping.end = in.get_uint64();
          break;
        case protozero::tag_and_type(OrderField::kFileOffset, protozero::pbf_wire_type::varint):
          mapping.file_offset = in.get_uint64();
          break;
        case protozero::tag_and_type(OrderField::kDeviceMajor, protozero::pbf_wire_type::varint):
          mapping.device_major = in.get_uint32();
          break;
        case protozero::tag_and_type(OrderField::kDeviceMinor, protozero::pbf_wire_type::varint):
          mapping.device_minor = in.get_uint32();
          break;
        case protozero::tag_and_type(OrderField::kInode, protozero::pbf_wire_type::varint):
          mapping.inode = in.get_uint64();
          break;
        case protozero::tag_and_type(OrderField::kPath, protozero::pbf_wire_type::length_delimited):
          mapping.path = in.get_bytes();
          break;
        case protozero::tag_and_type(OrderField::kIsDeleted, protozero::pbf_wire_type::varint):
          mapping.deleted = in.get_uint32() != 0;  // get_bool would read beyond the end
          break;
        case protozero::tag_and_type(OrderField::kRoot, protozero::pbf_wire_type::length_delimited):
          request.root = in.get_bytes();
          break;
        case protozero::tag_and_type(OrderField::kPaths, protozero::pbf_wire_type::length_delimited):
          request.paths.push_back(in.get_bytes());
          break;
        case protozero::tag_and_type(OrderField::kQuestion, protozero::pbf_wire_type::length_delimited):
          request.question = in.get_bytes();
          break;
        case protozero::tag_and_type(OrderField::kMemoryBytes, protozero::pbf_wire_type::varint):
          order.memory_bytes = in.get_uint64();
          break;
        case protozero::tag_and_type(OrderField::kVersion, protozero::pbf_wire_type::length_delimited): {
          const absl::StatusOr<FileVersion> version = DecodeVersion(in.get_bytes());
          if (!version.ok()) return version.status();
          request.file.version = *version;
          break;
        }
        default:  // also a known field of another type
          in.skip();
      }
    }
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not an order: ", error.what()));
  }
  return order;
}

std::string EncodePart(absl::string_view bytes) { return absl::StrCat(absl::string_view(&kPart, 1), bytes); }

std::string EncodeQuestion() { return std::string(1, kQuestion); }

std::string EncodeEnd(const absl::Status& status) {
  const char head[] = {kEnd, static_cast<char>(status.code())};
  return absl::StrCat(absl::string_view(head, sizeof(head)), status.message());
}

absl::StatusOr<AnswerPiece> DecodeAnswer(absl::string_view packet) {
  if (packet.empty()) return absl::InvalidArgumentError("an empty packet");
  if (packet[0] == kPart) return AnswerPiece{.part = packet.substr(1)};
  if (packet[0] == kQuestion) return AnswerPiece{.is_question = true};
  if (packet[0] != kEnd || packet.size() < 2 || packet[1] < 0 || packet[1] > kMostStatus) {
    return absl::InvalidArgumentError("not a packet of an answer");
  }
  return AnswerPiece{.is_end = true,
                     .status = absl::Status(static_cast<absl::StatusCode>(packet[1]), packet.substr(2))};
}

}  // namespace heaptap::worker
