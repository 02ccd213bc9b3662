// SPDX-License-Identifier: Apache-2.0
#include "userspace/attach/probe_files.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/threads.h"

namespace heaptap::recording {
namespace {

struct KnownProbe {
  absl::string_view provider;
  absl::string_view name;
  bpf::Program program;
  heaptap_probe site;
  enum class In { kAny, kWithPendingFrees, kOthers } in = In::kAny;  // allocators
};

// In the order of attaching: alloc comes last, so that the free or the dump request of a recorded sample is never
// missed.
constexpr KnownProbe kKnownProbes[] = {
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_DUMP, bpf::Program::kDump, HEAPTAP_PROBE_DUMP_SITE},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_THREAD_NAME, bpf::Program::kThreadName, HEAPTAP_PROBE_THREAD_NAME_SITE},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_START, bpf::Program::kTakeControl, HEAPTAP_PROBE_CONTROL_SITE},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_START, bpf::Program::kStart, HEAPTAP_PROBE_START_SITE},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_FREES, bpf::Program::kFree, HEAPTAP_PROBE_FREES_SITE},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_HEAP_FREE, bpf::Program::kFree, HEAPTAP_PROBE_HEAP_FREE_SITE},
    {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_FREE, bpf::Program::kFree, HEAPTAP_PROBE_FREE_SITE, KnownProbe::In::kOthers},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_HEAP_ALLOC, bpf::Program::kSample, HEAPTAP_PROBE_HEAP_ALLOC_SITE},
    {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_ALLOC, bpf::Program::kSample, HEAPTAP_PROBE_ALLOC_SITE,
     KnownProbe::In::kOthers},
    {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_ALLOC, bpf::Program::kSample, HEAPTAP_PROBE_SAMPLE_SITE,
     KnownProbe::In::kWithPendingFrees},
};

// Pinned links: file_<File in hexadecimal>_<number> in the order of attaching, and finally file_<File>_whole.
constexpr absl::string_view kPinPrefix = "file_";
constexpr absl::string_view kWhole = "whole";

std::string PinOf(ProbeFiles::File file) { return absl::StrCat(kPinPrefix, absl::Hex(file), "_"); }

// The most sites in a file. Each probe of the contract has one; inlining duplicates some.
constexpr size_t kMaxSitesOfFile = 32;

// Any user can create files with notes and map them. Each attached file costs descriptors and kernel memory, and keeps
// its inode alive. Files of distributions and containers belong to root.
constexpr size_t kMaxFiles = 1024;
constexpr size_t kMaxFilesOfUsers = 256;
constexpr size_t kMaxFilesOfUser = 32;
// The kernel may refuse a file's probes after some hundredths of a second, each time.
constexpr size_t kMaxFailuresOfUser = 8;
constexpr uid_t kRootUser = 0;

// Attaching takes some hundredths of a second on a quiet machine; with a link for each site, several times as long. The
// kernel changes the code of each process that maps the file, so a busy machine with many such processes takes many
// seconds.
constexpr absl::Duration kAttachTime = absl::Seconds(60);

// The longest that AttachAllocator waits. It exceeds kAttachTime, because the file is read first.
constexpr absl::Duration kAttachPatience = absl::Seconds(70);

absl::Status Named(absl::string_view name, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

bool Is(const elf::ProbeSite& site, const KnownProbe& probe) {
  return site.provider == probe.provider && site.name == probe.name;
}

// The sites of heaps. Each has a note of otel_memory too, for other collectors.
std::set<uint64_t> HeapSites(const process::AllocatorProbes& allocator) {
  std::set<uint64_t> offsets;
  for (const elf::ProbeSite& site : allocator.sites) {
    if (site.provider != HEAPTAP_PROVIDER) continue;
    if (site.name == HEAPTAP_PROBE_HEAP_ALLOC || site.name == HEAPTAP_PROBE_HEAP_FREE) offsets.insert(site.file_offset);
  }
  return offsets;
}

}  // namespace

