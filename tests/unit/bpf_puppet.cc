// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/bpf_puppet.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/maps.h"

// Probe sites: one nop in a function each, arguments in the SysV registers.
asm(R"(
        .pushsection .text
        .macro TEST_PROBE name
        .globl  books_test_\name
        .hidden books_test_\name
        .type   books_test_\name, @function
books_test_\name:
        pushq   %rbp
        movq    %rsp, %rbp
        .globl  books_test_site_\name
        .hidden books_test_site_\name
books_test_site_\name:
        nop
        popq    %rbp
        ret
        .size   books_test_\name, . - books_test_\name
        .endm
        TEST_PROBE alloc
        TEST_PROBE free
        TEST_PROBE frees
        TEST_PROBE start
        TEST_PROBE dump
        TEST_PROBE thread_name

        # As alloc, of an allocator that numbers its samples.
        .globl  books_test_sample
        .hidden books_test_sample
        .type   books_test_sample, @function
books_test_sample:
        movq    (%r8), %r10
        movq    8(%r8), %r11
        .globl  books_test_site_sample
        .hidden books_test_site_sample
books_test_site_sample:
        nop
        ret
        .size   books_test_sample, . - books_test_sample

        # As alloc, but with the stack pointer and the frame pointer at address 8.
        .globl  books_test_lost_stack
        .hidden books_test_lost_stack
        .type   books_test_lost_stack, @function
books_test_lost_stack:
        movq    %rsp, %r10
        movq    %rbp, %r11
        movl    $8, %esp
        movl    $8, %ebp
        .globl  books_test_site_lost_stack
        .hidden books_test_site_lost_stack
books_test_site_lost_stack:
        nop
        movq    %r10, %rsp
        movq    %r11, %rbp
        ret
        .size   books_test_lost_stack, . - books_test_lost_stack
        .popsection
)");

extern "C" {
void books_test_alloc(uint64_t address, uint64_t size, uint64_t weight);
void books_test_free(uint64_t address);
void books_test_frees(const heaptap_free* frees, uint64_t where);
void books_test_sample(uint64_t address, uint64_t size, uint64_t weight, uint64_t serial, const heaptap_free* frees,
                       uint64_t where);
void books_test_start(uint64_t control);
void books_test_dump(uint64_t request);
void books_test_thread_name(const char* name);
void books_test_lost_stack(uint64_t address, uint64_t size, uint64_t weight);
}

