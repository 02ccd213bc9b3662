// SPDX-License-Identifier: Apache-2.0
//
// Unwinds this process's own stacks by its own tables, frame by frame against glibc's backtrace(3).
#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#define HEAPTAP_UNWIND_READ(context, address, word) heaptap::unwind::ReadOwn(address, word)
#define HEAPTAP_UNWIND_REGISTER(context, number, word) (-1)
namespace heaptap::unwind {
static int ReadOwn(uint64_t address, unsigned long long* word);
}
#include "bpf/unwind_step.h"
#include "gtest/gtest.h"
#include "tests/unit/elf_image.h"
#include "userspace/elf/file.h"
#include "userspace/unwind/table.h"

namespace heaptap::unwind {
namespace {

constexpr int kMaxFrames = 256;

struct Module {
  uint64_t start;
  uint64_t end;
  uint64_t bias;
  Table table;
};
std::vector<Module> g_modules;

// All readable memory, while it is set.
uint64_t g_words[64];
bool g_only_words = false;

int AddModule(dl_phdr_info* info, size_t, void*) {
  Module module = {.start = ~uint64_t{0}, .end = 0, .bias = info->dlpi_addr, .table = {}};
  for (const ElfW(Phdr) & segment : absl::MakeSpan(info->dlpi_phdr, info->dlpi_phnum)) {
    if (segment.p_type != PT_LOAD) continue;
    module.start = std::min(module.start, info->dlpi_addr + segment.p_vaddr);
    module.end = std::max(module.end, info->dlpi_addr + segment.p_vaddr + segment.p_memsz);
  }
  base::FileDescriptor descriptor;
  if (getauxval(AT_SYSINFO_EHDR) == module.start) {
    // Its section headers are its end.
    auto* header = reinterpret_cast<const ElfW(Ehdr)*>(module.start);
    size_t size = header->e_shoff + header->e_shnum * sizeof(ElfW(Shdr));
    descriptor = elf::FileWith(std::string(reinterpret_cast<const char*>(header), size));
  } else {
    descriptor.Reset(open(*info->dlpi_name ? info->dlpi_name : "/proc/self/exe", O_RDONLY | O_CLOEXEC));
  }
  auto file = elf::File::Open(descriptor.get());
  if (!file.ok()) return 0;
  auto table = BuildTable(*file);
  EXPECT_TRUE(table.ok()) << info->dlpi_name << table.status();
  if (table.ok()) module.table = *std::move(table);
  g_modules.push_back(std::move(module));
  return 0;
}

uint32_t FindRule(uint64_t address) {
  for (const Module& module : g_modules) {
    if (address >= module.start && address < module.end) return RuleAt(module.table, address - module.bias);
  }
  return 0;
}

struct Stack {
  int count = 0;
  heaptap_unwind_result result = HEAPTAP_UNWIND_CALLER;
  void* addresses[kMaxFrames];
};

// The addresses above `frame`, as backtrace() gives them. Async-signal-safe.
void Unwind(heaptap_unwind_frame frame, Stack& stack) {
  uint64_t lookup = frame.rip;
  stack.count = 0;
  while (stack.count < kMaxFrames) {
    stack.result = heaptap_unwind_step(&frame, FindRule(lookup), nullptr);
    if (stack.result != HEAPTAP_UNWIND_CALLER && stack.result != HEAPTAP_UNWIND_INTERRUPTED) return;
    stack.addresses[stack.count++] = reinterpret_cast<void*>(frame.rip);
    lookup = stack.result == HEAPTAP_UNWIND_CALLER ? frame.rip - 1 : frame.rip;
  }
}

[[gnu::always_inline]] inline heaptap_unwind_frame Here() {
  heaptap_unwind_frame frame = {};
  asm volatile("leaq 0(%%rip), %0\n\tmovq %%rsp, %1\n\tmovq %%rbp, %2"
               : "=&r"(frame.rip), "=&r"(frame.rsp), "=&r"(frame.rbp));
  frame.others = HEAPTAP_UNWIND_OTHERS_LIVE;
  return frame;
}

// The stacks of the two unwinders from the caller on. One function, so that both begin in the same frame.
struct Both {
  Stack own;
  void* theirs[kMaxFrames + 1];
  int count;
};

[[gnu::noinline]] void Take(Both& both) {
  Unwind(Here(), both.own);
  both.count = backtrace(both.theirs, kMaxFrames + 1) - 1;
}

std::string Describe(void* const* addresses, int count) {
  std::string text;
  char** names = backtrace_symbols(addresses, count);
  for (int i = 0; i < count; ++i) text += std::string(names[i]) + "\n";
  free(names);
  return text;
}

volatile bool g_stepping = false;
int g_checks = 0;
int g_deepest = 0;

[[gnu::noinline]] void Check() {
  Both both;
  Take(both);
  ++g_checks;
  g_deepest = std::max(g_deepest, both.own.count);
  EXPECT_EQ(both.own.result, HEAPTAP_UNWIND_END);
  EXPECT_EQ(Describe(both.own.addresses, both.own.count), Describe(both.theirs + 1, both.count));
}

class UnwindStep : public ::testing::Test {
 protected:
  void SetUp() override {
    void* frames[4];
    backtrace(frames, 4);  // loads libgcc_s
    g_modules.clear();
    dl_iterate_phdr(AddModule, nullptr);
    g_checks = 0;
    g_deepest = 0;
  }
};

// Keeps a call from being a tail call.
#define NO_TAIL_CALL asm volatile("" ::: "memory")

[[gnu::noinline, gnu::optimize("omit-frame-pointer")]] int Recurse(int depth) {
  volatile char bytes[40] = {};
  bytes[depth % 40] = 1;
  if (depth == 0) {
    Check();
  } else {
    Recurse(depth - 1);
  }
  return bytes[3];
}

TEST_F(UnwindStep, Recursion) {
  Recurse(200);
  EXPECT_EQ(g_checks, 1);
  EXPECT_GT(g_deepest, 200);
}

[[gnu::noinline]] void WithAlloca(size_t size) {
  auto* bytes = static_cast<volatile char*>(alloca(size));
  bytes[size - 1] = 1;
  if (!g_stepping) Check();
  NO_TAIL_CALL;
}

TEST_F(UnwindStep, Alloca) {
  for (size_t size : {1, 100, 5000}) WithAlloca(size);
  EXPECT_EQ(g_checks, 3);
}

[[gnu::noinline]] void Realigned(size_t size) {
  alignas(64) volatile char aligned[64] = {};
  auto* bytes = static_cast<volatile char*>(alloca(size));
  bytes[0] = aligned[0];
  WithAlloca(size);
  NO_TAIL_CALL;
}

// The CFA is reached through a word on the stack, and RBP is saved relative to itself.
[[gnu::noinline, gnu::force_align_arg_pointer]] void RealignedByPointer(size_t size, int a, int b, int c, int d, int e,
                                                                        int on_the_stack) {
  alignas(64) volatile char aligned[64] = {};
  auto* bytes = static_cast<volatile char*>(alloca(size + on_the_stack));
  bytes[0] = static_cast<char>(aligned[0] + a + b + c + d + e);
  WithAlloca(size);
  NO_TAIL_CALL;
}

TEST_F(UnwindStep, RealignedStack) {
  Realigned(200);
  RealignedByPointer(200, 1, 2, 3, 4, 5, 6);
  EXPECT_EQ(g_checks, 2);
  uint32_t kind = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    uint32_t rule = FindRule(reinterpret_cast<uint64_t>(&RealignedByPointer) + i);
    if (heaptap_unwind_cfa_kind(rule) == HEAPTAP_CFA_DEREF_RBP) kind = heaptap_unwind_rbp_kind(rule);
  }
  EXPECT_EQ(kind, uint32_t{HEAPTAP_RBP_AT_RBP});
}

int Compare(const void* a, const void* b) {
  Check();
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}

TEST_F(UnwindStep, CallbacksOfTheCLibrary) {
  int numbers[] = {3, 1, 2, 9, 4, 7, 5, 6};
  qsort(numbers, 8, sizeof(int), Compare);
  int key = 6;
  EXPECT_NE(bsearch(&key, numbers, 8, sizeof(int), Compare), nullptr);
  EXPECT_GT(g_checks, 8);
}

TEST_F(UnwindStep, CallbacksOfTheCppLibrary) {
  std::once_flag once;
  std::function<void()> check = [] { Check(); };
  std::call_once(once, check);
  try {
    throw 1;
  } catch (int) {
    Check();
  }
  EXPECT_EQ(g_checks, 2);
}

void* Thread(void*) {
  Recurse(3);
  NO_TAIL_CALL;
  return nullptr;
}

TEST_F(UnwindStep, Threads) {
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, nullptr, Thread, nullptr), 0);
  pthread_join(thread, nullptr);
  EXPECT_EQ(g_checks, 1);
}

