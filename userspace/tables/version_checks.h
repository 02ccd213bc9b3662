// SPDX-License-Identifier: Apache-2.0
//
// Asks which versions mapped files have now. Hands look in other threads. Each user has one look at a time, at all
// files that have come since the last look. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_TABLES_VERSION_CHECKS_H_
#define HEAPTAP_USERSPACE_TABLES_VERSION_CHECKS_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/unwind.h"
#include "userspace/bpf/file_key.h"
#include "userspace/crews/looks.h"
#include "userspace/elf/mappings.h"
#include "userspace/worker/file_version.h"

namespace heaptap::recording {

class VersionChecks {
 public:
  struct Check {
    heaptap_file_key key;
    // Who has mapped the file, and where.
    pid_t pid;
    elf::Mapping mapping;
    // The version of the file that is mapped there now.
    absl::StatusOr<worker::FileVersion> version = absl::UnavailableError("hands have no time for the file");
  };
  // `orders` must outlive this object. `done` gets each check that Begin has not replaced.
  using Done = std::function<void(const Check&)>;
  VersionChecks(worker::Looks& orders, Done done) : orders_(orders), done_(std::move(done)) {}

  // Checks a file, at once or when there is room. Replaces a check of the same file that waits, if the same user pays.
  void Begin(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping);
  // Whether a check of the file waits or is under way.
  bool IsChecking(const heaptap_file_key& key) const { return checking_.contains(key); }
  // Begins the checks that had to wait for room. To be called from time to time.
  void BeginWaiting();

 private:
  struct OfUser {
    std::map<heaptap_file_key, Check, bpf::FileKeyLess> waiting = {};
    bool is_under_way = false;
  };
  void Dispatch(uid_t payer);

  worker::Looks& orders_;
  const Done done_;
  std::map<uid_t, OfUser> users_;                                  // by who pays
  std::map<heaptap_file_key, size_t, bpf::FileKeyLess> checking_;  // how many checks
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TABLES_VERSION_CHECKS_H_
