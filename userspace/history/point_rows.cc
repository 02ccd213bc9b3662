// SPDX-License-Identifier: Apache-2.0
#include "userspace/history/point_rows.h"

namespace heaptap::history {
namespace {

constexpr int kDigitBits = 7;
constexpr int kNumberBits = 64;
constexpr uint8_t kMore = 0x80;

// Without the fifth.
constexpr size_t kNumbersOfRow = 4;

void AddRow(std::vector<uint64_t>& numbers, uint64_t& last, uint64_t number, const Held& held) {
  const bool has_freed = held.allocated_samples > held.samples;
  numbers.insert(numbers.end(),
                 {number - last, held.live_bytes, held.live_objects, 2 * held.samples + uint64_t{has_freed}});
  if (has_freed) numbers.push_back(held.allocated_samples - held.samples);
  last = number;
}

}  // namespace

std::string EncodeNumbers(absl::Span<const uint64_t> numbers) {
  std::string bytes;
  bytes.reserve(2 * numbers.size());
  for (uint64_t number : numbers) {
    for (; number >= kMore; number >>= kDigitBits) bytes.push_back(static_cast<char>(number | kMore));
    bytes.push_back(static_cast<char>(number));
  }
  return bytes;
}

absl::StatusOr<std::vector<uint64_t>> DecodeNumbers(absl::string_view bytes) {
  std::vector<uint64_t> numbers;
  numbers.reserve(bytes.size());
  uint64_t number = 0;
  int shift = 0;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (shift >= kNumberBits) return absl::InvalidArgumentError("a number has more than 64 bits");
    number |= static_cast<uint64_t>(byte & (kMore - 1)) << shift;
    shift += kDigitBits;
    if ((byte & kMore) != 0) continue;
    numbers.push_back(number);
    number = 0;
    shift = 0;
  }
  if (shift != 0) return absl::InvalidArgumentError("the bytes end inside a number");
  return numbers;
}

std::string EncodeRows(const Rows& rows) { return EncodeChange({}, rows); }

std::string EncodeChange(const Rows& before, const Rows& after) {
  std::vector<uint64_t> numbers;
  numbers.reserve(kNumbersOfRow * after.size());
  uint64_t last = 0;
  auto old = before.begin();
  auto now = after.begin();
  while (old != before.end() || now != after.end()) {
    if (now == after.end() || (old != before.end() && old->first < now->first)) {
      AddRow(numbers, last, old->first, {});
      ++old;
    } else if (old == before.end() || now->first < old->first) {
      AddRow(numbers, last, now->first, now->second);
      ++now;
    } else {
      if (old->second != now->second) AddRow(numbers, last, now->first, now->second);
      ++old;
      ++now;
    }
  }
  return EncodeNumbers(numbers);
}

absl::Status Apply(int64_t form, absl::string_view bytes, Rows& rows) {
  const absl::StatusOr<std::vector<uint64_t>> numbers = DecodeNumbers(bytes);
  if (!numbers.ok()) return numbers.status();
  if ((form & kWholePoint) != 0) rows.clear();
  uint64_t number = 0;
  absl::Span<const uint64_t> rest = *numbers;
  while (!rest.empty()) {
    const bool tells_freed = (form & kFreedPoint) != 0;
    const bool has_freed = tells_freed && rest.size() >= kNumbersOfRow && (rest[kNumbersOfRow - 1] & 1) != 0;
    const size_t size = kNumbersOfRow + (has_freed ? 1 : 0);
    if (rest.size() < size) return absl::InvalidArgumentError("a row is incomplete");
    number += rest[0];
    Held held = {.live_bytes = rest[1], .live_objects = rest[2], .samples = rest[3]};
    if (tells_freed) {
      held.samples /= 2;
      if (number != 0) held.allocated_samples = held.samples + (has_freed ? rest[kNumbersOfRow] : 0);
    }
    if (held.IsZero()) {
      rows.erase(number);
    } else {
      rows[number] = held;
    }
    rest.remove_prefix(size);
  }
  return absl::OkStatus();
}

}  // namespace heaptap::history
