// SPDX-License-Identifier: Apache-2.0
#include "userspace/history/point_rows.h"

#include <cmath>

#include "userspace/profile/estimate.h"

namespace heaptap::history {
namespace {

constexpr int kDigitBits = 7;
constexpr int kNumberBits = 64;
constexpr uint8_t kMore = 0x80;

// Without the numbers that the flags announce.
constexpr size_t kNumbersOfRow = 4;

// Flags in the bits below the number of samples.
constexpr uint64_t kHasFreed = 1;
constexpr uint64_t kHasDeviation = 2;
constexpr int kFlagBits = 2;

void AddRow(std::vector<uint64_t>& numbers, uint64_t& last, uint64_t number, const Held& held) {
  const bool has_freed = held.allocated_samples > held.samples;
  const bool has_deviation = held.deviation != DeviationOfEqualSamples(held);
  numbers.insert(numbers.end(),
                 {number - last, held.live_bytes, held.live_objects,
                  held.samples << kFlagBits | (has_freed ? kHasFreed : 0) | (has_deviation ? kHasDeviation : 0)});
  if (has_freed) numbers.push_back(held.allocated_samples - held.samples);
  if (has_deviation) numbers.push_back(held.deviation);
  last = number;
}

// Takes the numbers of a row off the front of `rest`. False: some are missing.
bool TakeRow(bool tells_samples, absl::Span<const uint64_t>& rest, uint64_t& number, Held& held) {
  if (rest.size() < kNumbersOfRow) return false;
  number += rest[0];
  held = {.live_bytes = rest[1], .live_objects = rest[2], .samples = rest[3]};
  rest.remove_prefix(kNumbersOfRow);
  if (!tells_samples) {
    held.deviation = DeviationOfEqualSamples(held);
    return true;
  }
  const uint64_t flags = held.samples;
  held.samples >>= kFlagBits;
  if (number != 0) held.allocated_samples = held.samples;
  if ((flags & kHasFreed) != 0) {
    if (rest.empty()) return false;
    if (number != 0) held.allocated_samples += rest[0];
    rest.remove_prefix(1);
  }
  held.deviation = DeviationOfEqualSamples(held);
  if ((flags & kHasDeviation) != 0) {
    if (rest.empty()) return false;
    held.deviation = rest[0];
    rest.remove_prefix(1);
  }
  return true;
}

}  // namespace

Held& Held::operator+=(const Held& other) {
  live_bytes += other.live_bytes;
  live_objects += other.live_objects;
  samples += other.samples;
  allocated_samples += other.allocated_samples;
  deviation = profile::ToWhole(std::hypot(static_cast<double>(deviation), static_cast<double>(other.deviation)));
  return *this;
}

uint64_t DeviationOfEqualSamples(const Held& held) {
  if (held.live_objects == 0) return 0;
  const auto bytes = static_cast<double>(held.live_bytes);
  const double sampled = bytes / static_cast<double>(held.live_objects) * static_cast<double>(held.samples);
  return profile::ToWhole(std::sqrt(profile::VarianceOfEqualSamples(
      {.samples = held.samples, .sampled_bytes = profile::ToWhole(sampled), .bytes = bytes})));
}

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
    Held held;
    if (!TakeRow((form & kSamplesPoint) != 0, rest, number, held)) {
      return absl::InvalidArgumentError("a row is incomplete");
    }
    if (held.IsZero()) {
      rows.erase(number);
    } else {
      rows[number] = held;
    }
  }
  return absl::OkStatus();
}

}  // namespace heaptap::history
