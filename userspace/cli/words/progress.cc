// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/words/progress.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/mutex.h"
#include "userspace/base/threads.h"
#include "userspace/cli/words/terminal.h"

namespace heaptap::cli {
namespace {

constexpr absl::Duration kFirst = absl::Seconds(1);
// People cannot read faster.
constexpr absl::Duration kEach = absl::Milliseconds(200);
// The beginning of the line, and the sequence of ECMA-48 that erases to its end.
constexpr char kToBegin[] = "\r";
constexpr char kErase[] = "\x1b[K";
constexpr size_t kUsualWidth = 80;

bool CanErase() {
  const char* const terminal = getenv("TERM");
  return terminal != nullptr && *terminal != '\0' && absl::string_view(terminal) != "dumb";
}

// What does not fit into the terminal's buffer at once is not worth a second try.
void Write(absl::string_view text) {
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

Progress::Progress(bool is_wanted) {
  if (!is_wanted || isatty(STDERR_FILENO) != 1 || !CanErase()) return;
  absl::StatusOr<std::thread> thread = base::StartThread([this] { Run(); });
  if (thread.ok()) thread_ = *std::move(thread);
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const base::MutexLock lock(&mutex_);
    is_over_ = true;
  }
  thread_.join();
}

void Progress::Set(std::string text) {
  const base::MutexLock lock(&mutex_);
  text_ = std::move(text);
}

void Progress::Run() {
  std::string shown;
  base::MutexLock lock(&mutex_);
  for (absl::Duration wait = kFirst; !base::AwaitUntil(mutex_, absl::Condition(&is_over_), base::Now() + wait);
       wait = kEach) {
    const size_t columns = TerminalWidth(STDERR_FILENO);
    // A full line would wrap.
    const size_t most = (columns == 0 ? kUsualWidth : columns) - 1;
    std::string line = base::AsciiOnly(absl::StrCat("heaptap: ", text_)).substr(0, most);
    if (line == shown || text_.empty()) continue;
    Write(absl::StrCat(kToBegin, line, kErase));
    shown = std::move(line);
  }
  if (!shown.empty()) Write(absl::StrCat(kToBegin, kErase));
}

}  // namespace heaptap::cli