void CheckInHandler(int) {
  Check();
  NO_TAIL_CALL;
}

void RaiseWith(int flags) {
  struct sigaction action = {};
  struct sigaction old;
  action.sa_handler = CheckInHandler;
  action.sa_flags = flags;
  sigaction(SIGUSR1, &action, &old);
  raise(SIGUSR1);
  sigaction(SIGUSR1, &old, nullptr);
}

TEST_F(UnwindStep, SignalHandler) {
  RaiseWith(0);
  EXPECT_EQ(g_checks, 1);
}

TEST_F(UnwindStep, SignalHandlerOnItsOwnStack) {
  std::vector<char> bytes(1 << 20);
  stack_t stack = {.ss_sp = bytes.data(), .ss_flags = 0, .ss_size = bytes.size()};
  stack_t old;
  sigaltstack(&stack, &old);
  RaiseWith(SA_ONSTACK);
  sigaltstack(&old, nullptr);
  EXPECT_EQ(g_checks, 1);
}

// --- every instruction of a program that runs step by step -----------------------------------------------------------

int g_steps;
int g_differences;
int g_without_register;  // ours ends in the lazy binder, whose CFA is on RBX
int g_kinds[16];
Both g_first_difference;

// Both unwinders go through the signal frame to whatever instruction is next.
void OnStep(int, siginfo_t*, void* context) {
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (!g_stepping) {
    registers[REG_EFL] &= ~0x100;
    return;
  }
  registers[REG_EFL] |= 0x100;
  ++g_steps;
  ++g_kinds[heaptap_unwind_cfa_kind(FindRule(registers[REG_RIP]))];
  static Both both;
  Take(both);
  int count = both.count;
  if (both.own.result == HEAPTAP_UNWIND_NO_REGISTER) {
    ++g_without_register;
    count = both.own.count;
  } else if (both.own.result != HEAPTAP_UNWIND_END) {
    count = -1;
  }
  bool same = count == both.own.count && memcmp(both.own.addresses, both.theirs + 1, count * sizeof(void*)) == 0;
  if (!same && g_differences++ == 0) g_first_difference = both;
}

