// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/firefox.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/json/json.h"
#include "userspace/profile/frame_names.h"
#include "userspace/report/json_column.h"
#include "userspace/report/rows.h"

namespace heaptap::report {
namespace {

using json::Json;

constexpr int kProcessedVersion = 48;
constexpr int kGeckoVersion = 29;  // of the other format; the profiler requires one
constexpr int kLibraryResource = 1;
constexpr int64_t kNone = -1;
// Milliseconds. All memory is allocated first, then some of it is freed.
constexpr int64_t kAllocationTime = 0;
constexpr int64_t kDeallocationTime = 1;
// A freed amount below this comes from the rounding of estimates.
constexpr double kLeastFreed = 0.5;

// A table of the format: columns of one length, and the length.
std::string TableText(std::initializer_list<const JsonColumn*> columns, size_t length) {
  std::string text = "{";
  for (const JsonColumn* column : columns) absl::StrAppend(&text, column->Text(), ",");
  return absl::StrCat(text, "\"length\":", length, "}");
}

// A column of `length` equal values.
std::string Same(absl::string_view name, absl::string_view value, size_t length) {
  return absl::StrCat("\"", name, "\":[", absl::StrJoin(std::vector<absl::string_view>(length, value), ","), "],");
}

class FirefoxWriter {
 public:
  explicit FirefoxWriter(const NamedProfile& profile) : profile_(profile) {}

  std::string Write(absl::Span<const Path> paths, const Subject& subject, uint64_t pid) && {
    for (const Path& path : paths) AddAllocations(path);
    for (const auto& [stack, freed, address] : freed_) AddAllocation(kDeallocationTime, stack, -freed, address);
    return absl::StrCat("{\"meta\":", Meta(subject), ",\"libs\":", libraries_.Text(), ",\"threads\":[",
                        ThreadText(subject, pid), "]}\n");
  }

 private:
  static std::string Meta(const Subject& subject) {
    Json subcategories = Json::List();
    subcategories.Add("Other");
    Json categories = Json::List();
    categories.Add({{"name", "Other"}, {"color", "grey"}, {"subcategories", std::move(subcategories)}});
    return Json{{"interval", 1},
                {"startTime", 0},
                {"processType", 0},
                {"product", subject.name},
                {"importedFrom", absl::StrCat("heaptap ", HEAPTAP_VERSION)},
                {"stackwalk", 1},
                {"debug", false},
                {"version", kGeckoVersion},
                {"preprocessedProfileVersion", kProcessedVersion},
                {"symbolicated", true},
                {"symbolicationNotSupported", true},
                {"usesOnlyOneStackType", true},
                {"doesNotUseFrameImplementation", true},
                {"sourceCodeIsNotOnSearchfox", true},
                {"categories", std::move(categories)},
                {"markerSchema", Json::List()}}
        .Text();
  }

  std::string ThreadText(const Subject& subject, uint64_t pid) const {
    const std::string process = absl::StrCat("\"", pid, "\"");
    return absl::StrCat(
        "{\"processType\":\"default\",\"processStartupTime\":0,\"processShutdownTime\":null,\"registerTime\":0,",
        "\"unregisterTime\":null,\"pausedRanges\":[],\"isMainThread\":true,\"name\":\"heap\",\"processName\":",
        Json(subject.name).Text(), ",\"pid\":", process, ",\"tid\":", pid,
        ",\"samples\":{\"stack\":[],\"time\":[],\"weight\":null,\"weightType\":\"samples\",\"length\":0},",
        "\"markers\":{\"data\":[],\"name\":[],\"startTime\":[],\"endTime\":[],\"phase\":[],\"category\":[],",
        "\"length\":0},\"nativeSymbols\":{\"libIndex\":[],\"address\":[],\"name\":[],\"functionSize\":[],",
        "\"length\":0},\"nativeAllocations\":{\"weightType\":\"bytes\",",
        Same("threadId", absl::StrCat(pid), allocations_),
        TableText({&time_, &stack_, &weight_, &memory_address_}, allocations_).substr(1), ",\"stackTable\":{",
        Zeros(stacks_), TableText({&stack_frame_, &prefix_}, stacks_).substr(1), ",\"frameTable\":{",
        Zeros(frame_count_), Same("address", "-1", frame_count_), Same("innerWindowID", "null", frame_count_),
        Same("nativeSymbol", "null", frame_count_), Same("implementation", "null", frame_count_),
        Same("column", "null", frame_count_), TableText({&function_, &inline_depth_, &line_}, frame_count_).substr(1),
        ",\"funcTable\":{", Same("isJS", "false", functions_.size()), Same("relevantForJS", "false", functions_.size()),
        Same("lineNumber", "null", functions_.size()), Same("columnNumber", "null", functions_.size()),
        TableText({&name_, &resource_, &file_}, functions_.size()).substr(1), ",\"resourceTable\":{",
        Same("host", "null", resources_.size()), Same("type", absl::StrCat(kLibraryResource), resources_.size()),
        TableText({&library_, &resource_name_}, resources_.size()).substr(1), ",\"stringArray\":", Json(texts_).Text(),
        "}");
  }

  static std::string Zeros(size_t length) { return Same("category", "0", length) + Same("subcategory", "0", length); }

  void AddAllocations(const Path& path) {
    const double live = path.measures.live.bytes;
    // The part of the allocated memory that is freed. A difference also frees memory that was there before, which does
    // not count here.
    const double freed = path.measures.allocated.bytes - std::max(live, 0.0);
    if (!(live > 0) && !(freed >= kLeastFreed)) return;
    const int64_t stack = StackOf(path);
    if (live > 0) AddAllocation(kAllocationTime, stack, live, next_address_++);
    if (freed < kLeastFreed) return;
    AddAllocation(kAllocationTime, stack, freed, next_address_);
    freed_.push_back({stack, freed, next_address_++});
  }

