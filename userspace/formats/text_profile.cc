// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/text_profile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "userspace/profile/unbias.h"

namespace heaptap::formats {
namespace {

using profile::Estimate;

// The estimate that readers make from the counts of `estimate`.
Estimate ReadBack(const Estimate& estimate, uint64_t period) {
  const profile::BiasedCount count = profile::Bias(estimate.objects, estimate.bytes, period);
  Estimate read = {.samples = count.objects, .sampled_bytes = count.bytes, .bytes = estimate.bytes};
  if (period > 1) read.variance = profile::VarianceOfEqualSamples(read);
  return read;
}

bool Follows(const Estimate& estimate, uint64_t period) {
  const Estimate read = ReadBack(estimate, period);
  return read.samples == estimate.samples &&
         profile::MayStandFor(std::sqrt(read.variance), std::sqrt(estimate.variance));
}

void AppendSamples(size_t stack, const absl::AlphaNum& thread, const Estimate& live, const Estimate& allocated,
                   uint64_t period, std::string& out) {
  if (Follows(live, period) && Follows(allocated, period)) return;
  absl::StrAppend(&out, kSamplesComment, stack, " t", thread, ": ");
  absl::StrAppend(&out, live.samples, ": ", profile::ToWhole(std::sqrt(live.variance)), " [");
  absl::StrAppend(&out, allocated.samples, ": ", profile::ToWhole(std::sqrt(allocated.variance)), "]\n");
}

void AppendSamplesOf(absl::Span<const Row> rows, uint64_t period, std::string& out) {
  for (size_t i = 0; i < rows.size(); i++) {
    AppendSamples(i + 1, "*", rows[i].live, rows[i].allocated, period, out);
    for (const profile::ThreadShare& share : rows[i].context->threads) {
      if (share.live.IsZero() && share.allocated.IsZero()) continue;
      AppendSamples(i + 1, share.tid, share.live, share.allocated, period, out);
    }
  }
}

constexpr size_t kAddressesAtOnce = 64;
constexpr char kPrefix[] = " 0x";
constexpr size_t kPrefixLength = sizeof(kPrefix) - 1;
constexpr size_t kAddressRoom = kPrefixLength + 16;

// The eight hexadecimal digits of a number, the first one in the lowest byte.
uint64_t HexDigits(uint32_t number) {
  // A byte for each digit, the last digit in the lowest byte.
  uint64_t digits = number;
  digits = (digits | digits << 16) & 0x0000ffff0000ffff;
  digits = (digits | digits << 8) & 0x00ff00ff00ff00ff;
  digits = (digits | digits << 4) & 0x0f0f0f0f0f0f0f0f;
  const uint64_t letters = (digits + 0x0606060606060606) >> 4 & 0x0101010101010101;
  return __builtin_bswap64(digits + 0x3030303030303030 + letters * ('a' - '0' - 10));
}

// Writes the last `count` of eight digits to `to`, which has room for eight, and returns the end of the text.
char* WriteDigits(uint64_t digits, int count, char* to) {
  digits >>= 8 * (8 - count);
  memcpy(to, &digits, sizeof(digits));
  return to + count;
}

// Writes " 0x..." to `to`, which has kAddressRoom bytes, and returns the end of the text.
char* WriteAddress(uint64_t address, char* to) {
  memcpy(to, kPrefix, sizeof(kPrefix));
  to += kPrefixLength;
  const int count = std::max(1, (67 - std::countl_zero(address)) / 4);
  const uint64_t low = HexDigits(static_cast<uint32_t>(address));
  if (count <= 8) return WriteDigits(low, count, to);
  return WriteDigits(low, 8, WriteDigits(HexDigits(static_cast<uint32_t>(address >> 32)), count - 8, to));
}

}  // namespace

std::vector<Row> Rows(const profile::Profile& profile) {
  std::vector<Row> rows;
  rows.reserve(profile.contexts.size());
  for (const profile::Context& context : profile.contexts) {
    Row row = {&context, context.Live(), context.Allocated()};
    if (!row.live.IsZero() || !row.allocated.IsZero()) rows.push_back(row);
  }
  // A row is large, and a profile may have a hundred thousand.
  struct Key {
    double bytes;
    absl::Span<const uint64_t> frames;
    size_t row;
  };
  std::vector<Key> keys;
  keys.reserve(rows.size());
  for (const Row& row : rows) keys.push_back({row.live.bytes, row.context->frames, keys.size()});
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : std::ranges::lexicographical_compare(a.frames, b.frames);
  });
  std::vector<Row> sorted;
  sorted.reserve(rows.size());
  for (const Key& key : keys) sorted.push_back(rows[key.row]);
  return sorted;
}

