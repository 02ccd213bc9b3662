// SPDX-License-Identifier: Apache-2.0
#include "userspace/attach/told_rates.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "bpf/books.h"
#include "heaptap/contract.h"
#include "userspace/base/messages.h"
#include "userspace/worker/file_jobs.h"
#include "userspace/worker/request.h"

namespace heaptap::recording {
namespace {

// Pins: rate_<File in hexadecimal>_<lg of the interval>.
constexpr absl::string_view kRatePin = "rate";

// Telling takes some hundredths of a second on a quiet machine.
constexpr absl::Duration kTellTime = absl::Seconds(10);

// No allocator runs the site. If a process jumps there, probe_any finds no program under this number.
constexpr uint32_t kNoProgram = HEAPTAP_PROBES;

std::string PinOf(ToldRates::File file, uint32_t lg_sample) {
  return absl::StrCat(kRatePin, "_", absl::Hex(file), "_", lg_sample);
}

}  // namespace

ToldRates::ToldRates(const bpf::Books& books, worker::Errands& errands, const bpf::Pins* pins)
    : books_(books), errands_(errands), pins_(pins) {
  if (pins_ != nullptr) TakeOver();
}

void ToldRates::TakeOver() {
  for (const std::string& name : pins_->Names()) {
    const std::vector<absl::string_view> parts = absl::StrSplit(name, '_');
    File file = 0;
    uint32_t lg_sample = 0;
    if (parts.size() != 3 || parts[0] != kRatePin) continue;
    const bool is_good = absl::SimpleHexAtoi(parts[1], &file) && absl::SimpleAtoi(parts[2], &lg_sample) &&
                         lg_sample <= HEAPTAP_MAX_LG_SAMPLE && !told_.contains(file);
    if (is_good) {
      told_[file].lg_sample = lg_sample;
    } else {
      pins_->Remove(name);
    }
  }
}

std::vector<base::FileDescriptor> ToldRates::Set(std::optional<uint32_t> lg_sample) {
  wanted_ = lg_sample;
  without_.clear();
  std::vector<File> others;
  for (const auto& [file, told] : told_) {
    if (told.lg_sample != lg_sample) others.push_back(file);
  }
  std::vector<base::FileDescriptor> links;
  for (const File file : others) std::ranges::move(Release(file), std::back_inserter(links));
  return links;
}

bool ToldRates::IsTold(File file) const {
  return !wanted_.has_value() || told_.contains(file) || without_.contains(file);
}

worker::Errands::JobId ToldRates::Tell(const SeenFile& file, const process::AllocatorProbes& allocator,
                                       std::function<void()> done) {
  const File inode = file.identity.inode_address;
  if (IsTold(inode)) {
    done();
    return worker::Errands::kNoJob;
  }
  const auto site = std::ranges::find_if(allocator.sites, [](const elf::ProbeSite& each) {
    return each.provider == HEAPTAP_PROVIDER && each.name == HEAPTAP_PROBE_RATE && each.semaphore_file_offset != 0;
  });
  if (site == allocator.sites.end()) {
    without_.insert(inode);
    done();
    return worker::Errands::kNoJob;
  }
  const bool has_many_sites = books_.program(bpf::Program::kAny) >= 0;
  const uint64_t row = HEAPTAP_RATE_SITE(*wanted_);
  worker::AttachOrder order = {.version = file.identity.version,
                               .inode_address = inode,
                               .has_many_sites = has_many_sites ? 1u : 0u,
                               .identify = 1};
  const worker::AttachSite told = {.offset = site->file_offset + row,
                                   .semaphore_offset = site->semaphore_file_offset + row * sizeof(uint16_t),
                                   .program = 0,
                                   .cookie = kNoProgram};
  worker::Request request = {
      .job = worker::Job::kAttach,
      .question = AttachQuestion(order, {told}),
      .descriptors = {books_.program(has_many_sites ? bpf::Program::kAny : bpf::Program::kThreadName),
                      books_.program(bpf::Program::kIdentify)}};
  request.file = file.file;
  return errands_.Start(file.payer(), file.user(), std::move(request), {.time = kTellTime},
                        [this, inode, lg_sample = *wanted_, name = base::AsciiOnly(file.name), open = file.open,
                         done = std::move(done)](worker::Answer answer) {
                          HandleAttached(inode, lg_sample, name, std::move(answer));
                          done();
                        });
}

void ToldRates::HandleAttached(File file, uint32_t lg_sample, absl::string_view name, worker::Answer answer) {
  if (wanted_ != lg_sample || told_.contains(file)) return;
  absl::Status status = std::move(answer.status);
  if (status.ok() && answer.files.size() != 1) status = absl::InternalError("no link");
  if (status.ok() && pins_ != nullptr) status = pins_->Pin(answer.files[0].get(), PinOf(file, lg_sample));
  if (status.ok()) {
    told_[file] = {.lg_sample = lg_sample, .link = std::move(answer.files[0])};
    return;
  }
  // The file is gone, or it is another one now. The next process that maps it serves as well.
  if (absl::IsNotFound(status)) return;
  without_.insert(file);
  base::Say(absl::StrCat(name, ": cannot tell its processes their rate before they start: ", status.message(),
                         "; their first samples may be taken at their own rate"));
}

std::vector<base::FileDescriptor> ToldRates::Release(File file) {
  std::vector<base::FileDescriptor> links;
  without_.erase(file);
  const auto told = told_.find(file);
  if (told == told_.end()) return links;
  if (pins_ != nullptr) pins_->Remove(PinOf(file, told->second.lg_sample));
  links.push_back(std::move(told->second.link));
  told_.erase(told);
  return links;
}

void ToldRates::Clear() {
  while (!told_.empty()) Release(told_.begin()->first);
  without_.clear();
}

}  // namespace heaptap::recording
