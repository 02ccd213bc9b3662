// SPDX-License-Identifier: Apache-2.0
#include "userspace/crews/crew.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/process/proc_files.h"
#include "userspace/worker/packet.h"
#include "userspace/worker/worker.h"

namespace heaptap::worker {
namespace {

// The pause between two tries of a call that found no memory.
constexpr absl::Duration kPause = absl::Milliseconds(1);

// After Limits::time: the processor time that hands may use, the interval at which they are looked at, and the time to
// receive an answer that has already come.
constexpr absl::Duration kMoreWork = absl::Milliseconds(5);

// Whether hands that are late only wait for a processor. Not thread-safe.
class Lateness {
 public:
  explicit Lateness(pid_t hands) : hands_(hands) {}
  bool IsOfTheMachine() {
    const std::optional<process::Scheduling> now = process::SchedulingOf(hands_);
    if (!now.has_value() || !now->is_ready) return false;
    if (!before_.has_value()) before_ = now->used;
    return now->used - *before_ < kMoreWork;
  }

 private:
  const pid_t hands_;
  std::optional<absl::Duration> before_;  // what they had used when they were late
};

// Processes that were killed and have not ended yet. A process that waits in the kernel for a file system in user space
// ends when the file system does.
class Killed {
 public:
  void Add(pid_t pid) {
    kill(pid, SIGKILL);
    base::MutexLock lock(&mutex_);
    pids_.insert(pid);
  }
  void Reap() {
    base::MutexLock lock(&mutex_);
    std::erase_if(pids_, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
  }

 private:
  base::Mutex mutex_{base::LockRank::kEnding};
  std::set<pid_t> pids_ ABSL_GUARDED_BY(mutex_);
};

Killed& AllKilled() {
  static auto* const killed = new Killed;
  return *killed;
}

struct Pair {
  base::FileDescriptor ours;
  base::FileDescriptor theirs;
};

absl::StatusOr<Pair> MakePair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::UnavailableError(absl::StrCat("socketpair: ", strerror(errno)));
  }
  return Pair{base::FileDescriptor(ends[0]), base::FileDescriptor(ends[1])};
}

// The process has the descriptors 0, 1 and stderr only.
absl::StatusOr<pid_t> Spawn(const char* kind, int standard_input, int standard_output) {
  AllKilled().Reap();
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  // dup2 would leave a descriptor that already has its number close-on-exec; posix_spawn clears the flag.
  posix_spawn_file_actions_adddup2(&actions, standard_input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, standard_output, STDOUT_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  // A group of its own: Ctrl-C is for the collector. All signals stay blocked (ConfineWorker). A reader has a session
  // of its own, which does not come before others as the daemon's does (process/session_niceness.h).
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  const int group = absl::string_view(kind) == kHandsName ? POSIX_SPAWN_SETPGROUP : POSIX_SPAWN_SETSID;
  posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | group));
  char* const words[] = {const_cast<char*>(kWorkerName), const_cast<char*>(kind), nullptr};
  char* const environment[] = {nullptr};
  pid_t pid = 0;
  const int error = posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, words, environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::UnavailableError(absl::StrCat("cannot start a worker: ", strerror(error)));
  return pid;
}

}  // namespace

void ReapKilled() { AllKilled().Reap(); }

absl::StatusOr<std::unique_ptr<Crew>> Crew::Start(Urgency urgency) {
  absl::StatusOr<Pair> requests = MakePair();
  absl::StatusOr<Pair> between = MakePair();
  absl::StatusOr<Pair> answers = MakePair();
  for (const auto* pair : {&requests, &between, &answers}) {
    if (!pair->ok()) return pair->status();
  }
  std::unique_ptr<Crew> crew(new Crew);
  absl::StatusOr<pid_t> hands = Spawn(kHandsName, requests->theirs.get(), between->ours.get());
  if (!hands.ok()) return hands.status();
  crew->hands_ = *hands;
  const char* const kind = urgency == Urgency::kBackground ? kReaderName : kForegroundReaderName;
  absl::StatusOr<pid_t> reader = Spawn(kind, between->theirs.get(), answers->theirs.get());
  if (!reader.ok()) return reader.status();
  crew->reader_ = *reader;
  crew->to_hands_ = std::move(requests->ours);
  crew->from_reader_ = std::move(answers->ours);
  return crew;
}

absl::StatusOr<std::unique_ptr<Crew>> Crew::StartHands() {
  absl::StatusOr<Pair> requests = MakePair();
  if (!requests.ok()) return requests.status();
  std::unique_ptr<Crew> crew(new Crew);
  absl::StatusOr<pid_t> hands = Spawn(kHandsName, requests->theirs.get(), requests->theirs.get());
  if (!hands.ok()) return hands.status();
  crew->hands_ = *hands;
  crew->to_hands_ = std::move(requests->ours);
  return crew;
}

