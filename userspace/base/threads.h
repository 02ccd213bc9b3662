// SPDX-License-Identifier: Apache-2.0
//
// Starting threads without exceptions. Thread-safe.
#ifndef HEAPTAP_USERSPACE_BASE_THREADS_H_
#define HEAPTAP_USERSPACE_BASE_THREADS_H_

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace heaptap::base {

// Runs work() in a new thread, which leaves signals to the other threads: it has blocked all of them.
// ResourceExhausted: the kernel allows no more threads, or there is no memory for a stack; work() does not run then.
template <typename Work>
absl::StatusOr<std::thread> StartThread(Work work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const absl::Cleanup restore = [&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); };
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a thread: ", error.what()));
  }
}

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_THREADS_H_