[[gnu::noinline]] int Program() {
  // Called nowhere else, so bound here if it is bound lazily.
  double number = drand48() + lrand48() % 2;
  char text[64];
  snprintf(text, sizeof(text), "%g", number);
  std::string copy = text;
  copy += std::string(100, 'x');
  WithAlloca(10);
  int numbers[] = {3, 1, 2};
  qsort(numbers, 3, sizeof(int), [](const void* a, const void* b) { return *(const int*)a - *(const int*)b; });
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);  // in the vDSO
  return static_cast<int>(strlen(copy.c_str())) + numbers[0];
}

TEST_F(UnwindStep, EveryInstruction) {
  struct sigaction action = {};
  struct sigaction old;
  action.sa_sigaction = OnStep;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, &old);
  g_stepping = true;
  raise(SIGTRAP);  // its handler sets the trap flag
  int result = Program();
  g_stepping = false;
  NO_TAIL_CALL;
  sigaction(SIGTRAP, &old, nullptr);

  EXPECT_GT(result, 100);
  EXPECT_GT(g_steps, 1000);
  const Both& both = g_first_difference;
  EXPECT_EQ(g_differences, 0) << "ours ended with " << both.own.result << ":\n"
                              << Describe(both.own.addresses, both.own.count) << "theirs:\n"
                              << Describe(both.theirs + 1, both.count);
  if (getenv("HEAPTAP_TEST_VERBOSE")) {
    printf("%d instructions, %d in the lazy binder; by CFA kind:", g_steps, g_without_register);
    for (int count : g_kinds) printf(" %d", count);
    printf("\n");
  }
}

// --- hostile stacks and rules ----------------------------------------------------------------------------------------

heaptap_unwind_frame Frame(int rsp, int rbp) {
  heaptap_unwind_frame frame = {};
  frame.rip = 0x1000;
  frame.rsp = reinterpret_cast<uint64_t>(&g_words[rsp]);
  frame.rbp = reinterpret_cast<uint64_t>(&g_words[rbp]);
  return frame;
}

TEST(UnwindStepRules, AllBitPatternsEndSomehow) {
  for (uint64_t i = 0; i < 64; ++i) g_words[i] = reinterpret_cast<uint64_t>(&g_words[i * 7 % 64]);
  g_only_words = true;
  for (uint64_t rule = 0; rule < uint64_t{1} << 32; rule += 9973) {
    heaptap_unwind_frame frame = Frame(16, 32);
    uint64_t rsp = frame.rsp;
    auto result = heaptap_unwind_step(&frame, static_cast<uint32_t>(rule), nullptr);
    EXPECT_TRUE(result != HEAPTAP_UNWIND_CALLER || frame.rsp >= rsp);
  }
  g_only_words = false;
}