void ProbeFiles::Attach(const SeenFile& file, const process::AllocatorProbes& allocator, pid_t pid, Done done) {
  const base::OneThread one_thread(thread_);
  const File inode = file.identity.inode_address;
  const bool is_for_all = pid == kEveryProcess;
  if (attached_.contains(inode)) {
    if (!is_for_all) return done(absl::OkStatus());
    rates_.Tell(file, allocator, [done = std::move(done)] { done(absl::OkStatus()); });
    return;
  }
  if (const auto under_way = attaching_.find(inode); under_way != attaching_.end()) {
    under_way->second.others.push_back({file, allocator, pid, std::move(done)});
    return errands_.Join(under_way->second.payer, under_way->second.job, file.payer());
  }
  const uid_t owner = ids_.OwnerOf(file.identity.owner);
  if (const absl::Status room = CheckRoom(allocator, owner); !room.ok()) {
    return done(Named(base::AsciiOnly(file.name), room));
  }
  Attaching& attaching = attaching_[inode];
  attaching.owner = owner;
  attaching.version = file.identity.version;
  attaching.payer = file.payer();
  attaching.done = std::move(done);
  if (!is_for_all) return StartAttaching(file, allocator, pid);
  // The rate is told first, so that a process whose samples are recorded knows it.
  const worker::Errands::JobId job =
      rates_.Tell(file, allocator, [this, file, allocator, pid] { StartAttaching(file, allocator, pid); });
  if (job != worker::Errands::kNoJob) attaching.job = job;
}

void ProbeFiles::StartAttaching(const SeenFile& file, const process::AllocatorProbes& allocator, pid_t pid) {
  const File inode = file.identity.inode_address;
  worker::Request request = MakeRequest(
      allocator, {.version = file.identity.version, .inode_address = inode, .pid = static_cast<int32_t>(pid)});
  request.file = file.file;
  const worker::Errands::JobId job =
      errands_.Start(file.payer(), file.user(), std::move(request), {.time = kAttachTime},
                     [this, inode, name = base::AsciiOnly(file.name), open = file.open](worker::Answer answer) {
                       HandleAttached(inode, name, std::move(answer));
                     });
  const auto attaching = attaching_.find(inode);
  if (attaching == attaching_.end()) return;  // detached meanwhile
  attaching->second.job = job;
  for (const Wanted& other : attaching->second.others) errands_.Join(file.payer(), job, other.file.payer());
}

worker::Request ProbeFiles::MakeRequest(const process::AllocatorProbes& allocator, worker::AttachOrder order) const {
  std::vector<int> programs;
  const auto index_of = [&](bpf::Program which) {
    const int program = books_.program(which);
    const auto found = std::find(programs.begin(), programs.end(), program);
    if (found != programs.end()) return static_cast<uint32_t>(found - programs.begin());
    programs.push_back(program);
    return static_cast<uint32_t>(programs.size() - 1);
  };
  order.has_many_sites = books_.program(bpf::Program::kAny) >= 0 ? 1 : 0;
  if (order.has_many_sites != 0) index_of(bpf::Program::kAny);
  std::vector<worker::AttachSite> sites;
  const std::set<uint64_t> heap_sites = HeapSites(allocator);
  const auto others = allocator.HasPendingFrees() ? KnownProbe::In::kOthers : KnownProbe::In::kWithPendingFrees;
  for (const KnownProbe& known : kKnownProbes) {
    if (books_.program(known.program) < 0 || known.in == others) continue;
    // With one link the kernel accepts each site once; take_control itself calls the start program.
    const bool comes_later = known.program == bpf::Program::kStart && books_.program(bpf::Program::kTakeControl) >= 0;
    if (order.has_many_sites != 0 && comes_later) continue;
    const uint32_t program = order.has_many_sites != 0 ? 0 : index_of(known.program);
    for (const elf::ProbeSite& site : allocator.sites) {
      if (!Is(site, known)) continue;
      if (site.provider == HEAPTAP_PROVIDER_OTEL && heap_sites.contains(site.file_offset)) continue;
      sites.push_back({site.file_offset, site.semaphore_file_offset, program, known.site});
    }
  }
  order.identify = index_of(bpf::Program::kIdentify);
  return {.job = worker::Job::kAttach, .question = AttachQuestion(order, sites), .descriptors = std::move(programs)};
}

