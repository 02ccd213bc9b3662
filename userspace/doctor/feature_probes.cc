// SPDX-License-Identifier: Apache-2.0
#include "userspace/doctor/feature_probes.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <link.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/threads.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/probes.h"

namespace heaptap::bpf {
namespace {

constexpr size_t kVerifierLogBytes = 4096;

// The stack slot that the programs below use.
constexpr int16_t kSlot = -8;

constexpr bpf_insn Set(uint8_t to, int32_t value) {
  return {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = to, .src_reg = 0, .off = 0, .imm = value};
}
constexpr bpf_insn Copy(uint8_t to, uint8_t from) {
  return {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = to, .src_reg = from, .off = 0, .imm = 0};
}
constexpr bpf_insn Add(uint8_t to, int32_t value) {
  return {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = to, .src_reg = 0, .off = 0, .imm = value};
}
constexpr bpf_insn ClearSlot() {
  return {.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_10, .src_reg = 0, .off = kSlot, .imm = 0};
}
constexpr bpf_insn Atomic(uint8_t to, int16_t offset, uint8_t value, int32_t operation) {
  return {.code = BPF_STX | BPF_ATOMIC | BPF_DW, .dst_reg = to, .src_reg = value, .off = offset, .imm = operation};
}
constexpr bpf_insn SkipIfZero(uint8_t what, int16_t instructions) {
  return {.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = what, .src_reg = 0, .off = instructions, .imm = 0};
}
constexpr bpf_insn Call(bpf_func_id helper) {
  return {.code = BPF_JMP | BPF_CALL, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = helper};
}
constexpr bpf_insn Exit() { return {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}; }

// R0 = address of the value of key 0 in a map; null: there is none.
std::vector<bpf_insn> LookUpZero(int map) {
  return {
      ClearSlot(),
      Copy(BPF_REG_2, BPF_REG_10),
      Add(BPF_REG_2, kSlot),
      // The two halves of a 64-bit load.
      {.code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = BPF_REG_1, .src_reg = BPF_PSEUDO_MAP_FD, .off = 0, .imm = map},
      {.code = 0, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
      Call(BPF_FUNC_map_lookup_elem),
  };
}

std::vector<bpf_insn> Then(std::vector<bpf_insn> first, std::initializer_list<bpf_insn> second) {
  first.insert(first.end(), second);
  return first;
}

struct Loaded {
  base::FileDescriptor program;
  int error = 0;    // errno, if it was refused
  std::string log;  // the verifier's, if it was refused
};

Loaded Load(bpf_prog_type type, const std::vector<bpf_insn>& instructions, uint32_t flags = 0, int attach_type = 0) {
  Loaded loaded;
  loaded.log.resize(kVerifierLogBytes);
  LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = static_cast<bpf_attach_type>(attach_type),
              .prog_flags = flags, .log_level = 1, .log_size = static_cast<uint32_t>(loaded.log.size()),
              .log_buf = loaded.log.data());
  loaded.program.Reset(bpf_prog_load(type, "heaptap_try", "GPL", instructions.data(), instructions.size(), &options));
  loaded.error = loaded.program.valid() ? 0 : errno;
  loaded.log.resize(strnlen(loaded.log.data(), loaded.log.size()));
  return loaded;
}

absl::Status LoadStatus(const Loaded& loaded) {
  if (loaded.program.valid()) return absl::OkStatus();
  // EACCES with a log comes from the verifier, not from missing rights.
  if (loaded.error == EACCES && !loaded.log.empty()) {
    return absl::FailedPreconditionError("the verifier refuses a program that uses it");
  }
  return KernelError(loaded.error, "loading a program");
}

base::FileDescriptor MakeMap(bpf_map_type type, uint32_t key_bytes, uint32_t value_bytes, uint32_t entries,
                             uint32_t flags = 0) {
  LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = flags);
  return base::FileDescriptor(bpf_map_create(type, "heaptap_try", key_bytes, value_bytes, entries, &options));
}

absl::Status NoMap() { return KernelError(errno, "making a map"); }

const std::vector<bpf_insn> kNothing = {Set(BPF_REG_0, 0), Exit()};

// The offset, in this program's file, of an address in this process. 0: not in the file.
uint64_t OffsetInFile(const volatile void* what) {
  struct Search {
    uintptr_t address;
    uint64_t offset;
  } search = {reinterpret_cast<uintptr_t>(what), 0};
  dl_iterate_phdr(
      [](dl_phdr_info* module, size_t, void* context) {
        auto& wanted = *static_cast<Search*>(context);
        for (int i = 0; i < module->dlpi_phnum; i++) {
          const auto& segment = module->dlpi_phdr[i];
          const uintptr_t begin = module->dlpi_addr + segment.p_vaddr;
          if (segment.p_type == PT_LOAD && wanted.address >= begin && wanted.address - begin < segment.p_filesz) {
            wanted.offset = segment.p_offset + (wanted.address - begin);
          }
        }
        return 1;  // the first object is the program
      },
      &search);
  return search.offset;
}

// A probe site and its semaphore, which must be in the file, so not in .bss.
[[gnu::section(".probes")]] volatile uint16_t probe_semaphore = 0;
[[gnu::noinline]] void PassProbe() { asm volatile("nop"); }

using AttachToSite = absl::StatusOr<AttachedProbe> (*)(int program, const ProbeLocation& location);

// Attaches a counting program to the probe site, and passes the site in another thread.
absl::Status TryProbe(int attach_type, AttachToSite attach) {
  const base::FileDescriptor hits = MakeMap(BPF_MAP_TYPE_ARRAY, sizeof(uint32_t), sizeof(uint64_t), 1);
  if (!hits.valid()) return NoMap();
  const Loaded loaded =
      Load(BPF_PROG_TYPE_KPROBE,
           Then(LookUpZero(hits.get()), {SkipIfZero(BPF_REG_0, 2), Set(BPF_REG_1, 1),
                                         Atomic(BPF_REG_0, 0, BPF_REG_1, BPF_ADD), Set(BPF_REG_0, 0), Exit()}),
           0, attach_type);
  if (!loaded.program.valid()) return LoadStatus(loaded);
  const ProbeLocation location = {.path = "/proc/self/exe",
                                  .offset = OffsetInFile(reinterpret_cast<const void*>(&PassProbe)),
                                  .semaphore_offset = OffsetInFile(&probe_semaphore)};
  absl::StatusOr<AttachedProbe> probe = attach(loaded.program.get(), location);
  if (!probe.ok()) return probe.status();
  if (probe_semaphore == 0) return absl::FailedPreconditionError("the kernel does not count up a probe's semaphore");
  absl::StatusOr<std::thread> thread = base::StartThread(PassProbe);
  if (!thread.ok()) return thread.status();
  thread->join();
  const uint32_t first = 0;
  uint64_t count = 0;
  if (bpf_map_lookup_elem(hits.get(), &first, &count) != 0) return KernelError(errno, "reading a map");
  return count > 0 ? absl::OkStatus() : absl::FailedPreconditionError("a probe is attached but not hit");
}

// The greatest depth of unnamed structures inside each other. The kernel has at most three.
constexpr int kMaxDepth = 8;

bool HasMember(const btf* types, const btf_type* structure, const char* field, int depth) {
  if (!btf_is_composite(structure) || depth == kMaxDepth) return false;
  const btf_member* member = btf_members(structure);
  for (int i = 0; i < btf_vlen(structure); i++, member++) {
    const char* name = btf__name_by_offset(types, member->name_off);
    if (name != nullptr && *name != '\0') {
      if (strcmp(name, field) == 0) return true;
      continue;
    }
    const int inner = btf__resolve_type(types, member->type);
    if (inner > 0 && HasMember(types, btf__type_by_id(types, inner), field, depth + 1)) return true;
  }
  return false;
}

}  // namespace

