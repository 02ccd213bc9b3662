// SPDX-License-Identifier: Apache-2.0
//
// The eBPF programs and the kernel's books, on the real kernel. A puppet, a forked child of this program, fires probes
// of this program with any arguments: no allocator is needed, and nonsense can be said.
#include <bpf/bpf.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/need_bpf.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/probes.h"
#include "userspace/elf/mappings.h"
#include "userspace/service/unwind_tables.h"

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
        TEST_PROBE start
        TEST_PROBE dump
        TEST_PROBE thread_name

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
void books_test_start(uint64_t control);
void books_test_dump(uint64_t request);
void books_test_thread_name(const char* name);
void books_test_lost_stack(uint64_t address, uint64_t size, uint64_t weight);
extern const char books_test_site_alloc, books_test_site_free, books_test_site_start, books_test_site_dump,
    books_test_site_thread_name, books_test_site_lost_stack;
}

namespace heaptap::bpf {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Order {
  enum Kind {
    kAlloc,      // the samples (address + i * step, size, weight), `count` of them
    kFree,       // frees `count` of them, likewise
    kLostStack,  // a sample without a stack
    kStart,
    kDump,       // `count` times
    kAsk,        // a request of kind `size` with the argument `weight`
    kName,       // the thread is called "thread" from now on
    kNamedEnd,   // another thread with the comm "worker" takes a sample and ends; replies with its TID
    kFork,       // a child that takes one sample at `address` and ends with status 7; replies with its PID
    kVforkExit,  // likewise, by vfork
    kVforkExec,  // likewise, but the vfork child ends with an exec of `true`
    kExec,       // becomes a `sleep`; there is no reply
    kDeep,       // `count` samples, each on another stack
    kRace,       // two threads allocate and free at random for `count` milliseconds, then free all
  };
  Kind kind = kAlloc;
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t weight = 0;
  uint64_t count = 1;
  uint64_t step = 16;
};

#define WITH_FRAMES __attribute__((noinline, optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")))
void Right(uint64_t path, int depth, const Order& order, uint64_t address);

// Ends on a stack that differs with `path`: its bits choose the way.
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
      // On the stack: the kernel reads only what is in memory already.
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
    case Order::kRace: {
      std::thread other([&] { Race(order, order.address + (1 << 20)); });
      Race(order, order.address);
      other.join();
      return 0;
    }
  }
  return -1;
}

class Puppet {
 public:
  Puppet() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      Order order;
      while (recv(ends[1], &order, sizeof(order), 0) == sizeof(order)) {
        const int64_t reply = Obey(order);
        send(ends[1], &reply, sizeof(reply), MSG_NOSIGNAL);
      }
      _exit(0);
    }
    close(ends[1]);
    socket_ = ends[0];
  }
  ~Puppet() { End(SIGKILL); }
  Puppet(const Puppet&) = delete;
  Puppet& operator=(const Puppet&) = delete;

  pid_t pid() const { return pid_; }

  void Send(const Order& order) const { send(socket_, &order, sizeof(order), MSG_NOSIGNAL); }
  // The reply; -1 if the puppet is dead.
  int64_t Wait() const {
    int64_t reply = -1;
    return recv(socket_, &reply, sizeof(reply), 0) == sizeof(reply) ? reply : -1;
  }
  int64_t Do(const Order& order) const {
    Send(order);
    return Wait();
  }

  void End(int signal) {
    if (pid_ <= 0) return;
    kill(pid_, signal);
    waitpid(pid_, nullptr, 0);
    close(socket_);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int socket_ = -1;
};

// Keys in the youngest map of that name that this process has open.
size_t CountEntries(const std::string& name) {
  uint32_t youngest = 0;
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    bpf_map_info info = {};
    uint32_t length = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &length) != 0 || name != info.name || info.id <= youngest) continue;
    youngest = info.id;
    count = 0;
    std::vector<char> key(info.key_size);
    for (void* previous = nullptr; bpf_map_get_next_key(fd, previous, key.data()) == 0; previous = key.data()) count++;
  }
  EXPECT_NE(youngest, 0) << "no map " << name;
  return count;
}

