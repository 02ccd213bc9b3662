// SPDX-License-Identifier: Apache-2.0
#include "userspace/targets/target_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/files.h"

namespace heaptap::recording {
namespace {

constexpr char kSuffix[] = ".json";

// Text that a process chose may hold any byte, but JSON is UTF-8.
std::string ToJson(absl::string_view text) { return absl::CHexEscape(text); }
std::string FromJson(const std::string& text) {
  std::string result;
  return absl::CUnescape(text, &result) ? result : "";
}

nlohmann::json MappingToJson(const elf::Mapping& mapping) {
  return {mapping.start, mapping.end,          mapping.file_offset, mapping.device_major, mapping.device_minor,
          mapping.inode, ToJson(mapping.path), mapping.deleted,     mapping.generation};
}

elf::Mapping MappingFromJson(const nlohmann::json& json) {
  return {.start = json.at(0),
          .end = json.at(1),
          .file_offset = json.at(2),
          .device_major = json.at(3),
          .device_minor = json.at(4),
          .inode = json.at(5),
          .generation = json.size() > 8 ? json.at(8).get<uint32_t>() : 0,
          .path = FromJson(json.at(6)),
          .deleted = json.at(7)};
}

nlohmann::json FormerToJson(const elf::FormerMapping& former) {
  return {MappingToJson(*former.mapping), former.start, former.until};
}

elf::FormerMapping FormerFromJson(const nlohmann::json& json) {
  return {.mapping = std::make_shared<const elf::Mapping>(MappingFromJson(json.at(0))),
          .start = json.at(1),
          .until = json.at(2)};
}

std::string ReadLayout(const std::string& folder) {
  std::ifstream file(absl::StrCat(folder, "/layout"));
  std::string layout;
  std::getline(file, layout);
  return layout;
}

nlohmann::json AskedToJson(const Target& target) {
  return target.control->asked_lg_sample.has_value() ? nlohmann::json(*target.control->asked_lg_sample)
                                                     : nlohmann::json();
}

nlohmann::json TextsToJson(const std::vector<std::string>& texts) {
  nlohmann::json json = nlohmann::json::array();
  for (const std::string& text : texts) json.push_back(ToJson(text));
  return json;
}

nlohmann::json FactsToJson(const KnownFacts& facts) {
  nlohmann::json json = {{"control_groups", TextsToJson(facts.control_groups)}};
  if (facts.user.has_value()) json["user"] = *facts.user;
  if (facts.control_group.has_value()) json["control_group"] = ToJson(*facts.control_group);
  if (facts.service.has_value()) json["service"] = ToJson(*facts.service);
  return json;
}

KnownFacts FactsFromJson(const nlohmann::json& json) {
  KnownFacts facts;
  for (const nlohmann::json& text : json.at("control_groups")) facts.control_groups.push_back(FromJson(text));
  if (json.contains("user")) facts.user = json.at("user");
  if (json.contains("control_group")) facts.control_group = FromJson(json.at("control_group"));
  if (json.contains("service")) facts.service = FromJson(json.at("service"));
  return facts;
}

uint32_t RateFromJson(const nlohmann::json& json) {
  return std::min<uint32_t>(json.get<uint32_t>(), HEAPTAP_MAX_LG_SAMPLE);
}

Target TargetFromJson(const nlohmann::json& json) {
  // Older states have none.
  const auto asked = json.find("asked_lg_sample");
  Control control;
  if (asked != json.end() && !asked->is_null()) control.asked_lg_sample = RateFromJson(*asked);
  return {.process_id = json.at("process_id"),
          .pid = json.at("pid"),
          .name = FromJson(json.at("name")),
          .image = Image{.has_started = json.at("started"),
                         .control_address = json.at("control_address"),
                         .allocator = {json.at("allocator").at(0), json.at("allocator").at(1)},
                         .lg_sample = RateFromJson(json.at("own_lg_sample")),
                         .max_frames = json.at("max_frames"),
                         .raw = json.at("raw")},
          .control = std::move(control),
          .books = BookFigures{.since = absl::FromUnixNanos(json.at("since").get<int64_t>())},
          .requested = Requested{.own_final = json.at("own_final")},
          // Older states have none.
          .facts = json.contains("facts") ? FactsFromJson(json.at("facts")) : KnownFacts()};
}

absl::Status Failure(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(absl::StrCat(what, " ", path, ": ", strerror(errno)));
}

}  // namespace

std::string WriteTargetState(const Target& target, const AddressSpace& space) {
  nlohmann::json mappings = nlohmann::json::array();
  for (const elf::Mapping& mapping : space.mappings) mappings.push_back(MappingToJson(mapping));
  nlohmann::json former = nlohmann::json::array();
  for (const elf::FormerMapping& one : space.mappings.former()) former.push_back(FormerToJson(one));
  nlohmann::json forgotten = nlohmann::json::array();
  for (const elf::ForgottenRange& one : space.mappings.forgotten()) {
    forgotten.push_back({one.begin, one.end, one.since, one.until});
  }
  return nlohmann::json({{"process_id", target.process_id},
                         {"pid", target.pid},
                         {"name", ToJson(target.name)},
                         {"since", absl::ToUnixNanos(target.books->since)},
                         {"started", target.image->has_started},
                         {"own_final", target.requested->own_final},
                         {"control_address", target.image->control_address},
                         {"allocator", {target.image->allocator.begin, target.image->allocator.end}},
                         {"own_lg_sample", target.image->lg_sample},
                         {"asked_lg_sample", AskedToJson(target)},
                         {"max_frames", target.image->max_frames},
                         {"raw", target.image->raw},
                         {"facts", FactsToJson(*target.facts)},
                         {"executable", ToJson(space.executable)},
                         {"mappings", mappings},
                         {"saved", base::Now().nanoseconds()},
                         {"former", former},
                         {"forgotten", forgotten}})
      .dump();
}

absl::StatusOr<TargetState> ParseTargetState(absl::string_view text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    TargetState state;
    state.target = TargetFromJson(json);
    state.space.executable = FromJson(json.at("executable"));
    for (const nlohmann::json& mapping : json.at("mappings")) state.space.mappings.Add(MappingFromJson(mapping));
    // States that were saved before there were former mappings have none, and no time.
    if (const auto saved = json.find("saved"); saved != json.end()) state.saved = *saved;
    if (const auto former = json.find("former"); former != json.end()) {
      for (const nlohmann::json& one : *former) state.space.mappings.AddFormer(FormerFromJson(one));
    }
    if (const auto forgotten = json.find("forgotten"); forgotten != json.end()) {
      for (const nlohmann::json& one : *forgotten) {
        state.space.mappings.AddForgotten(
            {.begin = one.at(0), .end = one.at(1), .since = one.at(2), .until = one.at(3)});
      }
    }
    return state;
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("the saved state of a process is malformed: ", error.what()));
  }
}

