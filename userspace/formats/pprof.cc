// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/pprof.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "protozero/pbf_builder.hpp"
#include "userspace/base/printable_text.h"
#include "userspace/base/require.h"
#include "userspace/formats/gzip.h"
#include "userspace/formats/pprof_fields.h"
#include "userspace/profile/frame_names.h"

namespace heaptap::formats {
namespace {

using namespace pprof;
using profile::BlockShare;
using profile::Context;
using profile::Estimate;
using profile::Profile;
using profile::ThreadShare;

// Readers drop a frame whose whole name matches this, and the frames that it called: functions of the allocator inside
// the program's code, mostly operator new. Both mangled and demangled names, because readers match before they
// demangle.
constexpr char kDropFrames[] =
    "malloc|calloc|realloc|reallocarray|memalign|aligned_alloc|posix_memalign|valloc|pvalloc|mallocx|rallocx|xallocx|"
    "operator new(\\[\\])?(\\(.*\\))?|_Zn[wa][jm].*";

// The number of values of a sample that are allocated estimates; they come first.
constexpr size_t kAllocatedValues = 2;

// The nearest whole number that fits into 64 signed bits.
int64_t ToSignedWhole(double estimate) {
  return estimate < 0 ? -static_cast<int64_t>(profile::ToWhole(-estimate))
                      : static_cast<int64_t>(profile::ToWhole(estimate));
}

// The texts of a profile, each once; number 0 is the empty text.
class Texts {
 public:
  int64_t Add(absl::string_view text) {
    if (auto known = numbers_.find(text); known != numbers_.end()) return known->second;
    const auto number = static_cast<int64_t>(in_order_.size());
    in_order_.emplace_back(text);
    numbers_.emplace(in_order_.back(), number);
    return number;
  }

  // The texts in the order of their numbers.
  const std::deque<std::string>& in_order() const { return in_order_; }

 private:
  std::deque<std::string> in_order_;  // a deque, so that texts stay in place
  absl::flat_hash_map<absl::string_view, int64_t> numbers_;
};

// Properties of the code in a mapping.
struct Detail {
  bool functions = false;
  bool files = false;
  bool lines = false;
  bool inlined = false;
};

class MessageWriter {
 public:
  MessageWriter(const Profile& profile, const PprofOptions& options)
      : profile_(profile), options_(options), program_(FindProgram()), details_(profile.mappings.size()) {
    texts_.Add("");
  }

  std::string Write() && {
    WriteHeader();
    for (const Context& context : profile_.contexts) WriteContext(context);
    WriteMappings();
    for (const std::string& text : texts_.in_order()) out_.add_string(ProfileField::kStringTable, text);
    return Gzip(data_);
  }

 private:
  using Message = protozero::pbf_builder<ProfileField>;

  size_t FindProgram() const {
    const std::vector<elf::Mapping>& mappings = profile_.mappings;
    auto found = std::find_if(mappings.begin(), mappings.end(), [this](const elf::Mapping& mapping) {
      return options_.program.empty() ? mapping.inode != 0 : mapping.path == options_.program;
    });
    return found == mappings.end() ? 0 : found - mappings.begin();
  }

  uint64_t MappingId(size_t index) const {
    if (index == program_) return 1;
    return index < program_ ? index + 2 : index + 1;
  }

  void WriteValueType(ProfileField field, absl::string_view type, absl::string_view unit) {
    protozero::pbf_builder<ValueTypeField> message(out_, field);
    message.add_int64(ValueTypeField::kType, texts_.Add(type));
    message.add_int64(ValueTypeField::kUnit, texts_.Add(unit));
  }

  void WriteHeader() {
    if (profile_.has_allocated) {
      WriteValueType(ProfileField::kSampleType, "alloc_objects", "count");
      WriteValueType(ProfileField::kSampleType, "alloc_space", "bytes");
    }
    WriteValueType(ProfileField::kSampleType, "inuse_objects", "count");
    WriteValueType(ProfileField::kSampleType, "inuse_space", "bytes");
    out_.add_int64(ProfileField::kDefaultSampleType, texts_.Add(options_.default_sample_type));
    WriteValueType(ProfileField::kPeriodType, "space", "bytes");
    out_.add_int64(ProfileField::kPeriod, static_cast<int64_t>(profile_.period));
    out_.add_int64(ProfileField::kTimeNanos, absl::ToUnixNanos(options_.time));
    out_.add_int64(ProfileField::kDurationNanos, absl::ToInt64Nanoseconds(options_.duration));
    out_.add_int64(ProfileField::kDropFrames, texts_.Add(kDropFrames));
    std::vector<int64_t> comments;
    for (const std::string& warning : profile_.warnings) comments.push_back(texts_.Add(base::Printable(warning)));
    if (profile_.several_periods) comments.push_back(texts_.Add(std::string(kSeveralPeriodsNote)));
    out_.add_packed_int64(ProfileField::kComment, comments.begin(), comments.end());
  }