// Loaded programs, attached to this program's probes in every process.
struct Recording {
  absl::Status Load(const MapSizes& sizes) {
    absl::StatusOr<std::unique_ptr<Books>> loaded = Books::Load(sizes);
    if (!loaded.ok()) return loaded.status();
    books = *std::move(loaded);
    const std::pair<int, const char*> sites[] = {
        {books->program(Program::kDump), &books_test_site_dump},
        {books->program(Program::kStart), &books_test_site_start},
        {books->program(Program::kFree), &books_test_site_free},
        {books->program(Program::kAlloc), &books_test_site_alloc},
        {books->program(Program::kAlloc), &books_test_site_lost_stack},
        {books->program(Program::kThreadName), &books_test_site_thread_name},
    };
    absl::StatusOr<std::vector<elf::Mapping>> mappings = elf::ReadExecutableMappings(getpid());
    if (!mappings.ok()) return mappings.status();
    tables = std::make_unique<service::UnwindTables>(books->unwind(), sizes.unwind_bytes);
    for (const elf::Mapping& mapping : *mappings) {
      if (absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(getpid(), mapping); file.ok()) {
        tables->Prepare(file->file.get(), mapping.path);
      }
    }
    for (const auto& [program, site] : sites) {
      const auto address = reinterpret_cast<uint64_t>(site);
      const auto mapping = std::find_if(mappings->begin(), mappings->end(), [&](const elf::Mapping& one) {
        return one.start <= address && address < one.end;
      });
      if (mapping == mappings->end()) return absl::InternalError("no mapping with the probes");
      const ProbeLocation location = {"/proc/self/exe", address - mapping->start + mapping->file_offset, 0};
      absl::StatusOr<AttachedProbe> probe = AttachedProbe::Attach(program, location, -1);
      if (!probe.ok()) return probe.status();
      probes.push_back(*std::move(probe));
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Books> books;
  std::unique_ptr<service::UnwindTables> tables;
  std::vector<AttachedProbe> probes;  // go before the books
};

class BooksTest : public ::testing::Test {
 protected:
  // Maps of other sizes are this test's own. Those of the default sizes are shared: to detach takes half a second.
  absl::Status Load(const MapSizes& sizes) {
    absl::Status status = own_.Load(sizes);
    books_ = own_.books.get();
    return status;
  }
  absl::Status Load() {
    if (shared_ == nullptr) {
      shared_ = new Recording;
      if (absl::Status status = shared_->Load({}); !status.ok()) {
        delete std::exchange(shared_, nullptr);
        return status;
      }
    }
    books_ = shared_->books.get();
    return absl::OkStatus();
  }
  static void TearDownTestSuite() { delete std::exchange(shared_, nullptr); }

  void TearDown() override {
    if (books_ == nullptr) return;
    Events();
    for (const pid_t pid : pids_) books_->Untrack(pid);
    for (const uint64_t id : ids_) EXPECT_TRUE(books_->Forget({id}).ok());
    EXPECT_TRUE(books_->Sweep().ok());
  }

  uint64_t Track(pid_t pid, bool follow = false, const Triggers& triggers = {}) {
    absl::StatusOr<uint64_t> id = books_->Track(pid, follow, triggers);
    EXPECT_TRUE(id.ok()) << id.status();
    pids_.insert(pid);
    ids_.insert(id.value_or(0));
    return id.value_or(0);
  }

  heaptap_tally Sum(uint64_t process_id) {
    heaptap_tally sum = {};
    absl::StatusOr<std::vector<TallyEntry>> tallies = books_->ReadTallies(process_id);
    EXPECT_TRUE(tallies.ok()) << tallies.status();
    if (!tallies.ok()) return sum;
    for (const TallyEntry& entry : *tallies) {
      for (auto [to, from] : {std::pair(&sum.allocated, &entry.tally.allocated), {&sum.freed, &entry.tally.freed}}) {
        to->objects += from->objects;
        to->bytes += from->bytes;
        to->weight += from->weight;
        to->weighted_objects += from->weighted_objects;
      }
    }
    return sum;
  }

  LiveTotals Live(uint64_t process_id) {
    absl::StatusOr<LiveTotals> live = books_->ReadLiveTotals(process_id);
    EXPECT_TRUE(live.ok()) << live.status();
    return live.value_or(LiveTotals());
  }

  void ExpectBalanced(uint64_t process_id) {
    const heaptap_tally sum = Sum(process_id);
    const LiveTotals live = Live(process_id);
    EXPECT_EQ(sum.allocated.objects - sum.freed.objects, live.objects);
    EXPECT_EQ(sum.allocated.bytes - sum.freed.bytes, live.bytes);
    EXPECT_EQ(sum.allocated.weight - sum.freed.weight, live.weight);
  }

  std::vector<heaptap_event> Events() {
    absl::StatusOr<std::vector<heaptap_event>> events = books_->TakeEvents();
    EXPECT_TRUE(events.ok()) << events.status();
    if (!events.ok()) return {};
    for (const heaptap_event& event : *events) {
      pids_.insert(static_cast<pid_t>(event.tgid));
      if (event.process_id != 0) ids_.insert(event.process_id);
    }
    return *std::move(events);
  }

  std::vector<uint32_t> Kinds(const std::vector<heaptap_event>& events) {
    std::vector<uint32_t> kinds;
    for (const heaptap_event& event : events) kinds.push_back(event.kind);
    return kinds;
  }

  Books* books_ = nullptr;

 private:
  Recording own_;
  static Recording* shared_;
  // What was seen, to be cleaned up.
  std::set<pid_t> pids_;
  std::set<uint64_t> ids_;
};

Recording* BooksTest::shared_ = nullptr;

TEST_F(BooksTest, SamplesOfTrackedProcessesOnly) {
  NEED_BPF(Load());
  Puppet tracked;
  Puppet other;
  const uint64_t id = Track(tracked.pid());
  tracked.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 100, .weight = 1000});
  other.Do({.kind = Order::kAlloc, .address = 0x2000, .size = 100, .weight = 1000});
  absl::StatusOr<std::vector<TallyEntry>> tallies = books_->ReadTallies(id);
  ASSERT_TRUE(tallies.ok()) << tallies.status();
  ASSERT_THAT(*tallies, SizeIs(1));
  EXPECT_EQ((*tallies)[0].tid, tracked.pid());
  EXPECT_EQ((*tallies)[0].tally.allocated.objects, 1);
  EXPECT_EQ((*tallies)[0].tally.allocated.bytes, 100);
  EXPECT_EQ((*tallies)[0].tally.allocated.weight, 1000);
  EXPECT_EQ((*tallies)[0].tally.allocated.weighted_objects, 10 << HEAPTAP_OBJECT_FRACTION_BITS);
  EXPECT_EQ((*tallies)[0].tally.freed.objects, 0);
  EXPECT_EQ(Live(id).objects, 1);
  EXPECT_EQ(CountEntries("live"), 1);

