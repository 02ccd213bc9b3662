// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/heap_v2_reader.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/base/printable_text.h"
#include "userspace/elf/mappings.h"
#include "userspace/formats/text_profile.h"
#include "userspace/profile/unbias.h"

namespace heaptap::formats {
namespace {

using profile::Estimate;
using profile::Profile;

constexpr absl::string_view kHeapV2 = "heap_v2/";
constexpr absl::string_view kGperftools = "heap profile:";
constexpr absl::string_view kMappedLibraries = "MAPPED_LIBRARIES:";
// Bytes of a wrong line that a message shows.
constexpr size_t kShownBytes = 60;

// Takes a number without sign and blanks off the front of `text`. False: no number, or too large.
bool TakeNumber(absl::string_view& text, int base, uint64_t& number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc()) return false;
  text.remove_prefix(end - text.data());
  return true;
}

void SkipBlanks(absl::string_view& text) {
  while (absl::ConsumePrefix(&text, " ")) {
  }
}

// Takes "<objects>: <bytes>"; gperftools pads numbers with blanks.
bool TakeCount(absl::string_view& text, profile::BiasedCount& count) {
  SkipBlanks(text);
  if (!TakeNumber(text, 10, count.objects) || !absl::ConsumePrefix(&text, ":")) return false;
  SkipBlanks(text);
  return TakeNumber(text, 10, count.bytes);
}

struct Counts {
  profile::BiasedCount live;
  profile::BiasedCount allocated;
};

// Takes "<objects>: <bytes> [<objects>: <bytes>]".
bool TakeCounts(absl::string_view& text, Counts& counts) {
  if (!TakeCount(text, counts.live)) return false;
  SkipBlanks(text);
  return absl::ConsumePrefix(&text, "[") && TakeCount(text, counts.allocated) && absl::ConsumePrefix(&text, "]");
}

// Makes the estimates of threads add up to `total`.
void ScaleTo(const Estimate& total, std::vector<profile::ThreadShare>& shares, Estimate profile::ThreadShare::*which) {
  Estimate sum;
  for (const profile::ThreadShare& share : shares) sum += share.*which;
  for (profile::ThreadShare& share : shares) {
    Estimate& estimate = share.*which;
    if (sum.bytes > 0) estimate.bytes *= total.bytes / sum.bytes;
    if (sum.objects > 0) estimate.objects *= total.objects / sum.objects;
  }
}

// Replaces the share of all threads by the shares of single threads, each once. `shares` are sorted by tid.
void Separate(std::vector<profile::ThreadShare> shares, profile::Context& context) {
  std::vector<profile::ThreadShare> merged;
  Estimate live;
  for (const profile::ThreadShare& share : shares) {
    live += share.live;
    if (merged.empty() || merged.back().tid != share.tid) {
      merged.push_back(share);
    } else {
      merged.back().live += share.live;
      merged.back().allocated += share.allocated;
    }
  }
  const profile::ThreadShare all = context.threads[0];
  // Other writers may leave threads out.
  if (merged.empty() || live.IsZero() != all.live.IsZero()) return;
  ScaleTo(all.live, merged, &profile::ThreadShare::live);
  ScaleTo(all.allocated, merged, &profile::ThreadShare::allocated);
  context.threads = std::move(merged);
}

class Reader {
 public:
  Reader(absl::string_view text, absl::string_view name, ReadThreads threads)
      : rest_(text), name_(name), threads_(threads) {}

  absl::StatusOr<Profile> Read() && {
    if (absl::Status status = ReadHead(); !status.ok()) return status;
    absl::Status status = is_gperftools_ ? ReadGperftools() : ReadThreaded();
    if (!status.ok()) return status;
    if (status = ReadMappedLibraries(); !status.ok()) return status;
    for (auto& shares : shares_) std::ranges::stable_sort(shares, {}, &profile::ThreadShare::tid);
    ApplyComments();
    for (size_t i = 0; i < shares_.size(); i++) Separate(std::move(shares_[i]), profile_.contexts[i]);
    return std::move(profile_);
  }

 private:
  // The next line, without its line end; nothing at the end of the text.
  bool NextLine() {
    if (rest_.empty()) {
      line_ = {};
      return false;
    }
    const size_t end = rest_.find('\n');
    is_cut_ = end == absl::string_view::npos;
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(is_cut_ ? rest_.size() : end + 1);
    number_++;
    return true;
  }