absl::StatusOr<TargetStates> TargetStates::Open(const std::string& folder, absl::string_view layout, bool adopted,
                                                base::Background& files) {
  TargetStates states(folder, std::string(layout), &files);
  if (absl::Status status = states.MakeFolder(); !status.ok()) return status;
  DIR* open = opendir(folder.c_str());
  if (open == nullptr) return Failure("cannot read", folder);
  const bool has_layout = ReadLayout(folder) == layout;
  const bool is_of_these_books = adopted && has_layout;
  while (const dirent* entry = readdir(open)) {
    absl::string_view name = entry->d_name;
    if (!absl::ConsumeSuffix(&name, kSuffix)) continue;
    if (!is_of_these_books) {
      unlinkat(dirfd(open), entry->d_name, 0);
    } else if (uint64_t process_id = 0; absl::SimpleAtoi(name, &process_id)) {
      states.saved_.insert(process_id);
    }
  }
  closedir(open);
  // A layout that is already there is not written again: a recorder that is killed while it writes would leave an empty
  // file, and the states would be lost.
  if (!has_layout) states.WriteLayout();
  return states;
}

absl::Status TargetStates::MakeFolder() const {
  return mkdir(folder_.c_str(), 0700) == 0 || errno == EEXIST ? absl::OkStatus() : Failure("cannot create", folder_);
}

void TargetStates::WriteLayout() const { std::ofstream(absl::StrCat(folder_, "/layout")) << layout_ << '\n'; }

TargetStates TargetStates::OfOther(const std::string& folder, absl::string_view layout) {
  // A folder that does not exist has no states.
  return TargetStates(ReadLayout(folder) == layout ? folder : absl::StrCat(folder, "/none"), std::string(layout),
                      nullptr);
}

std::string TargetStates::Path(uint64_t process_id) const { return absl::StrCat(folder_, "/", process_id, kSuffix); }

void TargetStates::Save(const Target& target, const AddressSpace& space,
                        std::function<void(const absl::Status&)> done) {
  saved_.insert(target.process_id);
  const auto status = std::make_shared<absl::Status>();
  files_->Run([this, process_id = target.process_id, text = WriteTargetState(target, space),
               status] { *status = Write(process_id, text); },
              [status, done = std::move(done)] { done(*status); });
}

absl::Status TargetStates::Write(uint64_t process_id, absl::string_view text) const {
  const std::string path = Path(process_id);
  const std::string temporary = absl::StrCat(path, ".new");
  const auto create = [&temporary] {
    return open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  };
  base::FileDescriptor file(create());
  if (!file.valid() && errno == ENOENT) {
    // Somebody has removed the folder.
    if (absl::Status status = MakeFolder(); !status.ok()) return status;
    WriteLayout();
    file.Reset(create());
  }
  if (!file.valid()) return Failure("cannot write", temporary);
  if (const int error = base::WriteAll(file.get(), text); error != 0) {
    errno = error;
    unlink(temporary.c_str());
    return Failure("cannot write", temporary);
  }
  return rename(temporary.c_str(), path.c_str()) == 0 ? absl::OkStatus() : Failure("cannot write", path);
}

absl::StatusOr<TargetState> TargetStates::Load(uint64_t process_id) const {
  if (files_ != nullptr && !saved_.contains(process_id)) return absl::NotFoundError("no state was saved");
  std::ifstream file(Path(process_id));
  if (!file) return absl::NotFoundError("no state was saved for the process");
  std::ostringstream text;
  text << file.rdbuf();
  return ParseTargetState(text.str());
}

void TargetStates::RemoveAll() const {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder_.c_str()), closedir);
  while (const dirent* entry = open == nullptr ? nullptr : readdir(open.get())) {
    if (absl::EndsWith(entry->d_name, kSuffix)) unlinkat(dirfd(open.get()), entry->d_name, 0);
  }
}

void TargetStates::Remove(uint64_t process_id) {
  if (saved_.erase(process_id) == 0) return;
  files_->Run([path = Path(process_id)] { unlink(path.c_str()); }, [] {});
}

}  // namespace heaptap::recording