  void WriteContext(const Context& context) {
    if (!options_.threads) {
      WriteSample(context, {.live = context.Live(), .allocated = context.Allocated()}, {});
      return;
    }
    for (const ThreadShare& share : context.threads) {
      ThreadShare sample = share;
      if (options_.blocks) sample.live = {};
      WriteSample(context, sample, {.thread = true});
    }
    if (!options_.blocks) return;
    for (const BlockShare& share : context.blocks) {
      WriteSample(context, {.tid = share.tid, .live = share.live},
                  {.thread = true, .size = share.size, .age = share.age});
    }
  }

  struct Labels {
    bool thread = false;
    std::optional<uint64_t> size = {};
    std::optional<uint32_t> age = {};
  };

  void WriteSample(const Context& context, const ThreadShare& share, const Labels& labels) {
    const std::array<int64_t, 4> values = {ToSignedWhole(share.allocated.objects), ToSignedWhole(share.allocated.bytes),
                                           ToSignedWhole(share.live.objects), ToSignedWhole(share.live.bytes)};
    if (values == std::array<int64_t, 4>{}) return;
    location_ids_.clear();
    for (uint64_t frame : context.frames) location_ids_.push_back(LocationId(profile::CallAddress(frame)));
    if (context.frames.empty()) location_ids_.push_back(UnknownLocationId());

    protozero::pbf_builder<SampleField> message(out_, ProfileField::kSample);
    message.add_packed_uint64(SampleField::kLocationId, location_ids_.begin(), location_ids_.end());
    message.add_packed_int64(SampleField::kValue, values.begin() + (profile_.has_allocated ? 0 : kAllocatedValues),
                             values.end());
    if (labels.size.has_value()) WriteLabel(message, "bytes", *labels.size, "bytes");
    if (labels.age.has_value() && *labels.age != profile::kUnknownAge) {
      WriteLabel(message, "age", *labels.age, "seconds");
    }
    if (!labels.thread) return;
    WriteLabel(message, "thread_id", share.tid, "");
    auto name = profile_.thread_names.find(share.tid);
    if (name == profile_.thread_names.end() || name->second.empty()) return;
    protozero::pbf_builder<LabelField> label(message, SampleField::kLabel);
    label.add_int64(LabelField::kKey, texts_.Add("thread"));
    label.add_int64(LabelField::kText, texts_.Add(base::Printable(name->second)));
  }

  void WriteLabel(protozero::pbf_builder<SampleField>& sample, absl::string_view key, uint64_t number,
                  absl::string_view unit) {
    protozero::pbf_builder<LabelField> label(sample, SampleField::kLabel);
    label.add_int64(LabelField::kKey, texts_.Add(key));
    label.add_int64(LabelField::kNumber, static_cast<int64_t>(number));
    if (!unit.empty()) label.add_int64(LabelField::kUnit, texts_.Add(unit));
  }

  // The number of a location, which is written at its first use.
  uint64_t LocationId(uint64_t address) {
    auto [entry, is_new] = locations_.try_emplace(address, last_location_ + 1);
    if (is_new) {
      ++last_location_;
      WriteLocation(last_location_, address);
    }
    return entry->second;
  }

  void WriteLocation(uint64_t id, uint64_t address) {
    const std::vector<profile::SourceFrame> frames = profile::FramesAt(options_.find_source_frames, address);
    std::vector<std::pair<uint64_t, uint32_t>> lines;  // function and line
    lines.reserve(frames.size());
    for (const profile::SourceFrame& frame : frames) lines.emplace_back(FunctionId(frame), frame.line);

    protozero::pbf_builder<LocationField> message(out_, ProfileField::kLocation);
    message.add_uint64(LocationField::kId, id);
    if (const elf::Mapping* mapping = profile::FindMapping(profile_.mappings, address); mapping != nullptr) {
      const size_t index = mapping - profile_.mappings.data();
      message.add_uint64(LocationField::kMappingId, MappingId(index));
      Detail& detail = details_[index];
      detail.inlined |= frames.size() > 1;
      for (const profile::SourceFrame& frame : frames) {
        detail.functions = true;
        detail.files |= !frame.file.empty();
        detail.lines |= frame.line != 0;
      }
    }
    message.add_uint64(LocationField::kAddress, address);
    for (const auto& [function, line] : lines) {
      protozero::pbf_builder<LineField> line_message(message, LocationField::kLine);
      line_message.add_uint64(LineField::kFunctionId, function);
      line_message.add_int64(LineField::kLine, line);
    }
  }

