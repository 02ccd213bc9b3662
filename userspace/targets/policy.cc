// SPDX-License-Identifier: Apache-2.0
#include "userspace/targets/policy.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "heaptap/contract.h"

namespace heaptap::recording {
namespace {

constexpr char kOff[] = "off";
constexpr uint64_t kMaxHighWaterPercent = 1000000;
// The eBPF programs add an interval to the bytes allocated, which must not overflow.
constexpr uint64_t kMaxInterval = std::numeric_limits<int64_t>::max();
constexpr absl::Duration kMinEvery = absl::Seconds(1);

// Digits only: SimpleAtoi also accepts signs and spaces.
std::optional<uint64_t> ParseNumber(absl::string_view text) {
  uint64_t number = 0;
  if (!std::all_of(text.begin(), text.end(), absl::ascii_isdigit) || !absl::SimpleAtoi(text, &number)) return {};
  return number;
}

std::optional<uint64_t> ParseNumber(absl::string_view text, uint64_t least, uint64_t most) {
  const std::optional<uint64_t> number = ParseNumber(text);
  return number.has_value() && *number >= least && *number <= most ? number : std::nullopt;
}

std::optional<uint64_t> ParseBytes(absl::string_view text) {
  constexpr absl::string_view kSuffixes = "KMGT";
  uint64_t unit = 1;
  if (!text.empty()) {
    const size_t suffix = kSuffixes.find(absl::ascii_toupper(text.back()));
    if (suffix != absl::string_view::npos) {
      unit = uint64_t{1} << (10 * (suffix + 1));
      text.remove_suffix(1);
    }
  }
  const std::optional<uint64_t> number = ParseNumber(text, 1, kMaxInterval / unit);
  return number.has_value() ? std::optional(*number * unit) : std::nullopt;
}

absl::Status Expected(absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("expected ", what)); }

absl::Status SetRecord(absl::string_view value, Policy& policy) {
  if (value != "on" && value != kOff) return Expected("on or off");
  policy.record = value == "on";
  return absl::OkStatus();
}

absl::Status SetLgSample(absl::string_view value, Policy& policy) {
  const std::optional<uint64_t> number = ParseNumber(value, 0, HEAPTAP_MAX_LG_SAMPLE);
  if (!number.has_value()) return Expected(absl::StrCat("a number from 0 to ", HEAPTAP_MAX_LG_SAMPLE));
  policy.lg_sample = static_cast<uint32_t>(*number);
  return absl::OkStatus();
}

absl::Status SetExact(absl::string_view value, Policy& policy) {
  if (!value.empty()) return Expected("no value");
  policy.lg_sample = 0;
  return absl::OkStatus();
}

absl::Status SetHighWater(absl::string_view value, Policy& policy) {
  std::optional<uint64_t> percent = 0;
  if (value != kOff) percent = ParseNumber(value, 1, kMaxHighWaterPercent);
  if (!percent.has_value()) return Expected(absl::StrCat("a percentage from 1 to ", kMaxHighWaterPercent, ", or off"));
  policy.triggers.first_high_water = *percent == 0 ? 0 : kFirstHighWater;
  policy.triggers.high_water_percent = static_cast<uint32_t>(*percent);
  return absl::OkStatus();
}

absl::Status SetInterval(absl::string_view value, Policy& policy) {
  std::optional<uint64_t> bytes = 0;
  if (value != kOff) bytes = ParseBytes(value);
  if (!bytes.has_value()) return Expected("a number of bytes above 0, such as 512M or 4G, or off");
  policy.triggers.interval = *bytes;
  return absl::OkStatus();
}

absl::Status SetEvery(absl::string_view value, Policy& policy) {
  absl::Duration every = absl::ZeroDuration();
  if (value != kOff &&
      (!absl::ParseDuration(value, &every) || every < kMinEvery || every == absl::InfiniteDuration())) {
    return Expected("a duration of at least 1s, such as 90s, 10m or 1h30m, or off");
  }
  policy.every = every;
  return absl::OkStatus();
}

absl::Status SetShare(absl::string_view value, uint32_t& share) {
  constexpr uint32_t kMax = std::numeric_limits<uint32_t>::max();
  const std::optional<uint64_t> number = ParseNumber(value, 0, kMax);
  if (!number.has_value()) return Expected(absl::StrCat("a number from 0 (no limit) to ", kMax));
  share = static_cast<uint32_t>(*number);
  return absl::OkStatus();
}

absl::Status SetMaxLive(absl::string_view value, Policy& policy) { return SetShare(value, policy.max_live); }
absl::Status SetMaxContexts(absl::string_view value, Policy& policy) { return SetShare(value, policy.max_contexts); }

absl::Status SetDumpAtExit(absl::string_view value, Policy& policy) {
  for (const auto& [name, when] :
       {std::pair("always", DumpAtExit::kAlways), {"fatal", DumpAtExit::kFatal}, {"never", DumpAtExit::kNever}}) {
    if (value == name) {
      policy.dump_at_exit = when;
      return absl::OkStatus();
    }
  }
  return Expected("always, fatal or never");
}

struct Setting {
  const char* name;
  absl::Status (*set)(absl::string_view value, Policy& policy);
};

constexpr Setting kSettings[] = {
    {"record", SetRecord},        {"lg-sample", SetLgSample},       {"exact", SetExact},
    {"high-water", SetHighWater}, {"interval", SetInterval},        {"every", SetEvery},
    {"max-live", SetMaxLive},     {"max-contexts", SetMaxContexts}, {"dump-at-exit", SetDumpAtExit},
};

}  // namespace

absl::Status SetPolicy(absl::string_view name, absl::string_view value, Policy& policy) {
  for (const Setting& setting : kSettings) {
    if (name == setting.name) return setting.set(value, policy);
  }
  return absl::NotFoundError(absl::StrCat("there is no setting ", name));
}

}  // namespace heaptap::recording
