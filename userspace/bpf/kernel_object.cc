// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/kernel_object.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bpf/heaptap.skel.h"
#include "bpf/shapes.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/base/user_ids.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/map_access.h"
#include "userspace/bpf/probes.h"

namespace heaptap::bpf {
namespace {

constexpr uint64_t kFirstIdOfPrograms = 2;
constexpr uint64_t kFirstIdOfCollector = 1;

// The collector sweeps `live` when this share of it is used. The rest has room for samples until the sweep ends.
constexpr uint64_t kSweepAtPercent = 75;

// Kernel memory of one node of an unwind table.
constexpr uint64_t kNodeBytes = 4096;

// Pinned last: if it exists, everything is pinned.
constexpr char kWhole[] = "whole";

constexpr char kKernelTypes[] = "/sys/kernel/btf/vmlinux";

struct NamedProgram {
  Program which;
  const char* name;
};
constexpr NamedProgram kNamedPrograms[] = {
    {Program::kFree, "probe_free"},
    {Program::kSample, "probe_sample"},
    {Program::kStart, "probe_start"},
    {Program::kTakeControl, "take_control"},
    {Program::kDump, "probe_dump"},
    {Program::kThreadName, "probe_thread_name"},
    {Program::kInvalidateRules, "invalidate_rules"},
    {Program::kIdentify, "identify"},
    {Program::kSweep, "sweep"},
    {Program::kConfigure, "configure"},
    {Program::kFold, "fold"},
    {Program::kTalliesDeleted, "tallies_deleted"},
    {Program::kTakeFrees, "take_frees"},
    {Program::kUntrack, "untrack"},
    {Program::kGiveArea, "give_area"},
    {Program::kAny, "probe_any"},
};
static_assert(std::size(kNamedPrograms) == kPrograms);

// By enum heaptap_probe.
constexpr Program kSitePrograms[] = {Program::kDump,   Program::kThreadName, Program::kTakeControl, Program::kStart,
                                     Program::kFree,   Program::kFree,       Program::kFree,        Program::kSample,
                                     Program::kSample, Program::kSample};
static_assert(std::size(kSitePrograms) == HEAPTAP_PROBES);

std::string MapPin(const bpf_map* map) { return absl::StrCat("map_", bpf_map__name(map)); }
std::string ProgramPin(const char* name) { return absl::StrCat("program_", name); }

}  // namespace

std::string KernelObject::Layout() {
  // FNV-1a. Only root could pin an object with a forged hash.
  size_t size = 0;
  const auto* bytes = static_cast<const unsigned char*>(heaptap_bpf::elf_bytes(&size));
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return absl::StrFormat("%016x", hash);
}

absl::Status KernelObject::Open(const MapSizes& sizes, const Pins* pins) {
  if (absl::Status status = CheckPidNamespace(); !status.ok()) return status;
  QuietLibbpf();
  object_ = heaptap_bpf__open();
  if (object_ == nullptr) return KernelError(errno, "opening the eBPF object");
  adopted_ = pins != nullptr && pins->Has(kWhole);
  if (adopted_) {
    if (absl::Status status = Adopt(*pins); !status.ok()) return status;
  } else {
    SetSizes(sizes);
    if (absl::Status status = Load(pins != nullptr); !status.ok()) return status;
    if (absl::Status status = Prepare(); !status.ok()) return status;
  }
  return pins == nullptr ? absl::OkStatus() : FillOwners();
}

absl::Status KernelObject::Start(const Pins* pins) {
  if (adopted_) return absl::OkStatus();
  if (absl::Status status = AttachLifecycle(); !status.ok()) return status;
  return pins == nullptr ? absl::OkStatus() : PinAll(*pins);
}

// The maps whose sizes can be chosen, with their sizes.
std::vector<std::pair<bpf_map*, uint32_t>> KernelObject::SizedMaps(const MapSizes& sizes) const {
  return {{object_->maps.processes, sizes.processes},
          {object_->maps.stacks, sizes.stacks},
          {object_->maps.live, sizes.live},
          {object_->maps.tallies, sizes.tallies},
          {object_->maps.losses, sizes.losses},
          {object_->maps.events, sizes.events_bytes},
          {object_->maps.files, sizes.files},
          {object_->maps.names, sizes.names},
          {object_->maps.name_places, sizes.names},
          {object_->maps.records, sizes.records},
          {object_->maps.rows, static_cast<uint32_t>(std::max<uint64_t>(sizes.unwind_bytes / kNodeBytes, 1))},
          {object_->maps.raw_stacks, sizes.raw_stacks_bytes}};
}

void KernelObject::SetSizes(const MapSizes& sizes) {
  for (const auto& [map, size] : SizedMaps(sizes)) bpf_map__set_max_entries(map, size);
  object_->rodata->records_capacity = sizes.records;
  object_->rodata->names_of_user = std::max<uint32_t>(sizes.names / HEAPTAP_USER_NAMES_PART, 1);
}

bool KernelObject::HasSizes(const MapSizes& sizes) const {
  const auto sized = SizedMaps(sizes);
  return std::all_of(sized.begin(), sized.end(),
                     [](const auto& entry) { return bpf_map__max_entries(entry.first) == entry.second; });
}

bool KernelObject::HasRecording(const Pins& pins) { return pins.Has(kWhole); }

absl::Status KernelObject::Load(bool for_everyone) {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) return KernelError(errno, "getrandom");
  object_->rodata->stack_seed = seed;
  bpf_program__set_autoload(object_->progs.take_control, for_everyone && MayWriteUserMemory());
  const bool has_many_sites = HasManySites();
  bpf_program__set_autoload(object_->progs.probe_any, has_many_sites);
  if (has_many_sites) {
    // The kernel lets a program call only programs that were loaded with the same attach type.
    for (bpf_program* program : {object_->progs.probe_any, object_->progs.probe_dump, object_->progs.probe_thread_name,
                                 object_->progs.take_control, object_->progs.probe_start, object_->progs.probe_free,
                                 object_->progs.probe_sample}) {
      bpf_program__set_expected_attach_type(program, static_cast<bpf_attach_type>(kManySitesAttachType));
    }
  }

