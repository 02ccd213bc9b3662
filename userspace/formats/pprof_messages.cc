// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/pprof_messages.h"

#include <limits.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "userspace/base/message_fields.h"
#include "userspace/elf/mappings.h"
#include "userspace/formats/pprof_fields.h"

namespace heaptap::formats::pprof {
namespace {

constexpr size_t kMaxComments = 64;

class MessageReader {
 public:
  explicit MessageReader(absl::string_view bytes) : bytes_(bytes) {}

  absl::StatusOr<Messages> Read() && {
    std::vector<absl::string_view> mappings;  // they name texts, which may come later
    absl::string_view part;
    uint64_t period = 0;
    absl::Status inner;
    absl::Status status = base::ReadFields<ProfileField>(bytes_, kPprofProfile, [&](auto& in) {
      const auto message = [&](ProfileField field, auto read) {
        if (!in.Take(field, part)) return false;
        inner.Update(read());
        return true;
      };
      if (!inner.ok()) return false;
      return message(ProfileField::kSample, [&] { return Add(part, "samples", out_.samples); }) ||
             message(ProfileField::kLocation, [&] { return ReadLocation(part); }) ||
             message(ProfileField::kFunction, [&] { return ReadFunction(part); }) ||
             message(ProfileField::kStringTable, [&] { return Add(part, "texts", out_.texts); }) ||
             message(ProfileField::kMapping, [&] { return Add(part, "mappings", mappings, elf::kMaxMappings); }) ||
             message(ProfileField::kSampleType, [&] { return ReadValueType(part, out_.value_types); }) ||
             message(ProfileField::kPeriodType, [&] { return ReadPeriodType(part); }) ||
             in.Take(ProfileField::kPeriod, period) || in.Take(ProfileField::kComment, out_.comments, kMaxComments);
    });
    if (!inner.ok()) return inner;
    if (!status.ok()) return status;
    out_.period = static_cast<int64_t>(period);
    for (const absl::string_view mapping : mappings) {
      if (absl::Status added = ReadMapping(mapping); !added.ok()) return added;
    }
    return std::move(out_);
  }

 private:
  template <typename T, typename List>
  static absl::Status Add(T entry, absl::string_view what, List& list, size_t most = kMaxPprofEntries) {
    if (list.size() == most) return WrongPprof(absl::StrCat("more than ", most, " ", what));
    list.push_back(std::move(entry));
    return absl::OkStatus();
  }

  static absl::Status ReadValueType(absl::string_view bytes, ValueType& type) {
    return base::ReadFields<ValueTypeField>(bytes, kPprofProfile, [&](auto& in) {
      return in.Take(ValueTypeField::kType, type.type) || in.Take(ValueTypeField::kUnit, type.unit);
    });
  }
  static absl::Status ReadValueType(absl::string_view bytes, std::vector<ValueType>& types) {
    if (types.size() == kMaxPprofValues)
      return WrongPprof(absl::StrCat("more than ", kMaxPprofValues, " sample types"));
    return ReadValueType(bytes, types.emplace_back());
  }
  absl::Status ReadPeriodType(absl::string_view bytes) { return ReadValueType(bytes, out_.period_type); }

  absl::Status ReadFunction(absl::string_view bytes) {
    uint64_t id = 0;
    Function function;
    absl::Status status = base::ReadFields<FunctionField>(bytes, kPprofProfile, [&](auto& in) {
      return in.Take(FunctionField::kId, id) || in.Take(FunctionField::kName, function.name) ||
             in.Take(FunctionField::kSystemName, function.linkage_name) ||
             in.Take(FunctionField::kFilename, function.file);
    });
    if (!status.ok()) return status;
    if (out_.functions.size() == kMaxPprofEntries) return WrongPprof("too many functions");
    if (!out_.functions.emplace(id, function).second) return WrongPprof(absl::StrCat("function ", id, " comes twice"));
    return absl::OkStatus();
  }

  absl::Status ReadLocation(absl::string_view bytes) {
    uint64_t id = 0;
    Location location = {.first_line = out_.lines.size()};
    absl::string_view part;
    absl::Status inner;
    absl::Status status = base::ReadFields<LocationField>(bytes, kPprofProfile, [&](auto& in) {
      if (in.Take(LocationField::kLine, part)) {
        inner.Update(ReadLine(part));
        return true;
      }
      return in.Take(LocationField::kId, id) || in.Take(LocationField::kMappingId, location.mapping) ||
             in.Take(LocationField::kAddress, location.address);
    });
    if (!inner.ok()) return inner;
    if (!status.ok()) return status;
    location.lines = out_.lines.size() - location.first_line;
    if (location.lines > kMaxPprofFunctions)
      return WrongPprof(absl::StrCat("location ", id, " has too many functions"));
    if (absl::Status added = Add(id, "locations", out_.location_order); !added.ok()) return added;
    if (!out_.locations.emplace(id, location).second) return WrongPprof(absl::StrCat("location ", id, " comes twice"));
    return absl::OkStatus();
  }

  absl::Status ReadLine(absl::string_view bytes) {
    Line line;
    uint64_t number = 0;
    absl::Status status = base::ReadFields<LineField>(bytes, kPprofProfile, [&](auto& in) {
      return in.Take(LineField::kFunctionId, line.function) || in.Take(LineField::kLine, number);
    });
    if (!status.ok()) return status;
    line.line = number > UINT32_MAX ? 0 : static_cast<uint32_t>(number);
    return Add(line, "lines", out_.lines);
  }

  absl::Status ReadMapping(absl::string_view bytes) {
    elf::Mapping mapping;
    uint64_t path = 0;
    uint64_t build_id = 0;
    absl::Status status = base::ReadFields<MappingField>(bytes, kPprofProfile, [&](auto& in) {
      return in.Take(MappingField::kMemoryStart, mapping.start) || in.Take(MappingField::kMemoryLimit, mapping.end) ||
             in.Take(MappingField::kFileOffset, mapping.file_offset) || in.Take(MappingField::kFilename, path) ||
             in.Take(MappingField::kBuildId, build_id);
    });
    if (!status.ok()) return status;
    if (path >= std::max<size_t>(out_.texts.size(), 1) || build_id >= std::max<size_t>(out_.texts.size(), 1)) {
      return WrongPprof("a mapping names a text that is not there");
    }
    // Go and others have mappings without a place, which only tell something about their functions.
    if (mapping.start >= mapping.end || out_.texts.empty()) return absl::OkStatus();
    if (out_.texts[path].size() > PATH_MAX) return WrongPprof("a mapping has too long a path");
    mapping.path = std::string(out_.texts[path]);
    // Others write build ids of another form, which name no file here.
    mapping.build_id = elf::BuildIdOfHex(out_.texts[build_id]).value_or("");
    return out_.mappings.Add(std::move(mapping)) ? absl::OkStatus() : WrongPprof("too many mappings");
  }

  const absl::string_view bytes_;
  Messages out_;
};

}  // namespace

absl::StatusOr<Messages> ReadMessages(absl::string_view bytes) { return MessageReader(bytes).Read(); }

}  // namespace heaptap::formats::pprof
