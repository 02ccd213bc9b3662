// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/perfetto.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <protozero/pbf_builder.hpp>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/profile/estimate.h"

namespace heaptap::report {
namespace {

enum class TraceField : protozero::pbf_tag_type { kPacket = 1 };
enum class PacketField : protozero::pbf_tag_type {
  kTimestamp = 8,
  kSequence = 10,
  kInternedData = 12,
  kSequenceFlags = 13,
  kProfile = 37
};
enum class InternedField : protozero::pbf_tag_type {
  kFunctionNames = 5,
  kFrames = 6,
  kCallstacks = 7,
  kMappingPaths = 17,
  kSourcePaths = 18,
  kMappings = 19
};
enum class StringField : protozero::pbf_tag_type { kId = 1, kText = 2 };
enum class MappingField : protozero::pbf_tag_type { kId = 1, kPathIds = 7 };
enum class FrameField : protozero::pbf_tag_type {
  kId = 1,
  kFunctionId = 2,
  kMappingId = 3,
  kRelativeAddress = 4,
  kSourcePathId = 5,
  kLine = 6
};
enum class CallstackField : protozero::pbf_tag_type { kId = 1, kFrameIds = 2 };
enum class ProfileField : protozero::pbf_tag_type { kProcess = 5, kIndex = 7 };
enum class ProcessField : protozero::pbf_tag_type {
  kPid = 1,
  kSample = 2,
  kTimestamp = 9,
  kHeapName = 11,
  kPeriod = 12
};
enum class SampleField : protozero::pbf_tag_type {
  kCallstackId = 1,
  kAllocated = 2,
  kFreed = 3,
  kAllocatedObjects = 5,
  kFreedObjects = 6
};

// SEQ_INCREMENTAL_STATE_CLEARED, SEQ_NEEDS_INCREMENTAL_STATE
constexpr uint32_t kFlags = 3;
constexpr uint32_t kSequence = 1;
// Nanoseconds. The UI shows nothing at 0.
constexpr uint64_t kMoment = 1'000'000'000;

// Ids of interned values begin at 1.
uint64_t ToId(uint64_t number) { return number + 1; }

class Interned {
 public:
  explicit Interned(const NamedProfile& profile) : profile_(profile), out_(text_) {}

  uint64_t Callstack(const Path& path) {
    std::vector<uint64_t> frames;
    frames.reserve(path.frames.size() + 1);
    for (size_t i = path.frames.size(); i-- > 0;) frames.push_back(Frame(path.frames[i]));
    if (frames.empty()) frames.push_back(UnknownFrame());
    const uint64_t id = ++callstacks_;
    protozero::pbf_builder<CallstackField> message(out_, InternedField::kCallstacks);
    message.add_uint64(CallstackField::kId, id);
    for (const uint64_t frame : frames) message.add_uint64(CallstackField::kFrameIds, frame);
    return id;
  }

  const std::string& text() const { return text_; }

 private:
  // Texts are interned separately for each use.
  uint64_t Text(InternedField use, std::string text) {
    const auto [entry, is_new] = texts_[use].try_emplace(std::move(text), texts_[use].size());
    if (is_new) {
      protozero::pbf_builder<StringField> message(out_, use);
      message.add_uint64(StringField::kId, ToId(entry->second));
      message.add_bytes(StringField::kText, entry->first);
    }
    return ToId(entry->second);
  }

  uint64_t Mapping(TextId library) {
    const auto [entry, is_new] = mappings_.try_emplace(library, mappings_.size());
    if (is_new) {
      const uint64_t path = Text(InternedField::kMappingPaths, std::string(profile_.text(library)));
      protozero::pbf_builder<MappingField> message(out_, InternedField::kMappings);
      message.add_uint64(MappingField::kId, ToId(entry->second));
      message.add_uint64(MappingField::kPathIds, path);
    }
    return ToId(entry->second);
  }

  uint64_t Frame(FrameId frame_id) {
    const auto [entry, is_new] = frames_.try_emplace(frame_id, next_frame_);
    if (is_new) Add(profile_.frame(frame_id));
    return ToId(entry->second);
  }

