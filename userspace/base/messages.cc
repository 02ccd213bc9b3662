// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/messages.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/base/printable_text.h"
#include "userspace/base/threads.h"

namespace heaptap::base {
namespace {

// A message can quote a file's notes, which may be megabytes.
constexpr size_t kLongestLine = 4096;

// Writes as much as stderr takes without waiting for a reader. Returns the number of bytes.
size_t WriteNow(absl::string_view text) {
  struct stat status;
  ssize_t put = -1;
  if (fstat(STDERR_FILENO, &status) != 0) return 0;
  if (S_ISREG(status.st_mode)) {
    put = write(STDERR_FILENO, text.data(), text.size());
  } else if (S_ISSOCK(status.st_mode)) {
    put = send(STDERR_FILENO, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } else if (S_ISFIFO(status.st_mode)) {
    // Fails on Linux before 6.4; then the thread writes.
    const iovec bytes = {.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
    put = pwritev2(STDERR_FILENO, &bytes, 1, -1, RWF_NOWAIT);
  }
  return put < 0 ? 0 : static_cast<size_t>(put);
}

// The lines that wait for the thread, which may outlive its MessageThread: nothing ends a write that nobody reads.
struct Queue {
  Mutex mutex{LockRank::kMessageQueue};
  std::deque<std::string> lines ABSL_GUARDED_BY(mutex);
  size_t bytes ABSL_GUARDED_BY(mutex) = 0;
  uint64_t lost ABSL_GUARDED_BY(mutex) = 0;  // lines that were lost after those that wait
  bool is_writing ABSL_GUARDED_BY(mutex) = false;
  bool shall_end ABSL_GUARDED_BY(mutex) = false;

  bool HasLines() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return !lines.empty() || lost != 0; }

  // Writes the line at once, if that is possible: a process that is killed loses the lines that wait.
  void Add(std::string line) {
    MutexLock lock(&mutex);
    if (!HasLines() && !is_writing) line.erase(0, WriteNow(line));
    if (line.empty()) return;
    if (lost != 0 || bytes + line.size() > MessageThread::kMaxBytes) {
      lost++;
      return;
    }
    bytes += line.size();
    lines.push_back(std::move(line));
  }

  // Waits for the next line. None: the thread must end.
  std::optional<std::string> Take() {
    MutexLock lock(&mutex);
    is_writing = false;
    const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return shall_end || HasLines(); };
    mutex.Await(absl::Condition(&has_work));
    if (!HasLines()) return std::nullopt;
    is_writing = true;
    if (lines.empty()) {
      return absl::StrCat("heaptap: ", std::exchange(lost, 0),
                          " messages are lost here, because nobody read the ones before in time\n");
    }
    std::string line = std::move(lines.front());
    lines.pop_front();
    bytes -= line.size();
    return line;
  }
};

// The queue of the current MessageThread; null: there is none.
struct Current {
  Mutex mutex{LockRank::kMessages};
  std::shared_ptr<Queue> queue ABSL_GUARDED_BY(mutex);

  void Set(std::shared_ptr<Queue> replacement) {
    MutexLock lock(&mutex);
    queue = std::move(replacement);
  }
  std::shared_ptr<Queue> Get() {
    MutexLock lock(&mutex);
    return queue;
  }
};

// Never deleted: threads may say something while the program ends.
Current& TheCurrent() {
  static Current* const current = new Current;
  return *current;
}

// Waits until all of the text is written, or until writing fails.
void WriteWhole(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(STDERR_FILENO, text.data(), text.size());
    if (put >= 0) {
      text.remove_prefix(put);
    } else if (errno == EAGAIN) {
      // Another process that shares the open file has made it nonblocking.
      pollfd reader = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
      PollUntil(absl::MakeSpan(&reader, 1), Instant::InfiniteFuture());
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

MessageThread::MessageThread() {
  const auto queue = std::make_shared<Queue>();
  absl::StatusOr<std::thread> thread = StartThread([queue] {
    while (const std::optional<std::string> line = queue->Take()) WriteWhole(*line);
  });
  if (!thread.ok()) return;
  thread->detach();
  TheCurrent().Set(queue);
}

MessageThread::~MessageThread() {
  const std::shared_ptr<Queue> queue = TheCurrent().Get();
  if (queue == nullptr) return;
  {
    MutexLock lock(&queue->mutex);
    queue->shall_end = true;
    const auto is_done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue->mutex) {
      return !queue->HasLines() && !queue->is_writing;
    };
    AwaitUntil(queue->mutex, absl::Condition(&is_done), Now() + kLastPatience);
  }
  TheCurrent().Set(nullptr);
}

void SayPlain(absl::string_view line) {
  // The last defence: an unprintable name could forge lines or control the terminal.
  std::string text = absl::StrCat(Printable(line), "\n");
  if (const std::shared_ptr<Queue> queue = TheCurrent().Get(); queue != nullptr) return queue->Add(std::move(text));
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, text.data(), text.size());
}

void Say(absl::string_view line) {
  const bool is_cut = line.size() > kLongestLine;
  SayPlain(absl::StrCat("heaptap: ", line.substr(0, kLongestLine), is_cut ? " ..." : ""));
}

std::string AsciiOnly(absl::string_view text) {
  std::string printable(text);
  for (char& character : printable) {
    if (character < ' ' || character > '~') character = '?';
  }
  return printable;
}

}  // namespace heaptap::base