  absl::Status Wrong(absl::string_view what) const {
    const absl::string_view cut = is_cut_ ? " (the file was cut off there)" : "";
    return absl::InvalidArgumentError(absl::StrCat(base::Printable(name_), ":", number_, ": ", what, cut));
  }
  absl::Status WrongLine(absl::string_view expected) const {
    return Wrong(absl::StrCat(expected, " is expected, not '", base::Printable(line_.substr(0, kShownBytes)), "'"));
  }

  absl::Status ReadHead() {
    constexpr absl::string_view kGzip = "\x1f\x8b";
    if (absl::StartsWith(rest_, kGzip)) {
      number_ = 1;
      return Wrong("this file is compressed or a pprof profile; heap_v2 or gperftools' text is expected");
    }
    while (NextLine()) {
      absl::string_view line = line_;
      if (absl::ConsumePrefix(&line, "%warn ")) {
        profile_.warnings.emplace_back(line);
      } else if (absl::ConsumePrefix(&line, kHeapV2)) {
        return ReadPeriod(line);
      } else if (absl::ConsumePrefix(&line, kGperftools)) {
        return ReadGperftoolsHead(line);
      } else {
        break;
      }
    }
    if (number_ == 0) return absl::InvalidArgumentError(absl::StrCat(base::Printable(name_), ": the file is empty"));
    return WrongLine("a heap profile's first line (heap_v2/... or heap profile: ...)");
  }

  absl::Status ReadPeriod(absl::string_view text) {
    if (!TakeNumber(text, 10, profile_.period) || profile_.period == 0 || !text.empty() || is_cut_) {
      return WrongLine("heap_v2/<mean bytes between samples>");
    }
    return absl::OkStatus();
  }

  absl::Status ReadGperftoolsHead(absl::string_view line) {
    is_gperftools_ = true;
    Counts totals;
    if (!TakeCounts(line, totals)) return WrongLine("heap profile: <objects>: <bytes> [<objects>: <bytes>] @ ...");
    SkipBlanks(line);
    if (!absl::ConsumePrefix(&line, "@")) return WrongLine("@ heap_v2/<period> at its end");
    SkipBlanks(line);
    if (line == "heapprofile" && !is_cut_) {
      is_sampled_ = false;
      return absl::OkStatus();
    }
    if (!absl::ConsumePrefix(&line, kHeapV2)) return WrongLine("@ heap_v2/<period> or @ heapprofile at its end");
    return ReadPeriod(line);
  }

  absl::Status ReadThreaded() {
    bool in_head = true;
    std::optional<std::vector<uint64_t>> stack;  // the latest stack, until its line of all threads
    while (NextLine() && !line_.empty()) {
      if (is_cut_) return WrongLine("a whole line");
      absl::string_view line = line_;
      if (absl::ConsumePrefix(&line, "@")) {
        if (stack.has_value()) return Wrong("the stack before this one has no line of all threads (t*)");
        absl::StatusOr<std::vector<uint64_t>> frames = ReadFrames(line);
        if (!frames.ok()) return frames.status();
        stack = *std::move(frames);
        in_head = false;
        continue;
      }
      SkipBlanks(line);
      uint64_t tid = 0;
      const bool is_thread = absl::ConsumePrefix(&line, "t");
      const bool is_all = is_thread && absl::ConsumePrefix(&line, "*");
      Counts counts;
      if (!is_thread || !(is_all || TakeNumber(line, 10, tid)) || !absl::ConsumePrefix(&line, ":") ||
          !TakeCounts(line, counts) || !(line.empty() || line[0] == ' ')) {
        return WrongLine("t<thread>: <objects>: <bytes> [<objects>: <bytes>], or @ and a stack,");
      }
      if (!is_all && threads_ == ReadThreads::kSeparate) AddThread(tid, counts, line, in_head, stack.has_value());
      if (!is_all || in_head) continue;
      if (!stack.has_value()) return Wrong("a second line of all threads for one stack");
      if (absl::Status status = Add(*std::exchange(stack, std::nullopt), counts); !status.ok()) return status;
    }
    return stack.has_value() ? Wrong("the last stack has no line of all threads (t*)") : absl::OkStatus();
  }

