// SPDX-License-Identifier: Apache-2.0
//
// Builds profiles of targets in the background, and writes them as dumps into the folder of the recording. Makes the
// messages and figures about them. Not thread-safe, except Fill.
#ifndef HEAPTAP_USERSPACE_DUMPS_DUMPS_H_
#define HEAPTAP_USERSPACE_DUMPS_DUMPS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heaptap/contract.h"
#include "userspace/base/background.h"
#include "userspace/bpf/entries.h"
#include "userspace/bpf/mapping_events.h"
#include "userspace/crews/looks.h"
#include "userspace/dumps/dump_folder.h"
#include "userspace/dumps/profile_orders.h"
#include "userspace/dumps/recorder_options.h"
#include "userspace/dumps/retention.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/survey.h"
#include "userspace/profiles/counted_names.h"
#include "userspace/profiles/profile_builder.h"
#include "userspace/profiles/profile_plan.h"
#include "userspace/spaces/address_spaces.h"
#include "userspace/tables/unwinding.h"
#include "userspace/targets/target.h"
#include "userspace/targets/target_table.h"

namespace heaptap::recording {

class Dumps {
 public:
  // The objects that this one uses. They must outlive it.
  struct Means {
    const bpf::Entries& entries;
    const bpf::MappingEvents& mapping_events;
    bpf::Processes& processes;
    worker::Looks& orders;
    const AddressSpaces& spaces;
    TargetTable& targets;
    Unwinding& unwinding;
    base::Background& background;
  };
  // `options` must outlive this object, and may change.
  Dumps(const Means& means, const RecorderOptions& options, DumpFolder folder);

  // From now on, old dumps are removed.
  absl::Status StartPruning(const Retention& retention);
  void SetRetention(const Retention& retention) { pruner_->SetRetention(retention); }
  void Prune(absl::Time now);
  // System-wide: follows a folder that was made again (DumpFolder::Renew). Returns whether there is another one.
  bool RenewFolder();

  // The mappings of a target; null if they are unknown. Valid until they change.
  const AddressSpace* Space(const Target& target) const;
  // Valid as long as the target's mappings and this object.
  ProfileSubject Subject(const Target& target);
  ProfileOrders& orders() { return orders_; }

  // These two plan a profile of the target for a thread that builds it itself (BuildPlanned). Plan is for a target that
  // has ended. Other targets hold frees back; TakeFreesAndPlan takes these first, and calls `done` at once or later.
  ProfilePlan Plan(const Target& target);
  void TakeFreesAndPlan(const Target& target, std::function<void(ProfilePlan)> done);
  // Adds what the books do not tell to a profile that another thread has built of the target. Calls `done` at once or
  // later; nobody else uses the profile until then.
  void Complete(const Target& target, std::shared_ptr<profile::Profile> profile, std::function<void()> done);

  // Whether a target is worth a profile: it runs a sampled allocator, and neither a rule nor --only excludes it.
  bool HasProfile(const Target& target);
  bool HasProfile(const Target& target, bool has_tallies);
  // Whether neither a rule nor --only excludes the target.
  bool IsWanted(const Target& target) const;
  // Whether HasProfile was ever true.
  bool recorded_any() const { return recorded_any_; }

  // Builds a profile in the background, calls `use` with it there, and then `done` with the time that both took. If the
  // profile cannot be built, prints why, and `use` is not called.
  using Use = std::function<void(profile::Profile&)>;
  using Done = std::function<void(const absl::Status&, absl::Duration)>;
  void Make(const Target& target, Use use, Done done);
  // Builds, writes and reports one dump in the background; prints errors. Then calls `on_done` with the target and the
  // time that the dump took.
  using OnDone = std::function<void(const Target&, absl::Duration)>;
  void Write(const Target& target, heaptap_dump_kind kind, OnDone on_done = nullptr);
  // Whether a profile of the process is being made: its books are still needed.
  bool IsMaking(uint64_t process_id) const { return making_.contains(process_id); }
  // Whether a profile of any process is being made.
  bool IsMaking() const { return !making_.empty(); }
  // Whether further dumps would have to wait for long.
  bool IsBusy() const { return means_.background.size() >= kMaxInBackground; }