namespace heaptap::bpf {

heaptap_pending puppet_pending;

namespace {

#ifdef __clang__ /* compiles this with frame pointers throughout (tests/sanitized.mk) */
#define WITH_FRAMES __attribute__((noinline, disable_tail_calls))
#else
#define WITH_FRAMES __attribute__((noinline, optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")))
#endif
void Right(uint64_t path, int depth, const Order& order, uint64_t address);

// Takes a call path that depends on the bits of `path`.
WITH_FRAMES void Left(uint64_t path, int depth, const Order& order, uint64_t address) {
  if (depth == 0) {
    books_test_alloc(address, order.size, order.weight);
  } else if ((path & 1) != 0) {
    Right(path >> 1, depth - 1, order, address);
  } else {
    Left(path >> 1, depth - 1, order, address);
  }
}

WITH_FRAMES void Right(uint64_t path, int depth, const Order& order, uint64_t address) {
  if (depth == 0) {
    books_test_alloc(address, order.size, order.weight);
  } else if ((path & 1) != 0) {
    Right(path >> 1, depth - 1, order, address);
  } else {
    Left(path >> 1, depth - 1, order, address);
  }
}

void Race(const Order& order, uint64_t base) {
  constexpr size_t kSlots = 2048;
  std::vector<char> live(kSlots);
  uint64_t random = base | 1;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(order.count);
  while (std::chrono::steady_clock::now() < end) {
    random = random * 6364136223846793005 + 1442695040888963407;
    const size_t slot = random >> 33 & (kSlots - 1);
    if (live[slot] != 0) {
      books_test_free(base + slot * 16);
    } else {
      books_test_alloc(base + slot * 16, 16 + slot % 7, 32);
    }
    live[slot] ^= 1;
  }
  for (size_t slot = 0; slot < kSlots; slot++) {
    if (live[slot] != 0) books_test_free(base + slot * 16);
  }
}

int64_t WaitFor(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return pid;
}

int64_t Obey(const Order& order) {
  switch (order.kind) {
    case Order::kAlloc:
      for (uint64_t i = 0; i < order.count; i++) {
        books_test_alloc(order.address + i * order.step, order.size, order.weight);
      }
      return 0;
    case Order::kFree:
      for (uint64_t i = 0; i < order.count; i++) books_test_free(order.address + i * order.step);
      return 0;
    case Order::kLostStack:
      books_test_lost_stack(order.address, order.size, order.weight);
      return 0;
    case Order::kStart:
      books_test_start(order.address);
      return 0;
    case Order::kDump:
      for (uint64_t i = 0; i < order.count; i++) books_test_dump(order.address);
      return 0;
    case Order::kAsk: {
      heaptap_dump_request request = {};
      request.kind = static_cast<uint32_t>(order.size);
      request.argument = order.weight;
      books_test_dump(reinterpret_cast<uint64_t>(&request));
      return 0;
    }
    case Order::kName: {
      // On the stack: the kernel reads only pages that are in memory.
      const char name[] = "thread";
      books_test_thread_name(name);
      return 0;
    }
    case Order::kNamedEnd: {
      int64_t tid = 0;
      std::thread worker([&] {
        tid = gettid();
        prctl(PR_SET_NAME, "worker");
        books_test_alloc(order.address, order.size, order.weight);
      });
      worker.join();
      return tid;
    }
    case Order::kFork: {
      const pid_t pid = fork();
      if (pid == 0) {
        books_test_alloc(order.address, order.size, order.weight);
        _exit(7);
      }
      return WaitFor(pid);
    }
    case Order::kVforkExit: {
      const pid_t pid = vfork();
      if (pid == 0) {
        books_test_alloc(order.address, order.size, order.weight);
        _exit(7);
      }
      return WaitFor(pid);
    }
    case Order::kVforkExec: {
      const pid_t pid = vfork();
      if (pid == 0) {
        books_test_alloc(order.address, order.size, order.weight);
        execl("/bin/true", "true", nullptr);
        _exit(7);
      }
      return WaitFor(pid);
    }
    case Order::kExec:
      execl("/bin/sleep", "sleep", "1000", nullptr);
      return -1;
    case Order::kDeep:
      for (uint64_t i = 0; i < order.count; i++) Left(i, 16, order, order.address + i * order.step);
      return 0;
    case Order::kSample: {
      heaptap_slot& slot = puppet_pending.slots[order.slot - 1];
      books_test_sample(order.address, order.size, order.weight, order.serial, slot.frees,
                        HEAPTAP_WHERE(order.slot, slot.count));
      slot.count = 0;
      return 0;
    }
    case Order::kHold: {
      heaptap_slot& slot = puppet_pending.slots[order.slot - 1];
      for (uint64_t i = 0; i < order.count; i++) {
        slot.frees[slot.count++] = {order.address + i * order.step, order.serial + i};
      }
      puppet_pending.used = std::max<uint64_t>(puppet_pending.used, order.slot);
      return 0;
    }
    case Order::kHandOver: {
      if (order.slot == 0) {
        books_test_frees(nullptr, 0);
        return 0;
      }
      const heaptap_slot& slot = puppet_pending.slots[order.slot - 1];
      books_test_frees(slot.frees, HEAPTAP_WHERE(order.slot, slot.count));
      return 0;
    }
    case Order::kRace: {
      std::thread other([&] { Race(order, order.address + (1 << 20)); });
      Race(order, order.address);
      other.join();
      return 0;
    }
  }
  return -1;
}

}  // namespace

Puppet::Puppet() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) abort();
  pid_ = fork();
  if (pid_ == 0) {
    // Closes the parent's files: locks and maps live as long as any process has them open.
    constexpr int kSocket = STDERR_FILENO + 1;
    if (ends[1] != kSocket) dup3(ends[1], kSocket, O_CLOEXEC);
    close_range(kSocket + 1, ~0U, 0);
    Order order;
    while (recv(kSocket, &order, sizeof(order), 0) == sizeof(order)) {
      const int64_t reply = Obey(order);
      send(kSocket, &reply, sizeof(reply), MSG_NOSIGNAL);
    }
    _exit(0);
  }
  close(ends[1]);
  socket_ = ends[0];
}