  void AddAllocation(int64_t time, int64_t stack, double bytes, int64_t address) {
    time_.Add(time);
    stack_.Add(stack);
    weight_.AddEstimate(bytes);
    memory_address_.Add(address);
    allocations_++;
  }

  // The number of the innermost entry of the table of stacks.
  int64_t StackOf(const Path& path) {
    int64_t stack = kNone;
    for (size_t i = path.frames.size(); i-- > 0;) stack = EntryOf(stack, FrameOf(path.frames, i));
    return path.frames.empty() ? EntryOf(kNone, UnknownFrame()) : stack;
  }

  int64_t EntryOf(int64_t parent, int64_t frame) {
    const auto [entry, is_new] = entries_.try_emplace({parent, frame}, static_cast<int64_t>(stacks_));
    if (is_new) {
      parent == kNone ? prefix_.AddNull() : prefix_.Add(parent);
      stack_frame_.Add(frame);
      stacks_++;
    }
    return entry->second;
  }

  int64_t FrameOf(absl::Span<const FrameId> frames, size_t at) {
    // Frames that are inlined into each other have depths from 0, outermost first.
    int64_t depth = 0;
    if (profile_.frame(frames[at]).is_inline) {
      for (size_t i = at; i < frames.size() && profile_.frame(frames[i]).is_inline; i++) depth++;
    }
    const auto [entry, is_new] = frame_ids_.try_emplace({frames[at], depth}, static_cast<int64_t>(frame_count_));
    if (is_new) {
      const NamedFrame& frame = profile_.frame(frames[at]);
      AddFrame(FunctionOf(frame.function, frame.file, frame.library), depth, frame.line);
    }
    return entry->second;
  }

  int64_t UnknownFrame() {
    if (unknown_frame_ == kNone) {
      unknown_frame_ = static_cast<int64_t>(frame_count_);
      // No function of the profile has a name with this number.
      const auto function = static_cast<int64_t>(functions_.size());
      functions_[{UINT32_MAX, 0, 0}] = function;
      name_.Add(TextOf(NameOfUnknown()));
      resource_.Add(kNone);
      file_.AddNull();
      AddFrame(function, 0, 0);
    }
    return unknown_frame_;
  }

  void AddFrame(int64_t function, int64_t depth, uint32_t line) {
    function_.Add(function);
    inline_depth_.Add(depth);
    line == 0 ? line_.AddNull() : line_.Add(line);
    frame_count_++;
  }

  int64_t FunctionOf(TextId name, TextId file, TextId library) {
    const auto [entry, is_new] =
        functions_.try_emplace(std::array<TextId, 3>{name, file, library}, static_cast<int64_t>(functions_.size()));
    if (is_new) {
      name_.Add(TextOf(profile_.text(name)));
      resource_.Add(library == 0 ? kNone : ResourceOf(library));
      file == 0 ? file_.AddNull() : file_.Add(TextOf(profile_.text(file)));
    }
    return entry->second;
  }

  // A resource is a library here.
  int64_t ResourceOf(TextId library) {
    const auto [entry, is_new] = resources_.try_emplace(library, static_cast<int64_t>(resources_.size()));
    if (is_new) {
      const absl::string_view path = profile_.text(library);
      const absl::string_view name = profile::FileName(path);
      library_.Add(entry->second);
      resource_name_.Add(TextOf(name));
      libraries_.Add({{"arch", "x86_64"},
                      {"name", name},
                      {"path", path},
                      {"debugName", name},
                      {"debugPath", path},
                      {"breakpadId", ""},
                      {"codeId", Json()}});
    }
    return entry->second;
  }

  int64_t TextOf(absl::string_view text) {
    const auto [entry, is_new] = text_ids_.try_emplace(std::string(text), static_cast<int64_t>(texts_.size()));
    if (is_new) texts_.emplace_back(text);
    return entry->second;
  }

  struct Freed {
    int64_t stack;
    double bytes;
    int64_t address;
  };

  const NamedProfile& profile_;
  std::vector<std::string> texts_;
  absl::flat_hash_map<std::string, int64_t> text_ids_;
  Json libraries_ = Json::List();
  // Tables of the format, and the numbers of their entries.
  absl::flat_hash_map<TextId, int64_t> resources_;
  JsonColumn library_{"lib"}, resource_name_{"name"};
  absl::flat_hash_map<std::array<TextId, 3>, int64_t> functions_;
  JsonColumn name_{"name"}, resource_{"resource"}, file_{"fileName"};
  absl::flat_hash_map<std::pair<FrameId, int64_t>, int64_t> frame_ids_;
  JsonColumn function_{"func"}, inline_depth_{"inlineDepth"}, line_{"line"};
  size_t frame_count_ = 0;
  int64_t unknown_frame_ = kNone;
  absl::flat_hash_map<std::pair<int64_t, int64_t>, int64_t> entries_;  // of stacks, by parent and frame
  JsonColumn stack_frame_{"frame"}, prefix_{"prefix"};
  size_t stacks_ = 0;
  JsonColumn time_{"time"}, stack_{"stack"}, weight_{"weight"}, memory_address_{"memoryAddress"};
  size_t allocations_ = 0;
  int64_t next_address_ = 1;
  std::vector<Freed> freed_;
};

}  // namespace

std::string Firefox(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject, uint64_t pid) {
  return FirefoxWriter(profile).Write(paths, subject, pid);
}

}  // namespace heaptap::report