void AppendAddresses(const profile::Context& context, std::string& out) {
  // Most of the bytes of a dump are addresses, so one is not a string of its own.
  char text[kAddressesAtOnce * kAddressRoom];
  char* end = text;
  uint64_t less = 1;
  for (const uint64_t frame : context.frames) {
    if (std::end(text) - end < ptrdiff_t{kAddressRoom}) {
      out.append(text, end - text);
      end = text;
    }
    end = WriteAddress(frame > less ? frame - less : frame, end);
    less = 0;
  }
  out.append(text, end - text);
  if (context.frames.empty()) absl::StrAppend(&out, " 0x", absl::Hex(kUnknownFrame));
}

void AppendLineOf(absl::string_view text, std::string& out) {
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&out, "\\%03o", byte);
    } else {
      out.push_back(c);
    }
  }
}

void AppendWarnings(const profile::Profile& profile, std::string& out) {
  for (const std::string& warning : profile.warnings) {
    out.append("%warn ");
    AppendLineOf(warning, out);
    out.push_back('\n');
  }
}

uint64_t WrittenPeriod(const profile::Profile& profile, absl::Span<const Row> rows) {
  double longest = std::numeric_limits<double>::infinity();
  for (const Row& row : rows) {
    longest = std::min({longest, profile::LongestPeriod(row.live), profile::LongestPeriod(row.allocated)});
  }
  if (static_cast<double>(profile.period) <= longest) return profile.period;
  return longest < 1 ? 1 : std::bit_floor(static_cast<uint64_t>(longest));
}

void AppendMappedLibraries(const profile::Profile& profile, absl::Span<const Row> rows, uint64_t period,
                           std::string& out) {
  out.append("\nMAPPED_LIBRARIES:\n");
  if (profile.time.has_value()) {
    absl::StrAppend(&out, kTimeComment, absl::FormatTime(absl::RFC3339_full, *profile.time, absl::UTCTimeZone()), "\n");
  }
  if (period != profile.period) absl::StrAppend(&out, kPeriodComment, profile.period, "\n");
  if (profile.several_periods) absl::StrAppend(&out, kSeveralPeriodsComment, "\n");
  if (!profile.raw) AppendSamplesOf(rows, period, out);
  for (size_t i = 0; i < rows.size(); i++) {
    if (rows[i].context->truncated) absl::StrAppend(&out, kCutComment, i + 1, "\n");
  }
  for (const elf::Mapping& mapping : profile.mappings) {
    if (!mapping.build_id.empty()) {
      absl::StrAppend(&out, kBuildIdComment, absl::Hex(mapping.start), " ", absl::BytesToHexString(mapping.build_id),
                      "\n");
    }
    absl::StrAppendFormat(&out, "%08x-%08x r-xp %08x %02x:%02x %d", mapping.start, mapping.end, mapping.file_offset,
                          mapping.device_major, mapping.device_minor, mapping.inode);
    if (!mapping.path.empty()) {
      out.push_back(' ');
      AppendLineOf(mapping.path, out);
    }
    out.push_back('\n');
  }
}

size_t EstimateSize(const profile::Profile& profile, absl::Span<const Row> rows) {
  // From the usual lengths of lines and addresses.
  size_t size = 4096;
  for (const Row& row : rows) size += 80 + row.context->frames.size() * 15 + row.context->threads.size() * 40;
  for (const elf::Mapping& mapping : profile.mappings) size += 150 + mapping.path.size();
  return size;
}

}  // namespace heaptap::formats
