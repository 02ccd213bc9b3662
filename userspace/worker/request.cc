// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/request.h"

#include <optional>
#include <protozero/pbf_builder.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/message_fields.h"
#include "userspace/worker/mapping_message.h"

namespace heaptap::worker {
namespace {

enum class OrderField : protozero::pbf_tag_type {
  kJob = 1,
  kPid = 2,
  kMapping = 3,
  kRoot = 4,
  kPaths = 5,
  kQuestion = 6,
  kMemoryBytes = 7,
  kVersion = 8,
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
  out.add_bytes(OrderField::kMapping, Encode(request.file.mapping));
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
  auto job = static_cast<uint32_t>(request.job);
  std::string value;
  absl::StatusOr<elf::Mapping> mapping = elf::Mapping();
  std::optional<absl::StatusOr<FileVersion>> version;
  const absl::Status status = base::ReadFields<OrderField>(bytes, "an order", [&](auto& in) {
    if (in.Take(OrderField::kPaths, value)) {
      request.paths.push_back(value);
      return true;
    }
    if (in.Take(OrderField::kMapping, value)) {
      mapping = DecodeMapping(value);
      return true;
    }
    if (in.Take(OrderField::kVersion, value)) {
      version = DecodeVersion(value);
      return true;
    }
    return in.Take(OrderField::kJob, job) || in.Take(OrderField::kPid, request.file.pid) ||
           in.Take(OrderField::kRoot, request.root) || in.Take(OrderField::kQuestion, request.question) ||
           in.Take(OrderField::kMemoryBytes, order.memory_bytes);
  });
  if (!status.ok()) return status;
  if (!mapping.ok()) return mapping.status();
  request.file.mapping = *std::move(mapping);
  request.job = static_cast<Job>(job);
  if (version.has_value()) {
    if (!version->ok()) return version->status();
    request.file.version = **version;
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
