// SPDX-License-Identifier: Apache-2.0
#include "userspace/unwind/read_files.h"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

namespace heaptap::unwind {
namespace {

// More threads would read faster than the kernel takes the tables.
constexpr size_t kMostThreads = 4;

off_t SizeOf(int file) {
  struct stat status;
  return fstat(file, &status) == 0 ? status.st_size : 0;
}

}  // namespace

absl::StatusOr<FileTable> ReadFileTable(int file) {
  absl::StatusOr<elf::File> opened = elf::File::Open(file);
  if (!opened.ok()) return opened.status();
  return ReadFileTable(*opened);
}

std::vector<absl::StatusOr<FileTable>> ReadFileTables(absl::Span<const int> files) {
  std::vector<absl::StatusOr<FileTable>> tables(files.size(), absl::UnavailableError("not read"));
  std::vector<size_t> order(files.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return SizeOf(files[a]) > SizeOf(files[b]); });
  std::atomic<size_t> next = 0;
  const auto read = [&] {
    for (size_t turn = next++; turn < order.size(); turn = next++) {
      tables[order[turn]] = ReadFileTable(files[order[turn]]);
    }
  };
  // Signals are for the caller's thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::vector<std::thread> helpers;
  const size_t threads = std::min({files.size(), size_t{std::thread::hardware_concurrency()}, kMostThreads});
  while (helpers.size() + 1 < threads) helpers.emplace_back(read);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  read();
  for (std::thread& helper : helpers) helper.join();
  return tables;
}

}  // namespace heaptap::unwind
