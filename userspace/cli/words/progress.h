// SPDX-License-Identifier: Apache-2.0
//
// One line on stderr that says how far a long task is, if stderr is a terminal. It appears after a second, so that a
// short task shows none, and is removed at the end.
#ifndef HEAPTAP_USERSPACE_CLI_WORDS_PROGRESS_H_
#define HEAPTAP_USERSPACE_CLI_WORDS_PROGRESS_H_

#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "userspace/base/mutex.h"

namespace heaptap::cli {

// Thread-safe. While it lives, nothing else may write to the terminal.
class Progress {
 public:
  // Shows nothing unless `is_wanted`.
  explicit Progress(bool is_wanted);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What is being done. Bytes that are not printable ASCII become '?', and what is wider than the terminal is cut.
  void Set(std::string text);

 private:
  void Run();

  base::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WORDS_PROGRESS_H_