void ProbeFiles::HandleAttached(File file, const std::string& name, worker::Answer answer) {
  const auto extracted = attaching_.extract(file);
  if (extracted.empty()) return;  // detached meanwhile
  const Attaching& attaching = extracted.mapped();
  absl::Status status = std::move(answer.status);
  if (absl::IsDeadlineExceeded(status)) {
    status = absl::DeadlineExceededError(absl::StrCat("the kernel did not attach its probes within ",
                                                      absl::FormatDuration(kAttachTime), "; is the machine too busy?"));
  }
  if (status.ok()) status = Pin(file, answer.files);
  if (status.ok()) {
    attached_[file] = {std::move(answer.files), attaching.owner};
  } else {
    if (attaching.owner != kRootUser && !absl::IsNotFound(status)) failures_[attaching.owner]++;
    CloseInBackground(rates_.Release(file));
    status = Named(name, status);
  }
  attaching.done(status);
  for (const Wanted& other : attaching.others) {
    // The other process may still map the file when the first one does not.
    const bool is_other_file = other.file.identity.version != attaching.version;
    if (absl::IsNotFound(status) || is_other_file) {
      Attach(other.file, other.allocator, other.pid, other.done);
    } else {
      other.done(status);
    }
  }
}

absl::Status ProbeFiles::Pin(File file, const std::vector<base::FileDescriptor>& links) const {
  if (pins_ == nullptr) return absl::OkStatus();
  const std::string pin = PinOf(file);
  absl::Cleanup remove_pins = [&] {
    for (size_t i = 0; i < links.size(); i++) pins_->Remove(absl::StrCat(pin, i));
  };
  for (size_t i = 0; i < links.size(); i++) {
    // The last one says that the file is whole.
    const std::string name = i + 1 < links.size() ? absl::StrCat(pin, i) : absl::StrCat(pin, kWhole);
    if (absl::Status pinned = pins_->Pin(links[i].get(), name); !pinned.ok()) return pinned;
  }
  std::move(remove_pins).Cancel();
  return absl::OkStatus();
}

absl::Status ProbeFiles::CheckRoom(const process::AllocatorProbes& allocator, uid_t owner) const {
  if (allocator.sites.size() > kMaxSitesOfFile) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", allocator.sites.size(), " probe sites, but at most ", kMaxSitesOfFile, " are allowed"));
  }
  size_t of_users = 0;
  size_t of_owner = 0;
  if (const auto failed = failures_.find(owner); failed != failures_.end() && failed->second >= kMaxFailuresOfUser) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the kernel has just refused the probes of ", failed->second, " files of user ", owner));
  }
  const auto count = [&](const auto& files) {
    for (const auto& [file, entry] : files) {
      of_users += entry.owner != 0 ? 1 : 0;
      of_owner += entry.owner == owner ? 1 : 0;
    }
  };
  count(attached_);
  count(attaching_);
  const size_t all = attached_.size() + attaching_.size();
  if (all >= kMaxFiles || (owner != 0 && (of_users >= kMaxFilesOfUsers || of_owner >= kMaxFilesOfUser))) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too many files have probes already: ", all, ", ", of_owner, " of them owned by user ", owner));
  }
  return absl::OkStatus();
}

std::set<ProbeFiles::File> ProbeFiles::files() const {
  std::set<File> files;
  for (const auto& [file, probes] : attached_) files.insert(file);
  return files;
}

ProbeFiles::ProbeFiles(const bpf::Books& books, worker::Errands& errands, const bpf::Pins* pins,
                       base::SubordinateIds ids)
    : books_(books), errands_(errands), pins_(pins), ids_(std::move(ids)), rates_(books, errands, pins) {
  if (pins_ != nullptr) TakeOver();
}

ProbeFiles::~ProbeFiles() {
  attaching_.clear();  // those who wait for it are gone
  if (pins_ == nullptr) Detach();
  if (releasing_.joinable()) releasing_.join();
}