  absl::Status ReadGperftools() {
    while (NextLine() && !line_.empty() && line_ != kMappedLibraries) {
      if (is_cut_) return WrongLine("a whole line");
      absl::string_view line = line_;
      Counts counts;
      const bool has_counts = TakeCounts(line, counts);
      SkipBlanks(line);
      if (!has_counts || !absl::ConsumePrefix(&line, "@")) {
        return WrongLine("<objects>: <bytes> [<objects>: <bytes>] @ and a stack");
      }
      absl::StatusOr<std::vector<uint64_t>> frames = ReadFrames(line);
      if (!frames.ok()) return frames.status();
      if (absl::Status status = Add(*std::move(frames), counts); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<uint64_t>> ReadFrames(absl::string_view line) const {
    std::vector<uint64_t> frames;
    while (!line.empty()) {
      const bool has_blank = line[0] == ' ';
      SkipBlanks(line);
      if (line.empty()) break;
      uint64_t address = 0;
      if (!has_blank || !absl::ConsumePrefix(&line, "0x") || !TakeNumber(line, 16, address)) {
        return WrongLine("@ and addresses (0x..., of 64 bits)");
      }
      if (frames.size() == kMaxReadFrames) return Wrong(absl::StrCat("more than ", kMaxReadFrames, " addresses"));
      frames.push_back(address);
    }
    if (frames.size() == 1 && frames[0] == kUnknownFrame) frames.clear();
    if (!frames.empty() && frames[0] != UINT64_MAX) frames[0]++;
    return frames;
  }

  // A line of a single thread: in the head with its name, or of the latest stack.
  void AddThread(uint64_t number, const Counts& counts, absl::string_view name, bool in_head, bool is_before_sum) {
    const auto tid = static_cast<uint32_t>(std::min<uint64_t>(number, UINT32_MAX));
    if (in_head) {
      SkipBlanks(name);
      if (profile_.thread_names.size() < kMaxReadThreads) profile_.thread_names.try_emplace(tid, name);
    } else if (!is_before_sum) {
      shares_.resize(profile_.contexts.size());
      shares_[latest_].push_back(
          {.tid = tid, .live = ToEstimate(counts.live), .allocated = ToEstimate(counts.allocated)});
    }
  }

  absl::Status Add(std::vector<uint64_t> frames, const Counts& counts) {
    const profile::ThreadShare share = {.live = ToEstimate(counts.live), .allocated = ToEstimate(counts.allocated)};
    if (auto known = by_frames_.find(frames); known != by_frames_.end()) {
      latest_ = known->second;
      contexts_of_stacks_.push_back(latest_);
      profile::ThreadShare& sum = profile_.contexts[known->second].threads[0];
      sum.live += share.live;
      sum.allocated += share.allocated;
      return absl::OkStatus();
    }
    if (profile_.contexts.size() == kMaxReadContexts) {
      return Wrong(absl::StrCat("more than ", kMaxReadContexts, " stacks"));
    }
    profile_.contexts.push_back({.frames = std::move(frames), .threads = {share}});
    latest_ = profile_.contexts.size() - 1;
    contexts_of_stacks_.push_back(latest_);
    // The frames stay in place when the vector of contexts grows.
    by_frames_[profile_.contexts.back().frames] = profile_.contexts.size() - 1;
    return absl::OkStatus();
  }

  Estimate ToEstimate(const profile::BiasedCount& count) const {
    Estimate estimate = {.samples = count.objects,
                         .sampled_bytes = count.bytes,
                         .objects = static_cast<double>(count.objects),
                         .bytes = static_cast<double>(count.bytes)};
    // Objects without bytes have no size, and so no probability of being a sample.
    if (!is_sampled_ || count.objects == 0 || count.bytes == 0) return estimate;
    const profile::UnbiasedCount unbiased = profile::Unbias(count, profile_.period);
    estimate.objects = unbiased.objects;
    estimate.bytes = unbiased.bytes;
    if (profile_.period > 1) estimate.variance = profile::VarianceOfEqualSamples(estimate);
    return estimate;
  }

  absl::Status ReadMappedLibraries() {
    while (line_ != kMappedLibraries) {
      if (!line_.empty()) return WrongLine("MAPPED_LIBRARIES:");
      if (!NextLine()) return absl::OkStatus();
    }
    if (is_cut_) return WrongLine("a whole line");
    elf::Mappings mappings;
    std::map<uint64_t, std::string> build_ids;  // by start
    while (NextLine()) {
      if (is_cut_) return WrongLine("a whole line");
      if (absl::StartsWith(line_, "#")) {
        ReadComment(line_, build_ids);
        continue;
      }
      // gperftools has a line here that is not a mapping.
      if (line_.empty() || absl::StartsWith(line_, "build=")) continue;
      absl::StatusOr<std::vector<elf::Mapping>> parsed = elf::ParseMaps(line_);
      if (!parsed.ok()) return WrongLine("a line as in /proc/PID/maps");
      for (elf::Mapping& mapping : *parsed) {
        if (!mappings.Add(std::move(mapping))) return Wrong(absl::StrCat("more than ", elf::kMaxMappings, " mappings"));
      }
    }
    profile_.mappings.assign(mappings.begin(), mappings.end());
    for (elf::Mapping& mapping : profile_.mappings) {
      if (const auto found = build_ids.find(mapping.start); found != build_ids.end()) mapping.build_id = found->second;
    }
    return absl::OkStatus();
  }

  // Skips comments that it does not know.
  void ReadComment(absl::string_view line, std::map<uint64_t, std::string>& build_ids) {
    if (absl::ConsumePrefix(&line, kTimeComment)) {
      absl::Time time;
      std::string error;
      if (absl::ParseTime(absl::RFC3339_full, line, &time, &error)) profile_.time = time;
    } else if (absl::ConsumePrefix(&line, kBuildIdComment)) {
      uint64_t start = 0;
      if (!TakeNumber(line, 16, start) || !absl::ConsumePrefix(&line, " ")) return;
      const std::optional<std::string> build_id = elf::BuildIdOfHex(line);
      if (build_id.has_value() && build_ids.size() < elf::kMaxMappings) build_ids[start] = *build_id;
    } else if (absl::ConsumePrefix(&line, kPeriodComment)) {
      uint64_t period = 0;
      if (TakeNumber(line, 10, period) && period > 0) period_comment_ = period;
    } else if (line == kSeveralPeriodsComment) {
      profile_.several_periods = true;
    } else if (absl::ConsumePrefix(&line, kCutComment)) {
      uint64_t stack = 0;
      if (TakeNumber(line, 10, stack)) MarkCut(stack);
    } else if (absl::ConsumePrefix(&line, kSamplesComment)) {
      SamplesComment comment;
      const bool is_whole = TakeNumber(line, 10, comment.stack) && absl::ConsumePrefix(&line, " t") &&
                            (absl::ConsumePrefix(&line, "*") || TakeNumber(line, 10, comment.tid.emplace())) &&
                            absl::ConsumePrefix(&line, ":") && TakeCounts(line, comment.samples);
      if (is_whole) samples_comments_.push_back(comment);
    }
  }

  // `stack`: its number in the file, from 1.
  void MarkCut(uint64_t stack) {
    if (stack == 0 || stack > contexts_of_stacks_.size()) return;
    profile_.contexts[contexts_of_stacks_[stack - 1]].truncated = true;
  }

  // Counts of these comments: objects are samples, bytes are standard errors.
  struct SamplesComment {
    uint64_t stack = 0;  // from 1
    std::optional<uint64_t> tid = {};
    Counts samples = {};
  };

  static void Apply(const profile::BiasedCount& samples, Estimate& estimate) {
    estimate.samples = samples.objects;
    estimate.variance = static_cast<double>(samples.bytes) * static_cast<double>(samples.bytes);
  }

  void ApplyComments() {
    if (period_comment_.has_value()) profile_.period = *period_comment_;
    for (const SamplesComment& comment : samples_comments_) {
      if (comment.stack == 0 || comment.stack > contexts_of_stacks_.size()) continue;
      const size_t context = contexts_of_stacks_[comment.stack - 1];
      profile::ThreadShare* share = nullptr;
      if (!comment.tid.has_value()) {
        share = &profile_.contexts[context].threads[0];
      } else if (context < shares_.size()) {
        const auto found = std::ranges::lower_bound(shares_[context], *comment.tid, {}, &profile::ThreadShare::tid);
        if (found != shares_[context].end() && found->tid == *comment.tid) share = &*found;
      }
      if (share == nullptr) continue;
      Apply(comment.samples.live, share->live);
      Apply(comment.samples.allocated, share->allocated);
    }
  }

  absl::string_view rest_;
  const absl::string_view name_;
  absl::string_view line_;
  size_t number_ = 0;    // of line_, from 1
  bool is_cut_ = false;  // line_ has no line end
  bool is_gperftools_ = false;
  bool is_sampled_ = true;
  const ReadThreads threads_;
  Profile profile_;
  std::optional<uint64_t> period_comment_;
  std::vector<SamplesComment> samples_comments_;
  std::vector<size_t> contexts_of_stacks_;                             // by number of the stack in the file, from 0
  size_t latest_ = 0;                                                  // index of the context of the latest sum
  std::vector<std::vector<profile::ThreadShare>> shares_;              // by context
  absl::flat_hash_map<absl::Span<const uint64_t>, size_t> by_frames_;  // index into profile_.contexts
};

}  // namespace

absl::StatusOr<profile::Profile> ReadHeapProfile(absl::string_view text, absl::string_view name, ReadThreads threads) {
  return Reader(text, name, threads).Read();
}

}  // namespace heaptap::formats