  uint64_t UnknownLocationId() {
    if (unknown_location_ == 0) {
      const uint64_t function = FunctionId({.function = profile::kUnknownCallPath});
      unknown_location_ = ++last_location_;
      protozero::pbf_builder<LocationField> message(out_, ProfileField::kLocation);
      message.add_uint64(LocationField::kId, unknown_location_);
      protozero::pbf_builder<LineField> line(message, LocationField::kLine);
      line.add_uint64(LineField::kFunctionId, function);
    }
    return unknown_location_;
  }

  // The number of a function, which is written at its first use.
  uint64_t FunctionId(const profile::SourceFrame& frame) {
    const std::string& linkage_name = frame.linkage_name.empty() ? frame.function : frame.linkage_name;
    const std::string& name = frame.function.empty() ? frame.linkage_name : frame.function;
    const std::array<int64_t, 3> texts = {texts_.Add(base::Printable(name)), texts_.Add(base::Printable(linkage_name)),
                                          texts_.Add(base::Printable(frame.file))};
    auto [entry, is_new] = functions_.try_emplace(texts, functions_.size() + 1);
    if (is_new) {
      protozero::pbf_builder<FunctionField> message(out_, ProfileField::kFunction);
      message.add_uint64(FunctionField::kId, entry->second);
      message.add_int64(FunctionField::kName, texts[0]);
      message.add_int64(FunctionField::kSystemName, texts[1]);
      message.add_int64(FunctionField::kFilename, texts[2]);
    }
    return entry->second;
  }

  // In the order of their numbers.
  void WriteMappings() {
    if (profile_.mappings.empty()) return;
    WriteMapping(program_);
    for (size_t index = 0; index < profile_.mappings.size(); ++index) {
      if (index != program_) WriteMapping(index);
    }
  }

  void WriteMapping(size_t index) {
    const elf::Mapping& mapping = profile_.mappings[index];
    const Detail& detail = details_[index];
    // In brackets, like [vdso], so that readers do not look for such a file.
    const std::string name = mapping.path.empty() ? "[anonymous]" : base::Printable(mapping.path);
    protozero::pbf_builder<MappingField> message(out_, ProfileField::kMapping);
    message.add_uint64(MappingField::kId, MappingId(index));
    message.add_uint64(MappingField::kMemoryStart, mapping.start);
    message.add_uint64(MappingField::kMemoryLimit, mapping.end);
    message.add_uint64(MappingField::kFileOffset, mapping.file_offset);
    message.add_int64(MappingField::kFilename, texts_.Add(name));
    message.add_int64(MappingField::kBuildId, texts_.Add(absl::BytesToHexString(mapping.build_id)));
    message.add_bool(MappingField::kHasFunctions, detail.functions);
    message.add_bool(MappingField::kHasFilenames, detail.files);
    message.add_bool(MappingField::kHasLineNumbers, detail.lines);
    message.add_bool(MappingField::kHasInlineFrames, detail.inlined);
  }

  const Profile& profile_;
  const PprofOptions& options_;
  const size_t program_;  // index of the mapping of the program
  std::vector<Detail> details_;

  std::string data_;
  Message out_{data_};
  Texts texts_;
  absl::flat_hash_map<uint64_t, uint64_t> locations_;  // numbers by address
  uint64_t last_location_ = 0;
  uint64_t unknown_location_ = 0;  // 0: not written
  absl::flat_hash_map<std::array<int64_t, 3>, uint64_t> functions_;
  std::vector<uint64_t> location_ids_;  // of one sample
};

}  // namespace

std::string Pprof(const profile::Profile& profile, const PprofOptions& options) {
  HEAPTAP_REQUIRE(options.threads || !options.blocks);
  return MessageWriter(profile, options).Write();
}

}  // namespace heaptap::formats