  absl::StatusOr<heaptap_stack> stack = books_->ReadStack((*tallies)[0].stack_id);
  ASSERT_TRUE(stack.ok()) << stack.status();
  EXPECT_GT(stack->count, 1);
  EXPECT_EQ(stack->frames[0], reinterpret_cast<uint64_t>(&books_test_site_alloc));
  EXPECT_TRUE(absl::IsNotFound(books_->ReadStack(HEAPTAP_NO_STACK).status()));
}

TEST_F(BooksTest, FreeTakesTheObjectOut) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 100, .weight = 1000, .count = 10});
  puppet.Do({.kind = Order::kFree, .address = 0x1000, .count = 4});
  puppet.Do({.kind = Order::kFree, .address = 0x1000, .count = 4});  // twice: nothing is there
  puppet.Do({.kind = Order::kFree, .address = 0x999990});            // never sampled
  const heaptap_tally sum = Sum(id);
  EXPECT_EQ(sum.allocated.objects, 10);
  EXPECT_EQ(sum.freed.objects, 4);
  EXPECT_EQ(sum.freed.bytes, 400);
  EXPECT_EQ(sum.freed.weight, 4000);
  EXPECT_EQ(sum.freed.weighted_objects, 40 << HEAPTAP_OBJECT_FRACTION_BITS);
  EXPECT_EQ(Live(id).objects, 6);
  ExpectBalanced(id);
  for (const heaptap_loss& loss : books_->ReadLosses(id)) EXPECT_EQ(loss.events, 0);
}

TEST_F(BooksTest, NamesOfThreads) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  EXPECT_TRUE(absl::IsNotFound(books_->ReadThreadName(id, puppet.pid()).status()));
  puppet.Do({.kind = Order::kName});
  absl::StatusOr<ThreadName> given = books_->ReadThreadName(id, puppet.pid());
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->name, "thread");
  EXPECT_TRUE(given->given);

  const int64_t tid = puppet.Do({.kind = Order::kNamedEnd, .address = 0x1000, .size = 16, .weight = 16});
  // The tracepoint runs after join has been woken.
  absl::StatusOr<ThreadName> kept = absl::NotFoundError("");
  for (int tries = 0; tries < 1000 && !kept.ok(); tries++) {
    kept = books_->ReadThreadName(id, static_cast<uint32_t>(tid));
    usleep(1000);
  }
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->name, "worker");
  EXPECT_FALSE(kept->given);

  const pid_t main_thread = puppet.pid();
  puppet.End(SIGKILL);
  given = books_->ReadThreadName(id, main_thread);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->name, "thread") << "what the program said stays when the thread ends";
}