absl::Status TryProgram() { return LoadStatus(Load(BPF_PROG_TYPE_KPROBE, kNothing)); }

absl::Status TryMap(bpf_map_type type) {
  const bool is_ring = type == BPF_MAP_TYPE_RINGBUF;
  const uint32_t value_bytes = is_ring ? 0 : sizeof(uint64_t);
  const uint32_t entries = is_ring ? static_cast<uint32_t>(sysconf(_SC_PAGESIZE)) : 1;
  return MakeMap(type, is_ring ? 0 : sizeof(uint32_t), value_bytes, entries).valid() ? absl::OkStatus() : NoMap();
}

absl::Status TryHelper(bpf_prog_type type, bpf_func_id helper) {
  const Loaded loaded =
      Load(type, {Call(helper), Set(BPF_REG_0, 0), Exit()}, type == BPF_PROG_TYPE_SYSCALL ? BPF_F_SLEEPABLE : 0);
  if (loaded.program.valid()) return absl::OkStatus();
  for (const char* refusal : {"unknown func", "invalid func", "cannot use helper"}) {
    if (absl::StrContains(loaded.log, refusal)) return absl::FailedPreconditionError("this kernel does not have it");
  }
  return loaded.log.empty() ? LoadStatus(loaded) : absl::OkStatus();
}

absl::Status TryWriteToProcess() {
  return MayWriteUserMemory() ? absl::OkStatus()
                              : absl::FailedPreconditionError("not allowed here; kernel lockdown is one reason");
}

absl::Status TryAtomics() {
  return LoadStatus(Load(
      BPF_PROG_TYPE_KPROBE,
      {ClearSlot(), Set(BPF_REG_0, 0), Set(BPF_REG_1, 1), Atomic(BPF_REG_10, kSlot, BPF_REG_1, BPF_ADD | BPF_FETCH),
       Atomic(BPF_REG_10, kSlot, BPF_REG_1, BPF_CMPXCHG), Set(BPF_REG_0, 0), Exit()}));
}

absl::Status TryGrowingMap() {
  const base::FileDescriptor map = MakeMap(BPF_MAP_TYPE_HASH, sizeof(uint32_t), sizeof(uint64_t), 1, BPF_F_NO_PREALLOC);
  if (!map.valid()) return NoMap();
  // Every kernel without safe maps of this kind refuses them in programs of this type.
  const Loaded loaded = Load(BPF_PROG_TYPE_PERF_EVENT, Then(LookUpZero(map.get()), {Set(BPF_REG_0, 0), Exit()}));
  if (loaded.error == EINVAL) return absl::FailedPreconditionError("this kernel does not allow it");
  return LoadStatus(loaded);
}

