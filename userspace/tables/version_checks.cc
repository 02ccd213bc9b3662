// SPDX-License-Identifier: Apache-2.0
#include "userspace/tables/version_checks.h"

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "userspace/base/clock.h"

namespace heaptap::recording {
namespace {

// The longest that one order takes. A check takes a tenth of a millisecond, unless hands wait for the process.
constexpr absl::Duration kChecksTime = absl::Seconds(1);

}  // namespace

void VersionChecks::Begin(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping) {
  const uid_t payer = orders_.PayerOf(pid);
  const bool is_new =
      users_[payer].waiting.insert_or_assign(key, Check{.key = key, .pid = pid, .mapping = mapping}).second;
  if (is_new) checking_[key]++;
  Dispatch(payer);
}

void VersionChecks::BeginWaiting() {
  std::vector<uid_t> payers;
  for (const auto& [payer, user] : users_) payers.push_back(payer);
  for (const uid_t payer : payers) Dispatch(payer);
}

void VersionChecks::Dispatch(uid_t payer) {
  const auto user = users_.find(payer);
  if (user == users_.end() || user->second.is_under_way) return;
  if (user->second.waiting.empty()) {
    users_.erase(user);
    return;
  }
  const pid_t pid = user->second.waiting.begin()->second.pid;
  if (!orders_.HasRoom(pid)) return;
  user->second.is_under_way = true;
  const auto checks = std::make_shared<std::vector<Check>>();
  for (auto& [key, check] : std::exchange(user->second.waiting, {})) checks->push_back(std::move(check));
  orders_.Start(
      pid,
      [checks](worker::Hands& hands, int) {
        const base::Instant end = base::Now() + kChecksTime;
        for (Check& check : *checks) {
          if (base::Now() > end) break;
          check.version = hands.Version(check.pid, check.mapping);
        }
      },
      [this, payer, checks] {
        users_[payer].is_under_way = false;
        for (const Check& check : *checks) {
          const auto checking = checking_.find(check.key);
          if (--checking->second == 0) checking_.erase(checking);
          done_(check);
        }
        Dispatch(payer);
      });
}

}  // namespace heaptap::recording