TEST_F(BooksTest, ResetBeginsNewBooks) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id =
      Track(puppet.pid(), false, {.first_high_water = 4096, .high_water_percent = 10, .interval = 4096});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 100, .weight = 1000, .count = 3});
  Events();
  puppet.Do({.kind = Order::kAsk, .size = HEAPTAP_ASK_RESET, .weight = 7});
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_RESET));
  EXPECT_EQ(events[0].argument, id);
  const uint64_t new_id = events[0].process_id;
  EXPECT_NE(new_id, id);
  EXPECT_TRUE(books_->IsCurrent(puppet.pid(), new_id));
  heaptap_dump_request request;
  memcpy(&request, events[0].memory, sizeof(request));
  EXPECT_EQ(request.argument, 7);

  puppet.Do({.kind = Order::kFree, .address = 0x1000});  // of before: nobody's any more
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 200, .weight = 200});
  EXPECT_EQ(Sum(id).allocated.objects, 3);
  EXPECT_EQ(Sum(id).freed.objects, 0);
  EXPECT_EQ(Sum(new_id).allocated.objects, 1);
  EXPECT_EQ(Live(new_id).bytes, 200);
  ExpectBalanced(new_id);
  EXPECT_THAT(Events(), IsEmpty()) << "triggers count from the reset on";
  puppet.Do({.kind = Order::kAlloc, .address = 0x2000, .size = 4000, .weight = 4000});
  EXPECT_THAT(Kinds(Events()), ElementsAre(HEAPTAP_EVENT_HIGH_WATER, HEAPTAP_EVENT_INTERVAL));
}

TEST_F(BooksTest, ResetOfAProcessThatIsNotRecorded) {
  NEED_BPF(Load());
  Puppet puppet;
  puppet.Do({.kind = Order::kAsk, .size = HEAPTAP_ASK_RESET});
  puppet.Do({.kind = Order::kAsk, .size = HEAPTAP_ASK_RECORD, .weight = 1});
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(BooksTest, RecordsOfSamples) {
  constexpr uint32_t kCapacity = 8;
  NEED_BPF(Load({.records = kCapacity}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x100, .size = 16, .weight = 16});  // nobody has asked yet
  puppet.Do({.kind = Order::kAsk, .size = HEAPTAP_ASK_RECORD, .weight = 1});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 100, .weight = 1000, .count = 3});
  puppet.Do({.kind = Order::kFree, .address = 0x1010});
  puppet.Do({.kind = Order::kFree, .address = 0x100});
  absl::StatusOr<std::vector<heaptap_record>> records = books_->ReadRecords(id);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_THAT(*records, SizeIs(3));
  for (size_t i = 0; i < 3; i++) {
    const heaptap_record& record = (*records)[i];
    EXPECT_EQ(record.address, 0x1000 + 16 * i);
    EXPECT_EQ(record.size, 100);
    EXPECT_EQ(record.tid, puppet.pid());
    EXPECT_TRUE(books_->ReadStack(record.stack_id).ok());
    EXPECT_EQ(record.free_time != 0, i == 1);
  }
  const heaptap_record& freed = (*records)[1];
  EXPECT_GE(freed.free_time, freed.time);
  EXPECT_EQ(freed.free_tid, puppet.pid());
  absl::StatusOr<heaptap_stack> stack = books_->ReadStack(freed.free_stack_id);
  ASSERT_TRUE(stack.ok()) << stack.status();
  EXPECT_EQ(stack->frames[0], reinterpret_cast<uint64_t>(&books_test_site_free));
  ExpectBalanced(id);

  // The oldest go; a free of an object whose record is gone touches no other's.
  puppet.Do({.kind = Order::kAlloc, .address = 0x2000, .size = 64, .weight = 64, .count = kCapacity});
  puppet.Do({.kind = Order::kFree, .address = 0x1000});
  records = books_->ReadRecords(id);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_THAT(*records, SizeIs(kCapacity));
  for (size_t i = 0; i < kCapacity; i++) {
    EXPECT_EQ((*records)[i].address, 0x2000 + 16 * i);
    EXPECT_EQ((*records)[i].free_time, 0);
  }

  puppet.Do({.kind = Order::kAsk, .size = HEAPTAP_ASK_RECORD, .weight = 0});
  puppet.Do({.kind = Order::kAlloc, .address = 0x3000, .size = 64, .weight = 64});
  records = books_->ReadRecords(id);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->back().address, 0x2000 + 16 * (kCapacity - 1));
}

TEST_F(BooksTest, UntrackedProcessesWriteNothingMore) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 16, .weight = 16});
  EXPECT_TRUE(books_->IsCurrent(puppet.pid(), id));
  EXPECT_FALSE(books_->Track(puppet.pid(), false, {}).ok()) << "one process, one book";
  books_->Untrack(puppet.pid());
  EXPECT_FALSE(books_->IsCurrent(puppet.pid(), id));
  puppet.Do({.kind = Order::kAlloc, .address = 0x2000, .size = 16, .weight = 16});
  puppet.Do({.kind = Order::kFree, .address = 0x1000});
  EXPECT_EQ(Sum(id).allocated.objects, 1);
  EXPECT_EQ(Live(id).objects, 1);
  EXPECT_NE(Track(puppet.pid()), id) << "a process id is never used twice";
}

