// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/pprof_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <optional>
#include <protozero/exception.hpp>
#include <protozero/pbf_message.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "userspace/base/message_fields.h"
#include "userspace/base/printable_text.h"
#include "userspace/formats/heap_v2_reader.h"
#include "userspace/formats/pprof_fields.h"
#include "userspace/formats/pprof_messages.h"
#include "userspace/profile/source_frames.h"

namespace heaptap::formats {
namespace {

using namespace pprof;

// Invented addresses for places without an address: beyond the addresses of processes and of the kernel's code.
constexpr uint64_t kInventedAddresses = uint64_t{0xff} << 56;
constexpr uint64_t kInventedMask = (uint64_t{1} << 55) - 1;

// Bounds in bytes: for all names, because each location has names of its own; for the name of a thread; for a comment.
constexpr size_t kMaxNameBytes = size_t{512} << 20;
constexpr size_t kMaxThreadName = 256;
constexpr size_t kMaxComment = 1024;

// The numbers of a sample's values; none: the profile has no such values.
struct ValueColumns {
  std::optional<size_t> live_bytes;
  std::optional<size_t> live_objects;
  std::optional<size_t> allocated_bytes;
  std::optional<size_t> allocated_objects;
};

bool AreSame(absl::Span<const profile::SourceFrame> a, absl::Span<const profile::SourceFrame> b) {
  return std::ranges::equal(a, b, [](const profile::SourceFrame& one, const profile::SourceFrame& other) {
    return one.function == other.function && one.linkage_name == other.linkage_name && one.file == other.file &&
           one.line == other.line;
  });
}

uint64_t InventAddress(absl::Span<const profile::SourceFrame> frames) {
  size_t hash = 0;
  for (const profile::SourceFrame& frame : frames) {
    hash = absl::HashOf(hash, frame.function, frame.linkage_name, frame.file, frame.line);
  }
  return kInventedAddresses | (hash & kInventedMask);
}

// Whether a profile may have this field in this form.
bool IsKnown(ProfileField field, protozero::pbf_wire_type type) {
  const bool is_number = type == protozero::pbf_wire_type::varint;
  const bool is_bytes = type == protozero::pbf_wire_type::length_delimited;
  switch (field) {
    case ProfileField::kSampleType:
    case ProfileField::kSample:
    case ProfileField::kMapping:
    case ProfileField::kLocation:
    case ProfileField::kFunction:
    case ProfileField::kStringTable:
    case ProfileField::kPeriodType:
      return is_bytes;
    case ProfileField::kComment:  // packed or not
      return is_bytes || is_number;
    case ProfileField::kDropFrames:
    case ProfileField::kKeepFrames:
    case ProfileField::kTimeNanos:
    case ProfileField::kDurationNanos:
    case ProfileField::kPeriod:
    case ProfileField::kDefaultSampleType:
      return is_number;
  }
  return false;
}

using BlockKeyType = std::tuple<uint32_t, uint64_t, uint32_t>;
BlockKeyType BlockKey(const profile::BlockShare& share) { return {share.tid, share.size, share.age}; }

class ContentBuilder {
 public:
  explicit ContentBuilder(Messages messages) : in_(std::move(messages)) {}

  absl::StatusOr<PprofContent> Build() && {
    if (in_.texts.empty()) in_.texts.emplace_back();
    if (absl::Status status = FindColumns(); !status.ok()) return status;
    if (absl::Status status = SetPeriod(); !status.ok()) return status;
    for (const uint64_t comment : in_.comments) {
      if (!HasText(comment)) return NoText();
      if (in_.texts[comment] == kSeveralPeriodsNote) {
        out_.profile.several_periods = true;
        continue;
      }
      out_.profile.warnings.emplace_back(in_.texts[comment].substr(0, kMaxComment));
    }
    out_.profile.mappings.assign(in_.mappings.begin(), in_.mappings.end());
    for (const uint64_t id : in_.location_order) {
      if (absl::Status status = PlaceLocation(id); !status.ok()) return status;
    }
    for (const absl::string_view sample : in_.samples) {
      if (absl::Status status = AddSample(sample); !status.ok()) return status;
    }
    for (profile::Context& context : out_.profile.contexts) {
      std::ranges::sort(context.threads, {}, &profile::ThreadShare::tid);
      std::ranges::sort(context.blocks, {}, BlockKey);
    }
    return std::move(out_);
  }