void Puppet::Send(const Order& order) const { send(socket_, &order, sizeof(order), MSG_NOSIGNAL); }

int64_t Puppet::Wait() const {
  int64_t reply = -1;
  return recv(socket_, &reply, sizeof(reply), 0) == sizeof(reply) ? reply : -1;
}

bool Puppet::HasReplied() const {
  pollfd reply = {.fd = socket_, .events = POLLIN, .revents = 0};
  return poll(&reply, 1, 0) != 0;
}

void Puppet::End(int signal) {
  if (pid_ <= 0) return;
  kill(pid_, signal);
  waitpid(pid_, nullptr, 0);
  close(socket_);
  pid_ = 0;
}

int NewestMap(const std::string& name) {
  uint32_t youngest = 0;
  int newest = -1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    bpf_map_info info = {};
    uint32_t length = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &length) != 0 || name != info.name || info.id <= youngest) continue;
    youngest = info.id;
    newest = fd;
  }
  EXPECT_NE(newest, -1) << "no map " << name;
  return newest;
}

size_t CountEntries(const std::string& name) {
  const int fd = NewestMap(name);
  bpf_map_info info = {};
  uint32_t length = sizeof(info);
  if (bpf_obj_get_info_by_fd(fd, &info, &length) != 0) return 0;
  size_t count = 0;
  std::vector<char> key(info.key_size);
  for (void* previous = nullptr; bpf_map_get_next_key(fd, previous, key.data()) == 0; previous = key.data()) count++;
  return count;
}

absl::Status Recording::Load(const MapSizes& sizes) {
  absl::StatusOr<std::unique_ptr<Books>> loaded = KernelBooks::Load(sizes);
  if (!loaded.ok()) return loaded.status();
  books = *std::move(loaded);
  return Attach(sizes.unwind_bytes);
}