  void Add(const NamedFrame& frame) {
    const uint64_t function = Text(InternedField::kFunctionNames, std::string(profile_.text(frame.function)));
    const uint64_t mapping = Mapping(frame.library);
    const uint64_t source =
        frame.file == 0 ? 0 : Text(InternedField::kSourcePaths, std::string(profile_.text(frame.file)));
    const uint64_t number = next_frame_++;
    protozero::pbf_builder<FrameField> message(out_, InternedField::kFrames);
    message.add_uint64(FrameField::kId, ToId(number));
    message.add_uint64(FrameField::kFunctionId, function);
    message.add_uint64(FrameField::kMappingId, mapping);
    message.add_uint64(FrameField::kRelativeAddress, number);
    if (source != 0) message.add_uint64(FrameField::kSourcePathId, source);
    if (frame.line != 0) message.add_uint32(FrameField::kLine, frame.line);
  }

  uint64_t UnknownFrame() {
    if (unknown_ == 0) {
      const uint64_t function = Text(InternedField::kFunctionNames, NameOfUnknown());
      unknown_ = ToId(next_frame_++);
      protozero::pbf_builder<FrameField> message(out_, InternedField::kFrames);
      message.add_uint64(FrameField::kId, unknown_);
      message.add_uint64(FrameField::kFunctionId, function);
    }
    return unknown_;
  }

  const NamedProfile& profile_;
  std::string text_;
  protozero::pbf_builder<InternedField> out_;
  std::map<InternedField, absl::flat_hash_map<std::string, uint64_t>> texts_;
  absl::flat_hash_map<TextId, uint64_t> mappings_;
  absl::flat_hash_map<FrameId, uint64_t> frames_;
  uint64_t next_frame_ = 0;
  uint64_t unknown_ = 0;
  uint64_t callstacks_ = 0;
};

void AddSample(protozero::pbf_builder<ProcessField>& process, uint64_t callstack, const Measures& measures) {
  // A dump without counts of allocations still has its live ones.
  const double bytes = std::max(measures.allocated.bytes, measures.live.bytes);
  const double objects = std::max(measures.allocated.objects, measures.live.objects);
  protozero::pbf_builder<SampleField> sample(process, ProcessField::kSample);
  sample.add_uint64(SampleField::kCallstackId, callstack);
  sample.add_uint64(SampleField::kAllocated, profile::ToWhole(bytes));
  sample.add_uint64(SampleField::kFreed, profile::ToWhole(bytes - measures.live.bytes));
  sample.add_uint64(SampleField::kAllocatedObjects, profile::ToWhole(objects));
  sample.add_uint64(SampleField::kFreedObjects, profile::ToWhole(objects - measures.live.objects));
}

}  // namespace

std::string Perfetto(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject, uint64_t pid) {
  Interned interned(profile);
  std::string samples;
  protozero::pbf_builder<ProcessField> process(samples);
  process.add_uint64(ProcessField::kPid, pid);
  process.add_uint64(ProcessField::kTimestamp, kMoment);
  process.add_string(ProcessField::kHeapName, "malloc");
  process.add_uint64(ProcessField::kPeriod, subject.period);
  for (const Path& path : paths) AddSample(process, interned.Callstack(path), path.measures);

  std::string message;
  protozero::pbf_builder<PacketField> packet(message);
  packet.add_uint64(PacketField::kTimestamp, kMoment);
  packet.add_uint32(PacketField::kSequence, kSequence);
  packet.add_uint32(PacketField::kSequenceFlags, kFlags);
  packet.add_message(PacketField::kInternedData, interned.text());
  std::string dump;
  protozero::pbf_builder<ProfileField> profile_packet(dump);
  profile_packet.add_message(ProfileField::kProcess, samples);
  profile_packet.add_uint64(ProfileField::kIndex, 0);
  packet.add_message(PacketField::kProfile, dump);
  std::string trace;
  protozero::pbf_builder<TraceField>(trace).add_message(TraceField::kPacket, message);
  return trace;
}

}  // namespace heaptap::report