 private:
  // How a location appears in frames.
  struct Place {
    uint64_t frame = 0;  // the return address
    size_t functions = 1;
    bool is_unknown_path = false;
  };

  bool HasText(uint64_t number) const { return number < in_.texts.size(); }
  static absl::Status NoText() { return WrongPprof("it names a text that is not there"); }

  absl::Status FindColumns() {
    bool has_some = false;
    std::vector<std::string> names;
    for (size_t i = 0; i < in_.value_types.size(); i++) {
      const ValueType& type = in_.value_types[i];
      if (!HasText(type.type) || !HasText(type.unit)) return NoText();
      const absl::string_view name = in_.texts[type.type];
      const bool is_bytes = name == "inuse_space" || name == "space" || name == "alloc_space";
      const bool is_live = name == "inuse_space" || name == "inuse_objects" || name == "space" || name == "objects";
      names.push_back(base::Printable(name.substr(0, 30)));
      if (!is_bytes && !is_live && name != "alloc_objects") continue;
      const absl::string_view unit = in_.texts[type.unit];
      if (unit != (is_bytes ? "bytes" : "count")) {
        return WrongPprof(absl::StrCat("values of ", name, " in ", base::Printable(unit.substr(0, 30))));
      }
      has_some = true;
      std::optional<size_t>& column = is_live    ? is_bytes ? columns_.live_bytes : columns_.live_objects
                                      : is_bytes ? columns_.allocated_bytes
                                                 : columns_.allocated_objects;
      if (!column.has_value()) column = i;
    }
    out_.profile.has_allocated = columns_.allocated_bytes.has_value() || columns_.allocated_objects.has_value();
    constexpr size_t kShownTypes = 4;
    names.resize(std::min(names.size(), kShownTypes));
    return has_some ? absl::OkStatus()
                    : absl::InvalidArgumentError(
                          absl::StrCat("no heap profile: expected values of inuse_space or alloc_space, found ",
                                       names.empty() ? "none" : absl::StrJoin(names, ", ")));
  }