absl::Status Recording::LoadOrAdopt(const MapSizes& sizes, const Pins& pins) {
  absl::StatusOr<std::unique_ptr<Books>> loaded = KernelBooks::LoadOrAdopt(sizes, pins);
  if (!loaded.ok()) return loaded.status();
  books = *std::move(loaded);
  if (books->adopted()) return absl::OkStatus();
  if (absl::Status status = Attach(sizes.unwind_bytes); !status.ok()) return status;
  for (size_t i = 0; i < probes.size(); i++) {
    if (absl::Status status = pins.Pin(probes[i].link(), absl::StrCat("link_probe_", i)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Recording::Attach(uint64_t unwind_bytes) {
  const std::tuple<Program, heaptap_probe, const char*> sites[] = {
      {Program::kDump, HEAPTAP_PROBE_DUMP_SITE, &books_test_site_dump},
      {Program::kStart, HEAPTAP_PROBE_START_SITE, &books_test_site_start},
      {Program::kFree, HEAPTAP_PROBE_FREE_SITE, &books_test_site_free},
      {Program::kFree, HEAPTAP_PROBE_FREES_SITE, &books_test_site_frees},
      {Program::kSample, HEAPTAP_PROBE_SAMPLE_SITE, &books_test_site_sample},
      {Program::kSample, HEAPTAP_PROBE_ALLOC_SITE, &books_test_site_alloc},
      {Program::kSample, HEAPTAP_PROBE_ALLOC_SITE, &books_test_site_lost_stack},
      {Program::kThreadName, HEAPTAP_PROBE_THREAD_NAME_SITE, &books_test_site_thread_name},
  };
  absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
  if (!mappings.ok()) return mappings.status();
  const int identify = books->program(Program::kIdentify);
  looks.emplace(identify, base::SubordinateIds(), worker::Hands::kDefault);
  tables = std::make_unique<recording::UnwindTables>(
      recording::UnwindTables::Means{books->unwind(), identify, *looks, *looks, errands}, unwind_bytes);
  for (const elf::Mapping& mapping : *mappings) {
    if (mapping.inode == 0) continue;
    const absl::StatusOr<worker::MappedFile> file = hands.Look(identify, getpid(), mapping);
    if (!file.ok()) return file.status();
    tables->PrepareMapped({.identity = *file,
                           .file = {.pid = getpid(), .mapping = mapping, .version = file->version},
                           .open = {},
                           .name = mapping.path},
                          mapping);
  }
  errands.WaitUntil([this] { return !tables->IsReading(); }, base::Now() + absl::Minutes(1));
  while (tables->kernel().IsLoading()) tables->kernel().LoadSome();
  constexpr char kOwnFile[] = "/proc/self/exe";
  std::vector<ProbeSite> many;
  for (const auto& [program, probe, site] : sites) {
    const auto address = reinterpret_cast<uint64_t>(site);
    const auto mapping = std::find_if(mappings->begin(), mappings->end(), [&](const elf::Mapping& one) {
      return one.start <= address && address < one.end;
    });
    if (mapping == mappings->end()) return absl::InternalError("no mapping with the probes");
    const uint64_t offset = address - mapping->start + mapping->file_offset;
    if (books->program(Program::kAny) >= 0) {
      many.push_back({offset, 0, probe});
      continue;
    }
    absl::StatusOr<AttachedProbe> attached = AttachedProbe::Attach(books->program(program), {kOwnFile, offset, 0}, -1);
    if (!attached.ok()) return attached.status();
    probes.push_back(*std::move(attached));
  }
  if (many.empty()) return absl::OkStatus();
  absl::StatusOr<AttachedProbe> attached = AttachedProbe::AttachMany(books->program(Program::kAny), kOwnFile, many, -1);
  if (!attached.ok()) return attached.status();
  probes.push_back(*std::move(attached));
  return absl::OkStatus();
}

heaptap_tally Sum(const Books& books, uint64_t process_id) {
  heaptap_tally sum = {};
  absl::StatusOr<std::vector<TallyEntry>> tallies = books.entries().ReadTallies(process_id);
  EXPECT_TRUE(tallies.ok()) << tallies.status();
  if (!tallies.ok()) return sum;
  for (const TallyEntry& entry : *tallies) {
    for (auto [to, from] : {std::pair(&sum.allocated, &entry.tally.allocated), {&sum.freed, &entry.tally.freed}}) {
      to->objects += from->objects;
      to->bytes += from->bytes;
      to->weight += from->weight;
      to->weighted_objects += from->weighted_objects;
      to->variance += from->variance;
    }
  }
  return sum;
}

LiveTotals Live(const Books& books, uint64_t process_id) {
  absl::StatusOr<std::map<uint64_t, LiveTotals>> live = books.entries().ReadLiveTotals();
  EXPECT_TRUE(live.ok()) << live.status();
  return live.ok() ? (*live)[process_id] : LiveTotals();
}

void ExpectBalanced(const Books& books, uint64_t process_id) {
  const heaptap_tally sum = Sum(books, process_id);
  const LiveTotals live = Live(books, process_id);
  EXPECT_EQ(sum.allocated.objects - sum.freed.objects, live.objects);
  EXPECT_EQ(sum.allocated.bytes - sum.freed.bytes, live.bytes);
  EXPECT_EQ(sum.allocated.weight - sum.freed.weight, live.weight);
}

}  // namespace heaptap::bpf
