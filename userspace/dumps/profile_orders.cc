// SPDX-License-Identifier: Apache-2.0
#include "userspace/dumps/profile_orders.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/require.h"
#include "userspace/profiles/record_builder.h"

namespace heaptap::recording {
namespace {

// The most processes whose frees one order fetches, and the time for them: a process that is late makes the others of
// its order wait.
constexpr size_t kProcessesOfOrder = 64;
constexpr absl::Duration kOrderTime = absl::Milliseconds(100);

// The names that hands read, unless the PID is another process's by then.
NameLiving NamesFrom(worker::Hands& hands, const bpf::Processes& processes, const profile::ProcessRef& process) {
  return [&hands, &processes, process](absl::Span<const uint32_t> tids) -> std::map<uint32_t, std::string> {
    absl::StatusOr<std::map<uint32_t, std::string>> names = hands.ThreadNames(process.pid, tids);
    if (!names.ok() || !processes.IsCurrent(process.pid, process.process_id)) return {};
    return *std::move(names);
  };
}

}  // namespace

bool ProfileOrders::FindHeld(const Target& target, Held& held) const {
  if (target.ending.has_value()) return false;
  const absl::StatusOr<heaptap_process> process = processes_.Read(target.pid);
  if (!process.ok() || process->identity.id != target.process_id || process->pending == 0) return false;
  held = {.process = {target.pid, target.process_id}, .name = target.name, .address = process->pending};
  return true;
}

void ProfileOrders::Fetch(pid_t payer, std::vector<Held> held, std::function<void()> done) {
  HEAPTAP_REQUIRE(orders_.HasRoom(payer));
  const auto fetched = std::make_shared<std::vector<Held>>(std::move(held));
  orders_.Start(
      payer,
      [fetched, &processes = processes_](worker::Hands& hands, int) {
        const base::Instant end = base::Now() + kOrderTime;
        for (Held& one : *fetched) {
          if (base::Now() > end) break;
          one.frees = hands.PendingFrees(one.process.pid, one.address,
                                         [&] { return processes.IsCurrent(one.process.pid, one.process.process_id); });
        }
      },
      [this, fetched, done = std::move(done)] {
        for (const Held& one : *fetched) Take(one);
        done();
      });
}

void ProfileOrders::Take(const Held& held) {
  // What the threads freed last then counts as live until these frees are taken.
  if (!held.frees.ok()) return;
  const auto [pid, process_id] = held.process;
  const absl::Status status = processes_.TakeFrees(pid, process_id, *held.frees);
  if (status.ok() || std::exchange(frees_refused_, true)) return;
  base::Say(absl::StrCat(status.message(), "; what process ", pid, " (", held.name,
                         ") has freed last counts as live in this profile"));
}

void ProfileOrders::TakeFrees(const Target& target, std::function<void()> done) {
  Held held;
  if (!FindHeld(target, held) || !orders_.HasRoom(target.pid)) return done();
  Fetch(target.pid, {std::move(held)}, std::move(done));
}

std::shared_ptr<const size_t> ProfileOrders::TakeAllFrees(TargetTable& targets) {
  std::map<uid_t, std::vector<Held>> of_users;
  for (const auto& [process_id, target] : targets) {
    Held held;
    if (FindHeld(target, held)) of_users[orders_.PayerOf(target.pid)].push_back(std::move(held));
  }
  const auto under_way = std::make_shared<size_t>(0);
  for (auto& [user, held] : of_users) {
    while (!held.empty()) {
      const size_t left = held.size() - std::min(held.size(), kProcessesOfOrder);
      std::vector<Held> some(std::make_move_iterator(held.begin() + static_cast<ptrdiff_t>(left)),
                             std::make_move_iterator(held.end()));
      held.resize(left);
      const pid_t payer = some.front().process.pid;
      if (!orders_.HasRoom(payer)) break;
      ++*under_way;
      Fetch(payer, std::move(some), [under_way] { --*under_way; });
    }
  }
  return under_way;
}

void ProfileOrders::NameThreads(const Target& target, std::shared_ptr<profile::Profile> profile,
                                std::function<void()> done) {
  const auto name = [entries = &entries_, process_id = target.process_id, profile](const NameLiving& names) {
    std::set<uint32_t> tids;
    for (const auto& [tid, known] : profile->thread_names) tids.insert(tid);
    profile->thread_names = ThreadNames(*entries, process_id, tids, names);
  };
  if (target.ending.has_value() || !orders_.HasRoom(target.pid)) {
    name(nullptr);
    return done();
  }
  const profile::ProcessRef process = {target.pid, target.process_id};
  orders_.Start(
      target.pid,
      [name, process, &processes = processes_](worker::Hands& hands, int) {
        name(NamesFrom(hands, processes, process));
      },
      std::move(done));
}

void ProfileOrders::MakeRecords(ProfilePlan plan, uint64_t count, UseRecords use, RecordsDone done) {
  struct Made {
    absl::Status status;
    absl::Duration cost;
  };
  const auto made = std::make_shared<Made>();
  const profile::ProcessRef process = plan.process;
  const auto make = [entries = &entries_, plan = std::move(plan), count, use = std::move(use),
                     made](const NameLiving& names) {
    const base::Instant begin = base::Now();
    const absl::StatusOr<profile::SampleRecords> records = BuildRecords(*entries, plan.subject, count, names);
    if (records.ok()) use(*records);
    *made = {.status = records.status(), .cost = base::Now() - begin};
  };
  if (!orders_.HasRoom(process.pid)) {
    make(nullptr);
    return done(made->status, made->cost);
  }
  orders_.Start(
      process.pid,
      [make, process, &processes = processes_](worker::Hands& hands, int) {
        make(NamesFrom(hands, processes, process));
      },
      [made, done = std::move(done)] { done(made->status, made->cost); });
}

}  // namespace heaptap::recording