  // A dump without a name, and what is to be said about it. A thread of its own may fill it.
  struct Filled {
    std::shared_ptr<const DumpFile> file;
    absl::Duration cost;
    profile::LeakSummary live;
    profile::StackEnds stack_ends;
    std::vector<std::string> warnings;
  };
  Filled Fill(const profile::Profile& profile) const;
  // Names and reports it. Returns its path.
  absl::StatusOr<std::string> Publish(Target& target, heaptap_dump_kind kind, const Filled& filled);
  // The dumps written since the last call, at most the latest kMaxWritten.
  static constexpr size_t kMaxWritten = 1000;
  std::vector<profile::Survey::Dump> TakeWritten();
  // Whether a dump could not be written.
  bool failed() const { return failed_; }
  // The path of the dump with the most live bytes, among last dumps and dumps at high-water marks; "" if there is none.
  const std::string& largest_dump() const {
    return highest_.bytes > largest_last_.bytes ? highest_.path : largest_last_.path;
  }
  // MostLive: a line about the last dump with the most live bytes, if there are several last dumps; else "". Highest: a
  // line about the dump at the highest mark, if it has more live bytes than all last dumps; else "".
  std::string MostLive() const;
  std::string Highest() const;

  // A line about the processes without a last dump because they took no sample; "" if there are none. `is_explained`:
  // the user knows of a reason, so that none is guessed.
  std::string WithoutSamples(bool is_explained) const;
  void AddWithoutSamples(const Target& target) {
    without_samples_.Add(target.name);
    some_sampled_ |= target.LgSample() != 0;
  }
  // A line about the programs in which no sampled allocator was seen; "" if there are none. `is_explained`: as above.
  std::string WithoutAllocator(bool is_explained) const;
  void AddWithoutAllocator(const Target& target) {
    if (IsWanted(target)) without_allocator_.Add(target.name);
  }
  // A line about how the stacks in the last dumps end.
  std::string StackSummary() const;
  void AddStackEnds(const profile::StackEnds& ends);
  // Lines for people, as jemalloc prints them; none without leaks. `path`: of the dump; "" if only the process knows
  // it.
  std::vector<std::string> LeakReport(const Target& target, const profile::LeakSummary& leaks,
                                      const std::string& path) const;
  // Prints a line of JSON about the books of each target, or why they cannot be read (failed). Reads the maps once for
  // all of them.
  void SayBooks(std::vector<const Target*> targets);
  void SayLosses(const std::vector<std::string>& warnings);
  // Fills in what the figures say about dumps.
  void AddFigures(profile::CollectorFigures& figures) const;

 private:
  static constexpr size_t kMaxInBackground = 8;

  struct Making;
  void BuildInBackground(const std::shared_ptr<Making>& making);
  void UseInBackground(const std::shared_ptr<Making>& making);
  void Finish(Making& making);
  void Fail(const absl::Status& status);

  const Means means_;
  ProfileOrders orders_;
  const RecorderOptions& options_;
  DumpFolder folder_;
  std::optional<DumpPruner> pruner_;
  std::multiset<uint64_t> making_;  // process ids
  bool recorded_any_ = false;
  bool failed_ = false;
  int last_dumps_ = 0;  // written
  struct Largest {
    std::string path = {};
    std::string name = {};  // of its process
    uint64_t process_id = 0;
    uint64_t bytes = 0;  // live
    uint64_t peak = 0;   // of its process, when that has ended; 0: not known
  };
  Largest largest_last_;
  Largest highest_;               // at a high-water mark
  CountedNames without_samples_;  // of processes that ended before their first sample
  CountedNames without_allocator_;
  bool some_sampled_ = false;           // not every allocation of all of them was recorded
  profile::StackEnds stack_ends_ = {};  // of last dumps
  std::set<std::string> losses_reported_;
  std::deque<profile::Survey::Dump> written_;
  profile::CountsByName dumps_counted_;
  uint64_t dump_errors_ = 0;
  absl::Duration dump_time_ = {};
  std::optional<absl::Time> last_dump_ = {};
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_DUMPS_DUMPS_H_