TEST_F(BooksTest, TheSameAddressTwiceIsAMissedFree) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 100, .weight = 1000});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 50, .weight = 500});
  EXPECT_EQ(books_->ReadLosses(id)[HEAPTAP_LOSS_MISSED_FREE].events, 1);
  EXPECT_EQ(Sum(id).allocated.objects, 2);
  EXPECT_EQ(Sum(id).freed.objects, 1);
  EXPECT_EQ(Live(id).bytes, 50);
  ExpectBalanced(id);
}

TEST_F(BooksTest, ImpossibleSamplesAreLosses) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 0, .weight = 1});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 2, .weight = 1});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 1, .weight = uint64_t{1} << 48});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = ~uint64_t{0}, .weight = ~uint64_t{0}});
  EXPECT_EQ(books_->ReadLosses(id)[HEAPTAP_LOSS_BAD_SAMPLE].events, 4);
  EXPECT_EQ(Sum(id).allocated.objects, 0);
  EXPECT_EQ(Live(id).objects, 0);
}

TEST_F(BooksTest, AFullMapOfLiveObjectsIsALoss) {
  NEED_BPF(Load({.live = 64}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x10000, .size = 16, .weight = 32, .count = 100});
  const Losses losses = books_->ReadLosses(id);
  EXPECT_EQ(Sum(id).allocated.objects, 64);
  EXPECT_EQ(losses[HEAPTAP_LOSS_LIVE_FULL].events, 36);
  EXPECT_EQ(losses[HEAPTAP_LOSS_LIVE_FULL].weight, 36 * 32);
  ExpectBalanced(id);
  EXPECT_THAT(Kinds(Events()), Contains(HEAPTAP_EVENT_LIVE_FILLING));
}

// While all was live a sweep could not help; after the frees it can, and somebody must ask for it.
TEST_F(BooksTest, AMapThatWasFullOfLiveObjectsIsUsedAgain) {
  NEED_BPF(Load({.live = 64}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x10000, .size = 16, .weight = 32, .count = 100});
  Events();
  ASSERT_TRUE(books_->Sweep().ok());
  puppet.Do({.kind = Order::kFree, .address = 0x10000, .count = 100});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  uint64_t allocated = Sum(id).allocated.objects;
  for (uint64_t address = 0x100000; Sum(id).allocated.objects == allocated; address += 0x10) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "the map stays full for ever";
    puppet.Do({.kind = Order::kAlloc, .address = address, .size = 16, .weight = 32});
    for (const heaptap_event& event : Events()) {
      if (event.kind != HEAPTAP_EVENT_LIVE_FILLING) continue;
      ASSERT_TRUE(books_->Sweep().ok());
    }
  }
  ExpectBalanced(id);
}

// Live objects cannot be swept: to try it again at each new sample would be all that the collector does.
TEST_F(BooksTest, SweepsThatCannotHelpAreRare) {
  NEED_BPF(Load({.live = 1024}));
  Puppet puppet;
  Track(puppet.pid());
  int sweeps = 0;
  for (int i = 0; i < 1100; i++) {
    puppet.Do({.kind = Order::kAlloc, .address = 0x10000 + uint64_t(i) * 16, .size = 16, .weight = 32});
    for (const heaptap_event& event : Events()) {
      if (event.kind != HEAPTAP_EVENT_LIVE_FILLING) continue;
      sweeps++;
      ASSERT_TRUE(books_->Sweep().ok());
    }
  }
  EXPECT_GE(sweeps, 1);
  EXPECT_LE(sweeps, 20);
}

TEST_F(BooksTest, ASweepTakesOnlyWhatWasFreed) {
  NEED_BPF(Load({.live = 128}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x10000, .size = 16, .weight = 32, .count = 100});
  puppet.Do({.kind = Order::kFree, .address = 0x10000, .count = 90});
  EXPECT_EQ(CountEntries("live"), 100);
  ASSERT_TRUE(books_->Sweep().ok());
  EXPECT_EQ(CountEntries("live"), 10);
  EXPECT_EQ(Live(id).objects, 10);
  ExpectBalanced(id);
  puppet.Do({.kind = Order::kAlloc, .address = 0x20000, .size = 16, .weight = 32, .count = 118});
  EXPECT_EQ(books_->ReadLosses(id)[HEAPTAP_LOSS_LIVE_FULL].events, 0);
  EXPECT_EQ(Live(id).objects, 128);
}

