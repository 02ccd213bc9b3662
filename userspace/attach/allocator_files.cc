// SPDX-License-Identifier: Apache-2.0
#include "userspace/attach/allocator_files.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace heaptap::recording {
namespace {

// The most files that are remembered. Most of them have no allocator. Reading one again costs a worker a millisecond.
constexpr size_t kMaxKnown = 65536;

// A thousand times what it takes for libheaptap.so. The time is the default, which a busy machine does not exceed.
constexpr worker::Limits kLimits = {.memory_bytes = 256 << 20, .answer_bytes = 1 << 20};

AllocatorFiles::Allocator AllocatorOf(const worker::Answer& answer) {
  if (!answer.status.ok()) return answer.status;
  return worker::DecodeAllocator(answer.bytes);
}

}  // namespace

const AllocatorFiles::Allocator* AllocatorFiles::Find(const worker::FileVersion& version) const {
  const auto found = known_.find(version);
  return found == known_.end() ? nullptr : &found->second;
}

void AllocatorFiles::Read(const SeenFile& file, Done done) {
  const worker::FileVersion version = file.identity.version;
  const auto under_way = being_read_.find(version);
  if (under_way != being_read_.end()) {
    under_way->second.others.emplace_back(file, std::move(done));
    return errands_.Join(under_way->second.payer, under_way->second.job, file.payer());
  }
  const worker::Errands::JobId job =
      errands_.Start(file.payer(), file.user(), {.job = worker::Job::kAllocator, .file = file.file}, kLimits,
                     [this, version, open = file.open](const worker::Answer& answer) { HandleRead(version, answer); });
  being_read_.insert({version, {.payer = file.payer(), .job = job, .done = std::move(done), .others = {}}});
}

void AllocatorFiles::HandleRead(const worker::FileVersion& version, const worker::Answer& answer) {
  Allocator allocator = AllocatorOf(answer);
  if (answer.IsFault()) {
    const absl::Duration pause = retries_.Fail(version, base::Now());
    allocator = absl::UnavailableError(absl::StrCat("reading its probes failed: ", answer.status.message(),
                                                    "; trying again in ", absl::FormatDuration(pause)));
  } else {
    retries_.Succeed(version);
  }
  if (allocator.ok() && allocator->version != version) allocator = absl::UnavailableError("the file is being written");
  const auto reading = being_read_.extract(version);
  const bool shall_others_try = absl::IsNotFound(allocator.status()) && !reading.mapped().others.empty();
  if (!shall_others_try) {
    if (known_.size() >= kMaxKnown) known_.clear();
    known_.insert_or_assign(version, allocator);
  }
  reading.mapped().done(allocator);
  for (const auto& [file, done] : reading.mapped().others) {
    if (shall_others_try) {
      Read(file, done);
    } else {
      done(allocator);
    }
  }
}

std::vector<worker::FileVersion> AllocatorFiles::ForgetFailures(base::Instant now) {
  std::vector<worker::FileVersion> due;
  std::erase_if(known_, [&](const auto& entry) {
    const auto& [version, allocator] = entry;
    if (allocator.ok() || absl::IsInvalidArgument(allocator.status()) || !retries_.IsDue(version, now)) return false;
    due.push_back(version);
    return true;
  });
  return due;
}

}  // namespace heaptap::recording
