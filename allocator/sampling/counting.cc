// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/counting.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/platform/libc.h"
#include "allocator/platform/numbers.h"
#include "allocator/platform/system.h"
#include "heaptap/contract.h"

namespace heaptap::counting {
namespace internal {

constinit thread_local Knowledge* mine = nullptr;
constinit std::atomic<uint64_t> state;
constinit std::atomic<uint64_t> books_bits;

}  // namespace internal

namespace {

using internal::Knowledge;
using internal::mine;
using internal::state;

constexpr size_t kBytes = RoundUp(sizeof(Knowledge), kPageSize);

class Learning {
 public:
  explicit Learning(Knowledge& known) : known_(known) {
    known_.is_learning = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~Learning() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    known_.is_learning = false;
  }
  Learning(const Learning&) = delete;
  Learning& operator=(const Learning&) = delete;

 private:
  Knowledge& known_;
};

// Samples that were compared.
constinit std::atomic<uint64_t> verified;

// A thread that has ended knows nothing any more; its destructors may still allocate.
constinit thread_local bool has_ended = false;

[[gnu::cold, gnu::noinline]] Knowledge* Begin() {
  if (has_ended) return nullptr;
  const uint32_t mailbox = areas::TakeMailbox();
  if (mailbox == 0) return nullptr;
  auto* const made = static_cast<Knowledge*>(MapAligned(kBytes, kPageSize));
  if (made == nullptr) {
    areas::ReturnMailbox(mailbox);
    return nullptr;
  }
  made->mailbox = mailbox;
  made->state = state.load(std::memory_order_relaxed);
  made->books = internal::books_bits.load(std::memory_order_relaxed);
  mine = made;
  return made;
}

// Ignores the frees of all blocks that were counted so far.
void DisownBlocks() {
  constexpr uint64_t kOne = uint64_t{1} << internal::kBooksShift;
  constexpr uint64_t kMask = uint64_t{UINT16_MAX} << internal::kBooksShift;
  const uint64_t before = internal::books_bits.load(std::memory_order_relaxed);
  internal::books_bits.store((before + kOne) & kMask, std::memory_order_relaxed);
}

}  // namespace

uint32_t MailboxOfThread() {
  if (!areas::MayCount()) return 0;
  Knowledge* const known = mine != nullptr ? mine : Begin();
  if (known == nullptr || known->is_learning) return 0;
  const uint64_t now = state.load(std::memory_order_relaxed);
  if (known->state != now) {
    if (!known->stacks.Clear()) return 0;
    known->state = now;
    const uint64_t books = internal::books_bits.load(std::memory_order_relaxed);
    if (known->books != books) known->numbers.Clear();
    known->books = books;
  }
  return known->mailbox;
}

void Learn(uint64_t frame, uint64_t serial) {
  Knowledge& known = *mine;
  const Learning learning(known);
  const heaptap_mailbox& mailbox = areas::Mailbox(known.mailbox);
  const uint32_t count = mailbox.count;
  // A signal handler may have reported a sample of its own after this one.
  if (mailbox.serial != serial) return;
  if (count == HEAPTAP_MAILBOX_OTHERS) known.stacks.Clear();
  if (count == 0 || count > HEAPTAP_MAILBOX_WORDS) return;
  StackWord* const words = known.words;
  for (uint32_t i = 0; i < count; i++) {
    const uint64_t word = mailbox.words[i];
    words[i] = {mailbox.begin + (word >> HEAPTAP_WORD_DISTANCE_SHIFT) * sizeof(uint64_t), word & HEAPTAP_WORD_VALUE};
    // A word elsewhere may be gone at the next sample, though all words before it are the same.
    if (words[i].at + sizeof(uint64_t) > mailbox.end) return;
  }
  known.tid = mailbox.tid;
  uint32_t number = known.numbers.Find(mailbox.stack_id);
  if (number == 0) {
    number = areas::NewCounts(mailbox.stack_id, mailbox.tid);
    if (number == 0) return;
    known.numbers.Put(mailbox.stack_id, number);
  }
  known.stacks.Add(frame, words, count, number);
}

constinit bool is_verifying = false;

void StartVerifying() {
  is_verifying = true;
  libc::AtExit([] {
    Message message;
    message << "<heaptap>: " << verified.load(std::memory_order_relaxed) << " samples had the stacks that were known\n";
    message.Print();
  });
}

void Verify(uint32_t number, uint64_t serial) {
  if (mine == nullptr) return;
  const heaptap_mailbox& mailbox = areas::Mailbox(mine->mailbox);
  // The kernel tells nothing if a stack cannot be known again, or must not be.
  if (mailbox.serial != serial || mailbox.count == 0 || mailbox.count > HEAPTAP_MAILBOX_WORDS) return;
  const uint64_t known = areas::CountsOf(number).stack_id;
  if (known == mailbox.stack_id) {
    verified.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Message message;
  message << "<heaptap>: sample " << serial << " has stack " << mailbox.stack_id << ", but " << known << " was known\n";
  message.Print();
  __builtin_trap();
}

void ForgetStacks() { state.fetch_add(1, std::memory_order_relaxed); }

void EndThread() {
  has_ended = true;
  Knowledge* const known = mine;
  if (known == nullptr) return;
  mine = nullptr;
  areas::ReturnMailbox(known->mailbox);
  known->stacks.Clear();
  known->numbers.Clear();
  Unmap(known, kBytes);
}

void Close() {
  areas::Close();
  DisownBlocks();
  ForgetStacks();
}

bool AddArea(void* mapping, areas::Wanted wanted) {
  // Before anything can be counted for the new books: what threads know has the numbers of earlier counts.
  if (wanted == areas::Wanted::kFirst) {
    DisownBlocks();
    ForgetStacks();
  }
  return areas::Add(mapping, wanted);
}

void ForgetAfterFork() {
  DisownBlocks();
  areas::ForgetAfterFork();
  // The memory of what other threads knew stays, as their stacks do.
  has_ended = false;
  mine = nullptr;
}

}  // namespace heaptap::counting