TEST_F(BooksTest, SweepsRaceWithAllocationAndFree) {
  NEED_BPF(Load({.live = 8192}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Send({.kind = Order::kRace, .address = 0x10000, .count = 1500});
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  while (std::chrono::steady_clock::now() < end) ASSERT_TRUE(books_->Sweep().ok());
  ASSERT_EQ(puppet.Wait(), 0);
  ExpectBalanced(id);
  // A sample that met the sweep of its own entry may be lost, and then its free finds nothing.
  EXPECT_EQ(Live(id).objects, 0);
  EXPECT_EQ(books_->ReadLosses(id)[HEAPTAP_LOSS_MISSED_FREE].events, 0);
  ASSERT_TRUE(books_->Sweep().ok());
  EXPECT_EQ(CountEntries("live"), 0);
}

TEST_F(BooksTest, AFullMapOfTalliesIsALossAndLeavesNothingBehind) {
  NEED_BPF(Load({.tallies = 16}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kDeep, .address = 0x10000, .size = 16, .weight = 32, .count = 100});
  EXPECT_EQ(Sum(id).allocated.objects, 16);
  EXPECT_EQ(books_->ReadLosses(id)[HEAPTAP_LOSS_TALLIES_FULL].events, 84);
  ExpectBalanced(id);
  puppet.End(SIGKILL);
  ASSERT_TRUE(books_->Forget({id}).ok());
  EXPECT_EQ(CountEntries("tallies"), 0);
  EXPECT_EQ(CountEntries("stacks"), 0) << "stacks of samples that found no room for a tally";
}

TEST_F(BooksTest, AFullMapOfStacksLosesStacksNotSamples) {
  NEED_BPF(Load({.stacks = 16}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kDeep, .address = 0x10000, .size = 16, .weight = 32, .count = 100});
  EXPECT_EQ(Sum(id).allocated.objects, 100);
  EXPECT_EQ(books_->ReadLosses(id)[HEAPTAP_LOSS_STACKS_FULL].events, 84);
  absl::StatusOr<std::vector<TallyEntry>> tallies = books_->ReadTallies(id);
  ASSERT_TRUE(tallies.ok());
  EXPECT_THAT(*tallies, SizeIs(17));
  for (const TallyEntry& entry : *tallies) {
    if (entry.stack_id == HEAPTAP_NO_STACK) {
      EXPECT_EQ(entry.tally.allocated.objects, 84);
    } else {
      EXPECT_TRUE(books_->ReadStack(entry.stack_id).ok());
    }
  }
  ExpectBalanced(id);
}

// The walk must not show what another process's walk has left in the scratch buffer.
TEST_F(BooksTest, AStackPointerNearZeroShowsNobodysStack) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kDeep, .address = 0x10000, .size = 16, .weight = 32, .count = 8});
  const size_t before = books_->ReadTallies(id)->size();
  puppet.Do({.kind = Order::kLostStack, .address = 0x20000, .size = 16, .weight = 32});
  absl::StatusOr<std::vector<TallyEntry>> tallies = books_->ReadTallies(id);
  ASSERT_TRUE(tallies.ok());
  EXPECT_THAT(*tallies, SizeIs(before + 1));
  for (const TallyEntry& entry : *tallies) {
    absl::StatusOr<heaptap_stack> stack = books_->ReadStack(entry.stack_id);
    ASSERT_TRUE(stack.ok()) << stack.status();
    if (stack->frames[0] != reinterpret_cast<uint64_t>(&books_test_site_lost_stack)) continue;
    EXPECT_EQ(stack->count, 1);
    EXPECT_EQ(stack->end, HEAPTAP_STACK_NO_RULE);
  }
}

TEST_F(BooksTest, ForgetLeavesNothing) {
  NEED_BPF(Load());
  Puppet puppet;
  Puppet other;
  const uint64_t id = Track(puppet.pid());
  const uint64_t other_id = Track(other.pid());
  puppet.Do({.kind = Order::kDeep, .address = 0x10000, .size = 16, .weight = 32, .count = 1000});
  puppet.Do({.kind = Order::kAlloc, .address = 0x100000, .size = 16, .weight = 32, .count = 20000});
  puppet.Do({.kind = Order::kFree, .address = 0x100000, .count = 10000});
  puppet.Do({.kind = Order::kAlloc, .address = 0x100000, .size = 0, .weight = 32});
  other.Do({.kind = Order::kDeep, .address = 0x10000, .size = 16, .weight = 32, .count = 10});
  puppet.End(SIGKILL);
  ASSERT_TRUE(books_->Forget({id}).ok());
  ASSERT_TRUE(books_->Sweep().ok());
  EXPECT_EQ(CountEntries("forgotten"), 0);
  EXPECT_EQ(Sum(id).allocated.objects, 0);
  EXPECT_EQ(Live(id).objects, 0);
  EXPECT_EQ(CountEntries("processes"), 1);
  EXPECT_EQ(CountEntries("tallies"), 10);
  EXPECT_EQ(CountEntries("stacks"), 10);
  EXPECT_EQ(CountEntries("live"), 10);
  EXPECT_EQ(CountEntries("losses"), HEAPTAP_LOSS_REASONS - HEAPTAP_NO_LOSS - 1) << "those of no process";
  ExpectBalanced(other_id);
}