Crew::~Crew() {
  if (hands_ != 0) AllKilled().Add(hands_);
  if (reader_ != 0) AllKilled().Add(reader_);
}

absl::Duration Crew::TakeProcessorWait() {
  absl::Duration now = process::ProcessorWaitOf(hands_);
  if (reader_ != 0) now += process::ProcessorWaitOf(reader_);
  return now - std::exchange(processor_wait_, now);
}

Answer Crew::Do(const Request& request, const Limits& limits) {
  Answer answer;
  const base::Instant begin = base::Now();
  base::Instant deadline = begin + limits.time;
  Lateness lateness(hands_);
  const absl::Status too_late = absl::DeadlineExceededError("it took too much time");
  base::Instant last_moment = base::Instant::InfiniteFuture();  // for an answer that is received late
  const auto end = [&](absl::Status status, bool is_usable) {
    answer.status = std::move(status);
    is_usable_ = is_usable;
    return std::move(answer);
  };
  std::string bytes = Encode(Order{.request = request, .memory_bytes = limits.memory_bytes});
  std::vector<int> descriptors;
  base::FileDescriptor long_request;
  if (bytes.size() >= kMaxPacketBytes) {
    absl::StatusOr<base::FileDescriptor> file = PutInFile(bytes);
    if (!file.ok()) return end(file.status(), true);
    long_request = *std::move(file);
    descriptors.push_back(long_request.get());
    bytes = {};  // may be large
  }
  descriptors.insert(descriptors.end(), request.descriptors.begin(), request.descriptors.end());
  if (request.file.fd >= 0) descriptors.push_back(request.file.fd);
  // A first byte, because an empty packet cannot be told from the end of the socket.
  const char head =
      static_cast<char>((long_request.valid() ? kLongRequest : 0) | (request.file.fd >= 0 ? kOpenFile : 0));
  absl::Status sent = SendPacket(to_hands_.get(), absl::StrCat(absl::string_view(&head, 1), bytes), descriptors);
  if (!sent.ok()) return end(absl::UnavailableError("the worker has ended"), false);
  long_request.Reset();
  for (;;) {
    bool is_late = false;
    if (const base::Instant now = base::Now(); now >= deadline) {
      is_late = now >= begin + limits.longest || !lateness.IsOfTheMachine();
      if (is_late) {
        // The rest of the answer may have come while this thread had no processor.
        last_moment = std::min(last_moment, now + kMoreWork);
        if (now > last_moment) return end(too_late, false);
      } else {
        deadline = now + kMoreWork;
      }
    }
    pollfd polled[] = {{to_hands_.get(), POLLIN, 0}, {from_reader_.get(), POLLIN, 0}, {limits.cancel, POLLIN, 0}};
    const int ready = base::PollUntil(absl::MakeSpan(polled), deadline);
    if (ready < 0) {
      if (errno != EINTR && errno != ENOMEM) {
        return end(absl::UnavailableError(absl::StrCat("poll: ", strerror(errno))), false);
      }
      // The kernel may have memory again.
      if (errno == ENOMEM) base::Sleep(kPause);
    }
    if (ready == 0 && is_late) return end(too_late, false);
    if (ready <= 0) continue;
    if (polled[2].revents != 0) return end(absl::CancelledError("the collector ends"), false);
    // What the reader has written is taken before its end, or the end of the hands, is noticed. A reader may have been
    // taken over, so descriptors come from the hands only.
    Packet packet;
    if (polled[1].revents != 0) {
      absl::StatusOr<std::string> received = ReceiveBytes(from_reader_.get());
      if (!received.ok()) return end(absl::AbortedError("the worker died"), false);
      packet.bytes = *std::move(received);
    } else {
      absl::StatusOr<Packet> received = ReceivePacket(to_hands_.get());
      if (!received.ok()) return end(absl::AbortedError("the worker died"), false);
      packet = *std::move(received);
    }
    const absl::StatusOr<AnswerPiece> piece = DecodeAnswer(packet.bytes);
    if (!piece.ok()) return end(absl::AbortedError(piece.status().message()), false);
    if (piece->is_question) {
      if (polled[1].revents != 0) return end(absl::AbortedError("a reader asks"), false);
      const char confirmed = request.confirm != nullptr && request.confirm() ? 1 : 0;
      if (!SendPacket(to_hands_.get(), absl::string_view(&confirmed, 1)).ok()) {
        return end(absl::AbortedError("the worker died"), false);
      }
      continue;
    }
    std::ranges::move(packet.descriptors, std::back_inserter(answer.files));
    if (piece->is_end) return end(piece->status, true);
    if (piece->part.size() > limits.answer_bytes - answer.bytes.size()) {
      return end(absl::ResourceExhaustedError("its answer is too long"), false);
    }
    absl::StrAppend(&answer.bytes, piece->part);
  }
}

}  // namespace heaptap::worker