  if (const int error = heaptap_bpf__load(object_); error != 0) {
    // EPERM: not allowed. EACCES: allowed, but the verifier refuses a program.
    if (error == -EACCES) {
      return absl::FailedPreconditionError(
          absl::StrCat("this kernel's verifier refuses heaptap's eBPF programs: ", FirstLibbpfWarning()));
    }
    // libbpf also looks in other places, but its error only says that it found nothing there.
    if (access(kKernelTypes, R_OK) != 0) {
      return absl::FailedPreconditionError(absl::StrCat("this kernel has no BTF (", kKernelTypes,
                                                        "), so heaptap cannot record; heaptap doctor has the details"));
    }
    return KernelError(error, "loading the eBPF programs");
  }
  for (const NamedProgram& program : kNamedPrograms) {
    const int fd = bpf_program__fd(bpf_object__find_program_by_name(object_->obj, program.name));
    if (fd < 0) continue;
    base::FileDescriptor& kept = programs_[static_cast<size_t>(program.which)];
    kept.Reset(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!kept.valid()) return KernelError(errno, "keeping an eBPF program");
  }
  return FillPrograms();
}

absl::Status KernelObject::FillPrograms() {
  for (uint32_t probe = 0; probe < HEAPTAP_PROBES; probe++) {
    // probe_free calls this one; all others are called by probe_any.
    if (program(Program::kAny) < 0 && probe != HEAPTAP_PROBE_SAMPLE_SITE) continue;
    const int fd = program(kSitePrograms[probe]);
    if (fd < 0) continue;
    if (const int error = bpf_map__update_elem(object_->maps.programs, &probe, sizeof(probe), &fd, sizeof(fd), BPF_ANY);
        error != 0) {
      return KernelError(error, "filling the map of programs");
    }
  }
  return absl::OkStatus();
}

absl::Status KernelObject::Prepare() {
  SetCounter(HEAPTAP_COUNTER_NEXT_PROCESS_ID, kFirstIdOfPrograms);
  SetCounter(HEAPTAP_COUNTER_NEXT_COLLECTOR_ID, kFirstIdOfCollector);
  SetCounter(HEAPTAP_COUNTER_SWEEP_AT, SweepAt());
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < HEAPTAP_LOSS_REASONS; reason++) {
    const heaptap_loss_key key = {0, reason, 0};
    const heaptap_loss none = {};
    if (const int error = bpf_map__update_elem(object_->maps.losses, &key, sizeof(key), &none, sizeof(none), BPF_ANY);
        error != 0) {
      return KernelError(error, "preparing the map of losses");
    }
  }
  return absl::OkStatus();
}