TEST_F(BooksTest, ExitEndsAProcess) {
  NEED_BPF(Load());
  Puppet puppet;
  const pid_t pid = puppet.pid();
  const uint64_t id = Track(pid);
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 16, .weight = 32});
  puppet.End(SIGKILL);
  EXPECT_FALSE(books_->IsCurrent(pid, id));
  EXPECT_EQ(CountEntries("processes"), 0);
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_EXIT));
  EXPECT_EQ(events[0].process_id, id);
  EXPECT_EQ(events[0].tgid, pid);
  EXPECT_EQ(events[0].argument, SIGKILL);
  EXPECT_EQ(Live(id).objects, 1) << "the books outlive the process";
}

TEST_F(BooksTest, AForkedChildHasBooksOfItsOwnIfItIsFollowed) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid(), true);
  const auto child =
      static_cast<uint32_t>(puppet.Do({.kind = Order::kFork, .address = 0x1000, .size = 100, .weight = 200}));
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_FORK, HEAPTAP_EVENT_EXIT));
  EXPECT_EQ(events[0].tgid, child);
  EXPECT_EQ(events[0].argument, id);
  const uint64_t child_id = events[0].process_id;
  EXPECT_NE(child_id, id);
  EXPECT_EQ(events[1].process_id, child_id);
  EXPECT_EQ(events[1].argument, 7 << 8);
  EXPECT_EQ(Live(id).objects, 0);
  EXPECT_EQ(Live(child_id).bytes, 100);
  EXPECT_EQ(CountEntries("processes"), 1);
}

TEST_F(BooksTest, AForkedChildIsNotRecordedIfItIsNotFollowed) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid(), false);
  puppet.Do({.kind = Order::kFork, .address = 0x1000, .size = 100, .weight = 200});
  EXPECT_THAT(Events(), IsEmpty());
  EXPECT_EQ(Live(id).objects, 0);
  EXPECT_EQ(CountEntries("live"), 0);
  EXPECT_EQ(CountEntries("processes"), 1);
}

TEST_F(BooksTest, AVforkedChildWritesInItsParentsBooks) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid(), false);
  puppet.Do({.kind = Order::kVforkExit, .address = 0x1000, .size = 100, .weight = 200});
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_EXIT));
  EXPECT_EQ(events[0].process_id, 0) << "no books end";
  EXPECT_EQ(Live(id).bytes, 100) << "the memory is the parent's";
  puppet.Do({.kind = Order::kFree, .address = 0x1000});
  EXPECT_EQ(Live(id).bytes, 0);
  EXPECT_EQ(CountEntries("processes"), 1);
}

TEST_F(BooksTest, AVforkedChildLeavesItsParentsBooksWithExec) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid(), true);
  const auto child =
      static_cast<uint32_t>(puppet.Do({.kind = Order::kVforkExec, .address = 0x1000, .size = 100, .weight = 200}));
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_EXEC, HEAPTAP_EVENT_EXIT));
  EXPECT_EQ(events[0].tgid, child);
  EXPECT_NE(events[0].process_id, id);
  EXPECT_EQ(events[0].argument, 0) << "no books end";
  EXPECT_EQ(events[1].process_id, events[0].process_id);
  EXPECT_EQ(Live(id).bytes, 100);
  EXPECT_EQ(CountEntries("processes"), 1);
}

TEST_F(BooksTest, ExecBeginsNewBooks) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid(), false);
  puppet.Send({.kind = Order::kExec});
  EXPECT_EQ(puppet.Wait(), -1) << "the socket closes with the exec";
  std::vector<heaptap_event> events;
  for (int i = 0; i < 1000 && events.empty(); i++) {
    events = Events();
    usleep(1000);
  }
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_EXEC));
  EXPECT_EQ(events[0].argument, id);
  EXPECT_NE(events[0].process_id, id);
  EXPECT_FALSE(books_->IsCurrent(puppet.pid(), id));
  EXPECT_TRUE(books_->IsCurrent(puppet.pid(), events[0].process_id));
}