absl::Status TryBatches() {
  const base::FileDescriptor map = MakeMap(BPF_MAP_TYPE_HASH, sizeof(uint32_t), sizeof(uint64_t), 1);
  if (!map.valid()) return NoMap();
  uint32_t key = 1;
  uint64_t value = 2;
  if (bpf_map_update_elem(map.get(), &key, &value, BPF_ANY) != 0) return KernelError(errno, "filling a map");
  uint32_t position = 0;
  uint32_t count = 1;
  key = 0;
  const int error = bpf_map_lookup_batch(map.get(), nullptr, &position, &key, &value, &count, nullptr);
  // ENOENT comes with the last entry.
  if (error != 0 && error != -ENOENT) return KernelError(error, "reading a map");
  return count == 1 && key == 1 ? absl::OkStatus()
                                : absl::FailedPreconditionError("a batch of a map has wrong contents");
}

absl::Status TryRunByCall() {
  constexpr int kAnswer = 7;
  const Loaded loaded = Load(BPF_PROG_TYPE_SYSCALL, {Set(BPF_REG_0, kAnswer), Exit()}, BPF_F_SLEEPABLE);
  if (!loaded.program.valid()) return LoadStatus(loaded);
  LIBBPF_OPTS(bpf_test_run_opts, options);
  if (bpf_prog_test_run_opts(loaded.program.get(), &options) != 0) return KernelError(errno, "running a program");
  return options.retval == kAnswer ? absl::OkStatus()
                                   : absl::FailedPreconditionError("a program returned a wrong value");
}

absl::Status TryRawTracepoint(const char* name) {
  const Loaded loaded = Load(BPF_PROG_TYPE_RAW_TRACEPOINT, kNothing);
  if (!loaded.program.valid()) return LoadStatus(loaded);
  const base::FileDescriptor link(bpf_raw_tracepoint_open(name, loaded.program.get()));
  if (link.valid()) return absl::OkStatus();
  if (errno == ENOENT) return absl::FailedPreconditionError("this kernel has no such tracepoint");
  return KernelError(errno, "attaching to the tracepoint");
}

absl::Status TryPerfLink() {
  const Loaded loaded = Load(BPF_PROG_TYPE_PERF_EVENT, kNothing);
  if (!loaded.program.valid()) return LoadStatus(loaded);
  perf_event_attr attributes = {};
  attributes.size = sizeof(attributes);
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.config = PERF_COUNT_SW_DUMMY;
  attributes.sample_period = 1;
  const base::FileDescriptor event(
      static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC)));
  if (!event.valid()) return KernelError(errno, "perf_event_open");
  const base::FileDescriptor link(bpf_link_create(loaded.program.get(), event.get(), BPF_PERF_EVENT, nullptr));
  return link.valid() ? absl::OkStatus() : KernelError(errno, "making a link");
}

absl::Status TryUprobeMulti() {
  if (!HasManySites()) return absl::FailedPreconditionError("this kernel has none, or restricts them to a thread");
  return TryProbe(kManySitesAttachType, [](int program, const ProbeLocation& location) {
    const ProbeSite site = {location.offset, location.semaphore_offset, 0};
    return AttachedProbe::AttachMany(program, location.path, {&site, 1}, getpid());
  });
}

absl::Status TryUprobe() {
  return TryProbe(
      0, [](int program, const ProbeLocation& location) { return AttachedProbe::Attach(program, location, getpid()); });
}

absl::Status TryPins() {
  const base::FileDescriptor system(fsopen("bpf", FSOPEN_CLOEXEC));
  if (!system.valid() || fsconfig(system.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return KernelError(errno, "making a BPF file system");
  }
  const base::FileDescriptor folder(fsmount(system.get(), FSMOUNT_CLOEXEC, 0));
  if (!folder.valid()) return KernelError(errno, "mounting a BPF file system");
  const base::FileDescriptor map = MakeMap(BPF_MAP_TYPE_ARRAY, sizeof(uint32_t), sizeof(uint64_t), 1);
  if (!map.valid()) return NoMap();
  const std::string path = absl::StrCat("/proc/self/fd/", folder.get(), "/pin");
  if (bpf_obj_pin(map.get(), path.c_str()) != 0) return KernelError(errno, "pinning a map");
  return base::FileDescriptor(bpf_obj_get(path.c_str())).valid() ? absl::OkStatus()
                                                                 : KernelError(errno, "opening a pinned map");
}

bool HasField(const btf* types, const char* structure, const char* field) {
  int id = btf__find_by_name_kind(types, structure, BTF_KIND_STRUCT);
  if (id < 0) id = btf__find_by_name_kind(types, structure, BTF_KIND_TYPEDEF);
  if (id >= 0) id = btf__resolve_type(types, id);
  return id >= 0 && HasMember(types, btf__type_by_id(types, id), field, 0);
}

}  // namespace heaptap::bpf