TEST(UnwindStepRules, EachKind) {
  for (uint64_t i = 0; i < 64; ++i) g_words[i] = 1000 + i;
  heaptap_unwind_frame frame = Frame(8, 20);
  uint64_t rsp = frame.rsp;
  EXPECT_EQ(heaptap_unwind_step(&frame, heaptap_unwind_rule(HEAPTAP_CFA_RSP, 4, HEAPTAP_RBP_AT_CFA, -2, 0), nullptr),
            HEAPTAP_UNWIND_CALLER);
  EXPECT_EQ(frame.rsp, rsp + 32);
  EXPECT_EQ(frame.rip, 1011u);
  EXPECT_EQ(frame.rbp, 1010u);

  frame = Frame(8, 20);
  EXPECT_EQ(heaptap_unwind_step(&frame, heaptap_unwind_rule(HEAPTAP_CFA_RBP, 2, HEAPTAP_RBP_SAME, 0, 0), nullptr),
            HEAPTAP_UNWIND_CALLER);
  EXPECT_EQ(frame.rip, 1021u);

  for (uint64_t rip : {0x100a, 0x100b}) {
    frame = Frame(8, 20);
    frame.rip = rip;
    heaptap_unwind_step(&frame, heaptap_unwind_rule(HEAPTAP_CFA_PLT, 0, 0, 0, 0), nullptr);
    EXPECT_EQ(frame.rip, rip == 0x100a ? 1008 : 1009);
    frame = Frame(8, 20);
    frame.rip = rip;
    heaptap_unwind_step(&frame, heaptap_unwind_rule(HEAPTAP_CFA_PLT2, 0, 0, 0, 0), nullptr);
    EXPECT_EQ(frame.rip, 1009u);
  }

  frame = Frame(8, 20);
  g_words[19] = reinterpret_cast<uint64_t>(&g_words[40]);
  uint32_t rule = heaptap_unwind_rule(HEAPTAP_CFA_DEREF_RBP, heaptap_unwind_pair(-1, 2), HEAPTAP_RBP_AT_RBP, 0, 0);
  EXPECT_EQ(heaptap_unwind_step(&frame, rule, nullptr), HEAPTAP_UNWIND_CALLER);
  EXPECT_EQ(frame.rip, 1041u);
  EXPECT_EQ(frame.rbp, 1020u);

  // The stack must not be walked downwards, and an unknown register must not be read.
  frame = Frame(8, 4);
  EXPECT_EQ(heaptap_unwind_step(&frame, heaptap_unwind_rule(HEAPTAP_CFA_RBP, 2, 0, 0, 0), nullptr),
            HEAPTAP_UNWIND_STUCK);
  frame = Frame(8, 4);
  rule = heaptap_unwind_rule(HEAPTAP_CFA_REGISTER, heaptap_unwind_pair(12, 2), 0, 0, 0);
  EXPECT_EQ(heaptap_unwind_step(&frame, rule, nullptr), HEAPTAP_UNWIND_NO_REGISTER);
  frame.others = reinterpret_cast<uint64_t>(&g_words[0]);
  g_words[4] = reinterpret_cast<uint64_t>(&g_words[50]);  // R12
  EXPECT_EQ(heaptap_unwind_step(&frame, rule, nullptr), HEAPTAP_UNWIND_CALLER);
  EXPECT_EQ(frame.rip, 1051u);

  // RBX is where a callee saved it.
  frame = Frame(8, 4);
  rule = heaptap_unwind_rule(HEAPTAP_CFA_RSP, 8, 0, 0, 0) | heaptap_unwind_rbx(3);
  EXPECT_EQ(heaptap_unwind_step(&frame, rule, nullptr), HEAPTAP_UNWIND_CALLER);
  EXPECT_EQ(frame.rbx_at, reinterpret_cast<uint64_t>(&g_words[12]));
  g_words[12] = reinterpret_cast<uint64_t>(&g_words[50]);
  rule = heaptap_unwind_rule(HEAPTAP_CFA_REGISTER, heaptap_unwind_pair(3, 2), 0, 0, 0);
  EXPECT_EQ(heaptap_unwind_step(&frame, rule, nullptr), HEAPTAP_UNWIND_CALLER);
  EXPECT_EQ(frame.rip, 1051u);
  rule = heaptap_unwind_rule(HEAPTAP_CFA_RSP, 1, 0, 0, 0) | heaptap_unwind_rbx(HEAPTAP_RBX_LOST);
  EXPECT_EQ(heaptap_unwind_step(&frame, rule, nullptr), HEAPTAP_UNWIND_CALLER);
  rule = heaptap_unwind_rule(HEAPTAP_CFA_REGISTER, heaptap_unwind_pair(3, 2), 0, 0, 0);
  EXPECT_EQ(heaptap_unwind_step(&frame, rule, nullptr), HEAPTAP_UNWIND_NO_REGISTER);
}

}  // namespace

static int ReadOwn(uint64_t address, unsigned long long* word) {
  uint64_t start = g_only_words ? reinterpret_cast<uint64_t>(g_words) : 0x10000;
  uint64_t end = g_only_words ? start + sizeof(g_words) : uint64_t{1} << 47;
  if (address < start || address > end - sizeof(*word)) return -1;
  *word = *reinterpret_cast<const uint64_t*>(address);
  return 0;
}

}  // namespace heaptap::unwind