TEST_F(BooksTest, AStartBringsTheControlBlock) {
  NEED_BPF(Load());
  char control[HEAPTAP_CONTROL_BYTES];
  for (size_t i = 0; i < sizeof(control); i++) control[i] = static_cast<char>(i + 1);
  Puppet puppet;  // has a copy at the same address
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kStart, .address = reinterpret_cast<uint64_t>(control)});
  puppet.Do({.kind = Order::kStart, .address = 8});
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_START, HEAPTAP_EVENT_START));
  EXPECT_EQ(events[0].process_id, id);
  EXPECT_EQ(memcmp(events[0].memory, control, sizeof(control)), 0);
  EXPECT_THAT(std::vector<uint8_t>(events[1].memory, events[1].memory + HEAPTAP_CONTROL_BYTES), ::testing::Each(0));
}

TEST_F(BooksTest, TriggersSendOneEventForEachStep) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id =
      Track(puppet.pid(), false, {.first_high_water = 1000, .high_water_percent = 50, .interval = 10000});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 10, .weight = 100, .count = 9});
  EXPECT_THAT(Events(), IsEmpty());
  puppet.Do({.kind = Order::kAlloc, .address = 0x2000, .size = 10, .weight = 100});
  std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_HIGH_WATER));
  EXPECT_EQ(events[0].argument, 1000);
  EXPECT_EQ(events[0].process_id, id);
  puppet.Do({.kind = Order::kFree, .address = 0x1000, .count = 9});
  puppet.Do({.kind = Order::kAlloc, .address = 0x3000, .size = 10, .weight = 100, .count = 13});
  EXPECT_THAT(Events(), IsEmpty()) << "1400 live";
  puppet.Do({.kind = Order::kAlloc, .address = 0x4000, .size = 10, .weight = 100});
  EXPECT_THAT(Kinds(Events()), ElementsAre(HEAPTAP_EVENT_HIGH_WATER));
  puppet.Do({.kind = Order::kAlloc, .address = 0x5000, .size = 10, .weight = 50000});
  EXPECT_THAT(Kinds(Events()), ElementsAre(HEAPTAP_EVENT_HIGH_WATER, HEAPTAP_EVENT_INTERVAL));
}

TEST_F(BooksTest, LostEventsAreCountedWhereTheyAreSeen) {
  NEED_BPF(Load({.events_bytes = 4096}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid(), true);
  for (int i = 0; i < 40; i++) puppet.Do({.kind = Order::kFork, .address = 0x1000, .size = 16, .weight = 16});
  // Each child sent a FORK and an EXIT. Nobody knows a child whose FORK was lost: that loss belongs to no process.
  uint64_t forks = books_->ReadLosses(0)[HEAPTAP_LOSS_EVENTS_FULL].events;
  EXPECT_GT(forks, 0);
  uint64_t ends = 0;
  uint64_t known = 0;
  for (const heaptap_event& event : Events()) {
    ends += event.kind == HEAPTAP_EVENT_EXIT;
    if (event.kind != HEAPTAP_EVENT_FORK) continue;
    known++;
    ends += books_->ReadLosses(event.process_id)[HEAPTAP_LOSS_EVENTS_FULL].events;
  }
  EXPECT_EQ(forks + known, 40);
  EXPECT_EQ(ends, known);
  EXPECT_EQ(books_->ReadLosses(id)[HEAPTAP_LOSS_EVENTS_FULL].events, 0);
  EXPECT_EQ(CountEntries("processes"), 1);
}

// A process that nobody records must not be able to drown the events of those that are.
TEST_F(BooksTest, StrangersCannotFillTheRingBuffer) {
  NEED_BPF(Load({.events_bytes = 65536}));
  Puppet stranger;
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  stranger.Do({.kind = Order::kDump, .address = 0x1000, .count = 10000});
  puppet.Do({.kind = Order::kDump, .address = 0x2000});
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(events, Not(IsEmpty()));
  EXPECT_EQ(events.front().process_id, 0);
  EXPECT_EQ(events.back().process_id, id);
  EXPECT_EQ(events.back().argument, 0x2000);
  EXPECT_EQ(books_->ReadLosses(id)[HEAPTAP_LOSS_EVENTS_FULL].events, 0);
}

TEST_F(BooksTest, AFullMapOfProcessesIsALoss) {
  NEED_BPF(Load({.processes = 1}));
  Puppet puppet;
  Track(puppet.pid(), true);
  puppet.Do({.kind = Order::kFork, .address = 0x1000, .size = 16, .weight = 16});
  EXPECT_EQ(books_->ReadLosses(0)[HEAPTAP_LOSS_PROCESSES_FULL].events, 1);
  EXPECT_THAT(Events(), IsEmpty());
}

TEST(Losses, HaveNamesAndDescriptions) {
  for (uint32_t reason = 0; reason < HEAPTAP_LOSS_REASONS; reason++) {
    EXPECT_FALSE(LossName(reason).empty());
    EXPECT_FALSE(LossDescription(reason).empty());
  }
}

}  // namespace
}  // namespace heaptap::bpf