absl::Status KernelObject::FillOwners() {
  for (const base::SubordinateIds::Block& block : base::SubordinateIds::OfSystem().Blocks()) {
    // Root has no share, so root's subordinate ids are users of their own.
    if (block.owner == base::kRoot) continue;
    const heaptap_owner_key key = {.prefix_bits = block.bits, .uid = htonl(block.first)};
    const int error =
        bpf_map__update_elem(object_->maps.owners, &key, sizeof(key), &block.owner, sizeof(block.owner), BPF_ANY);
    if (error == -ENOSPC) break;
    if (error != 0) return KernelError(error, "filling the map of owners");
  }
  return absl::OkStatus();
}

absl::Status KernelObject::AttachLifecycle() {
  const std::pair<bpf_program*, bpf_link**> lifecycle[] = {
      {object_->progs.process_fork, &object_->links.process_fork},
      {object_->progs.process_exec, &object_->links.process_exec},
      {object_->progs.process_exit, &object_->links.process_exit},
      {object_->progs.process_map, &object_->links.process_map},
  };
  for (const auto& [program, link] : lifecycle) {
    *link = bpf_program__attach(program);
    if (*link == nullptr) return KernelError(errno, absl::StrCat("attaching ", bpf_program__name(program)));
  }
  // Before Linux 6.10 there is no such tracepoint.
  object_->links.process_before_exec = bpf_program__attach(object_->progs.process_before_exec);
  return absl::OkStatus();
}

absl::Status KernelObject::PinAll(const Pins& pins) {
  // An earlier collector may have been killed in the middle of this.
  for (const std::string& name : pins.Names()) pins.Remove(name);
  bpf_map* map;
  bpf_object__for_each_map(map, object_->obj) {
    if (bpf_map__is_internal(map)) continue;
    if (absl::Status status = pins.Pin(bpf_map__fd(map), MapPin(map)); !status.ok()) return status;
  }
  for (const NamedProgram& named : kNamedPrograms) {
    if (program(named.which) < 0) continue;
    if (absl::Status status = pins.Pin(program(named.which), ProgramPin(named.name)); !status.ok()) return status;
  }
  const std::pair<const char*, const bpf_link*> links[] = {
      {"link_fork", object_->links.process_fork},
      {"link_exec", object_->links.process_exec},
      {"link_exit", object_->links.process_exit},
      {"link_map", object_->links.process_map},
      {"link_before_exec", object_->links.process_before_exec},
  };
  for (const auto& [name, link] : links) {
    if (link == nullptr) continue;
    if (absl::Status status = pins.Pin(bpf_link__fd(link), name); !status.ok()) return status;
  }
  return pins.Pin(bpf_map__fd(object_->maps.counters), kWhole);
}

absl::Status KernelObject::Adopt(const Pins& pins) {
  bpf_map* map;
  bpf_object__for_each_map(map, object_->obj) {
    if (bpf_map__is_internal(map)) continue;
    absl::StatusOr<base::FileDescriptor> pinned = pins.Get(MapPin(map));
    if (!pinned.ok()) return pinned.status();
    // Takes over a copy of the descriptor, and the size of the pinned map.
    if (const int error = bpf_map__reuse_fd(map, pinned->get()); error != 0) {
      return KernelError(error, absl::StrCat("taking over map ", bpf_map__name(map)));
    }
  }
  for (const NamedProgram& named : kNamedPrograms) {
    absl::StatusOr<base::FileDescriptor> pinned = pins.Get(ProgramPin(named.name));
    if (pinned.ok()) {
      programs_[static_cast<size_t>(named.which)] = *std::move(pinned);
    } else if (named.which != Program::kTakeControl && named.which != Program::kAny) {
      return pinned.status();
    }
  }
  return absl::OkStatus();
}

void KernelObject::SetCounter(uint32_t which, uint64_t value) {
  bpf_map__update_elem(object_->maps.counters, &which, sizeof(which), &value, sizeof(value), BPF_ANY);
}

uint64_t KernelObject::ReadCounter(uint32_t which) const {
  uint64_t value = 0;
  LookUp(object_->maps.counters, which, value);
  return value;
}

uint64_t KernelObject::SweepAt() const {
  return uint64_t{bpf_map__max_entries(object_->maps.live)} * kSweepAtPercent / 100;
}

KernelObject::~KernelObject() {
  if (object_ != nullptr) heaptap_bpf__destroy(object_);
}

}  // namespace heaptap::bpf