void ProbeFiles::TakeOver() {
  std::map<File, std::set<std::string>> files;
  for (const std::string& name : pins_->Names()) {
    if (!absl::StartsWith(name, kPinPrefix)) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(name, '_');
    File file = 0;
    if (parts.size() == 3 && absl::SimpleHexAtoi(parts[1], &file)) files[file].insert(std::string(parts[2]));
  }
  for (const auto& [file, names] : files) {
    if (names.contains(std::string(kWhole))) {
      attached_[file];
      continue;
    }
    // The collector was killed while it attached the file.
    for (const std::string& name : names) pins_->Remove(absl::StrCat(PinOf(file), name));
  }
}

absl::StatusOr<bool> AttachAllocator(const SeenFile& file, worker::Errands& errands, AllocatorFiles& allocator_files,
                                     ProbeFiles& probe_files, pid_t pid) {
  const absl::Status too_late = absl::UnavailableError(absl::StrCat(file.name, ": reading it takes too long"));
  const base::Instant deadline = base::Now() + kAttachPatience;
  allocator_files.Read(file, [](const AllocatorFiles::Allocator&) {});
  const AllocatorFiles::Allocator* allocator = nullptr;
  const auto is_read = [&] { return (allocator = allocator_files.Find(file.identity.version)) != nullptr; };
  if (!errands.WaitUntil(is_read, deadline)) return too_late;
  if (!allocator->ok()) return Named(file.name, allocator->status());
  if (!(*allocator)->probes.HasSamples()) return false;
  // Shared, because the answer may come after this call.
  const auto attached = std::make_shared<std::optional<absl::Status>>();
  probe_files.Attach(file, (*allocator)->probes, pid, [attached](const absl::Status& status) { *attached = status; });
  if (!errands.WaitUntil([&] { return attached->has_value(); }, deadline)) return too_late;
  if (!(*attached)->ok()) return **attached;
  return true;
}

void ProbeFiles::TellRate(std::optional<uint32_t> lg_sample) { CloseInBackground(rates_.Set(lg_sample)); }

void ProbeFiles::Release(const std::set<File>& files) {
  const base::OneThread one_thread(thread_);
  if (is_releasing_) return;
  const std::vector<std::string> pins = pins_ == nullptr ? std::vector<std::string>() : pins_->Names();
  std::vector<base::FileDescriptor> links;
  for (const File file : files) {
    const auto found = attached_.find(file);
    if (found == attached_.end()) continue;
    std::ranges::move(rates_.Release(file), std::back_inserter(links));
    std::ranges::move(found->second.links, std::back_inserter(links));
    attached_.erase(found);
    for (const std::string& name : pins) {
      if (absl::StartsWith(name, PinOf(file))) pins_->Remove(name);
    }
  }
  CloseInBackground(std::move(links));
}

void ProbeFiles::CloseInBackground(std::vector<base::FileDescriptor> links) {
  if (links.empty()) return;
  if (releasing_.joinable()) releasing_.join();
  is_releasing_ = true;
  const auto release = [this, shared = std::make_shared<std::vector<base::FileDescriptor>>(std::move(links))] {
    while (!shared->empty()) shared->pop_back();
    is_releasing_ = false;
  };
  if (absl::StatusOr<std::thread> thread = base::StartThread(release); thread.ok()) {
    releasing_ = *std::move(thread);
  } else {
    release();
  }
}

void ProbeFiles::Detach() {
  rates_.Clear();
  for (auto& [file, attached] : attached_) {
    while (!attached.links.empty()) attached.links.pop_back();
  }
  if (pins_ != nullptr) {
    for (const std::string& name : pins_->Names()) {
      if (absl::StartsWith(name, kPinPrefix)) pins_->Remove(name);
    }
  }
  attached_.clear();
  for (const auto& [file, attaching] : std::exchange(attaching_, {})) {
    const absl::Status status = absl::NotFoundError("all probes were removed meanwhile");
    attaching.done(status);
    for (const Wanted& other : attaching.others) other.done(status);
  }
}

}  // namespace heaptap::recording