  absl::Status SetPeriod() {
    if (!HasText(in_.period_type.unit)) return NoText();
    if (in_.period > 0 && in_.texts[in_.period_type.unit] == "bytes") {
      out_.profile.period = static_cast<uint64_t>(in_.period);
    } else {
      out_.profile.warnings.emplace_back(
          "the profile does not say how often samples were taken, so standard errors are not known");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<profile::SourceFrame>> FramesOf(const Location& location) {
    std::vector<profile::SourceFrame> frames;
    frames.reserve(location.lines);
    for (const Line& line : absl::MakeSpan(in_.lines).subspan(location.first_line, location.lines)) {
      const auto found = in_.functions.find(line.function);
      if (found == in_.functions.end()) return WrongPprof(absl::StrCat("there is no function ", line.function));
      const Function& function = found->second;
      if (!HasText(function.name) || !HasText(function.linkage_name) || !HasText(function.file)) return NoText();
      for (const uint64_t text : {function.name, function.linkage_name, function.file}) {
        name_bytes_ += in_.texts[text].size();
      }
      if (name_bytes_ > kMaxNameBytes) return WrongPprof("its names are too long");
      profile::SourceFrame& frame = frames.emplace_back();
      frame.function = std::string(in_.texts[function.name]);
      if (function.linkage_name != function.name) frame.linkage_name = std::string(in_.texts[function.linkage_name]);
      frame.file = std::string(in_.texts[function.file]);
      frame.line = line.line;
    }
    return frames;
  }

  absl::Status PlaceLocation(uint64_t id) {
    const Location& location = in_.locations[id];
    absl::StatusOr<std::vector<profile::SourceFrame>> frames = FramesOf(location);
    if (!frames.ok()) return frames.status();
    Place& place = places_[id];
    place.functions = std::max<size_t>(frames->size(), 1);
    place.is_unknown_path =
        location.address == 0 && frames->size() == 1 && (*frames)[0].function == profile::kUnknownCallPath;
    uint64_t address = location.address;
    if (!frames->empty() && !place.is_unknown_path) {
      if (address == 0 || !IsFree(address, *frames)) address = InventAddress(*frames);
      while (!IsFree(address, *frames)) address++;
      out_.symbols.try_emplace(address, *std::move(frames));
    }
    place.frame = address == UINT64_MAX ? address : address + 1;
    return absl::OkStatus();
  }

  bool IsFree(uint64_t address, absl::Span<const profile::SourceFrame> frames) const {
    const auto known = out_.symbols.find(address);
    return known == out_.symbols.end() || AreSame(known->second, frames);
  }

  absl::Status AddSample(absl::string_view bytes) {
    location_ids_.clear();
    values_.clear();
    labels_ = {};
    absl::string_view part;
    absl::Status inner;
    absl::Status status = base::ReadFields<SampleField>(bytes, kPprofProfile, [&](auto& in) {
      if (in.Take(SampleField::kLabel, part)) {
        inner.Update(ReadLabel(part));
        return true;
      }
      return in.Take(SampleField::kLocationId, location_ids_, kMaxReadFrames) ||
             in.Take(SampleField::kValue, values_, kMaxPprofValues);
    });
    if (!inner.ok()) return inner;
    if (!status.ok()) return status;
    if (values_.size() != in_.value_types.size()) return WrongPprof("a sample has too many or too few values");
    profile::ThreadShare share = {.tid = labels_.tid};
    share.live = ToEstimate(columns_.live_objects, columns_.live_bytes);
    share.allocated = ToEstimate(columns_.allocated_objects, columns_.allocated_bytes);
    // Allocated values are never negative (profile/difference.h).
    if (share.allocated.bytes < 0 || share.allocated.objects < 0) share.allocated = {};
    if (share == profile::ThreadShare{.tid = labels_.tid}) return absl::OkStatus();
    if (!labels_.thread.empty()) out_.profile.thread_names.try_emplace(share.tid, labels_.thread);
    std::vector<uint64_t> frames;
    size_t functions = 0;
    frames.reserve(location_ids_.size());
    for (const uint64_t id : location_ids_) {
      const auto place = places_.find(id);
      if (place == places_.end()) return WrongPprof(absl::StrCat("there is no location ", id));
      functions += place->second.functions;
      if (!place->second.is_unknown_path) frames.push_back(place->second.frame);
    }
    if (functions > kMaxPprofFunctions)
      return WrongPprof(absl::StrCat("a sample has more than ", kMaxPprofFunctions, " functions"));
    AddShare(std::move(frames), share);
    return absl::OkStatus();
  }

  absl::Status ReadLabel(absl::string_view bytes) {
    uint64_t key = 0;
    uint64_t text = 0;
    uint64_t number = 0;
    absl::Status status = base::ReadFields<LabelField>(bytes, kPprofProfile, [&](auto& in) {
      return in.Take(LabelField::kKey, key) || in.Take(LabelField::kText, text) || in.Take(LabelField::kNumber, number);
    });
    if (!status.ok()) return status;
    if (!HasText(key) || !HasText(text)) return NoText();
    const absl::string_view name = in_.texts[key];
    if (name == "thread_id" && number <= UINT32_MAX) labels_.tid = static_cast<uint32_t>(number);
    if (name == "thread") labels_.thread = in_.texts[text].substr(0, kMaxThreadName);
    if (name == "bytes" && number <= INT64_MAX) labels_.size = number;
    if (name == "age") labels_.age = profile::AgeOf(number);
    return absl::OkStatus();
  }

  void AddShare(std::vector<uint64_t> frames, const profile::ThreadShare& share) {
    std::vector<profile::Context>& contexts = out_.profile.contexts;
    size_t context = contexts.size();
    if (const auto known = by_frames_.find(frames); known != by_frames_.end()) {
      context = known->second;
    } else {
      contexts.push_back({.frames = std::move(frames)});
      // The frames stay in place when the vector of contexts grows.
      by_frames_[contexts.back().frames] = context;
    }
    std::vector<profile::ThreadShare>& threads = contexts[context].threads;
    const auto [entry, is_new] = by_thread_.try_emplace({context, share.tid}, threads.size());
    if (is_new) {
      threads.push_back(share);
    } else {
      threads[entry->second].live += share.live;
      threads[entry->second].allocated += share.allocated;
    }
    if (labels_.size.has_value() && !share.live.IsZero()) {
      AddBlocks(context, {.tid = share.tid, .size = *labels_.size, .age = labels_.age, .live = share.live});
    }
  }

  void AddBlocks(size_t context, const profile::BlockShare& share) {
    std::vector<profile::BlockShare>& blocks = out_.profile.contexts[context].blocks;
    const auto [entry, is_new] = by_block_.try_emplace({context, BlockKey(share)}, blocks.size());
    if (is_new) {
      blocks.push_back(share);
    } else {
      blocks[entry->second].live += share.live;
    }
  }

  double ValueOf(std::optional<size_t> column) const {
    return column.has_value() ? static_cast<double>(static_cast<int64_t>(values_[*column])) : 0;
  }

  profile::Estimate ToEstimate(std::optional<size_t> objects, std::optional<size_t> bytes) const {
    profile::Estimate estimate = {.objects = ValueOf(objects), .bytes = ValueOf(bytes)};
    if (!(estimate.objects > 0)) {
      // Without objects, each value counts as one sample without an error.
      if (estimate.bytes > 0) estimate.samples = 1;
      estimate.sampled_bytes = profile::ToWhole(estimate.bytes);
      return estimate;
    }
    const auto period = static_cast<double>(out_.profile.period);
    const double probability =
        out_.profile.period <= 1 ? 1 : -std::expm1(-std::max(estimate.bytes, 0.0) / estimate.objects / period);
    estimate.samples = std::max<uint64_t>(profile::ToWhole(estimate.objects * probability), 1);
    estimate.sampled_bytes = profile::ToWhole(estimate.bytes * probability);
    if (out_.profile.period > 1) estimate.variance = profile::VarianceOfEqualSamples(estimate);
    return estimate;
  }

  Messages in_;
  PprofContent out_;
  ValueColumns columns_;
  absl::flat_hash_map<uint64_t, Place> places_;                            // by the id of the location
  absl::flat_hash_map<absl::Span<const uint64_t>, size_t> by_frames_;      // index into contexts
  absl::flat_hash_map<std::pair<size_t, uint32_t>, size_t> by_thread_;     // by context: index into its threads
  absl::flat_hash_map<std::pair<size_t, BlockKeyType>, size_t> by_block_;  // by context: index into its blocks
  size_t name_bytes_ = 0;
  // The contents of the labels of one sample.
  struct Labels {
    uint32_t tid = 0;
    absl::string_view thread = {};
    std::optional<uint64_t> size = {};
    uint32_t age = profile::kUnknownAge;
  };
  Labels labels_;
  std::vector<uint64_t> location_ids_;
  std::vector<uint64_t> values_;
};

}  // namespace

bool IsPprof(absl::string_view bytes) {
  // More fields are not needed to tell a profile from a text.
  constexpr size_t kLookedAt = 8;
  size_t known = 0;
  try {
    protozero::pbf_message<ProfileField> in(bytes.data(), bytes.size());
    while (known < kLookedAt && in.next()) {
      if (!IsKnown(in.tag(), in.wire_type())) return false;
      in.skip();
      known++;
    }
  } catch (const protozero::end_of_buffer_exception&) {
    // The bytes are cut off, which ReadPprof reports.
  } catch (const std::exception&) {
    return false;
  }
  return known > 0;
}

absl::StatusOr<PprofContent> ReadPprof(absl::string_view bytes, absl::string_view name) {
  const auto named = [name](const absl::Status& status) {
    return absl::InvalidArgumentError(absl::StrCat(base::Printable(name), ": ", status.message()));
  };
  absl::StatusOr<Messages> messages = pprof::ReadMessages(bytes);
  if (!messages.ok()) return named(messages.status());
  absl::StatusOr<PprofContent> content = ContentBuilder(*std::move(messages)).Build();
  if (!content.ok()) return named(content.status());
  return content;
}

}  // namespace heaptap::formats
