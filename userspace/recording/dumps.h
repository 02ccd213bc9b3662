// SPDX-License-Identifier: Apache-2.0
//
// Builds profiles of targets and writes them as dumps into the folder of the recording; the messages and figures about
// them. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_DUMPS_H_
#define HEAPTAP_USERSPACE_RECORDING_DUMPS_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heaptap/contract.h"
#include "userspace/bpf/entries.h"
#include "userspace/bpf/mapping_events.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/survey.h"
#include "userspace/recording/address_spaces.h"
#include "userspace/recording/dump_folder.h"
#include "userspace/recording/profile_builder.h"
#include "userspace/recording/recorder_options.h"
#include "userspace/recording/retention.h"
#include "userspace/recording/target.h"
#include "userspace/worker/hands.h"

namespace heaptap::recording {

class Dumps {
 public:
  // What it needs of others, which must outlive this object.
  struct Means {
    const bpf::Entries& entries;
    const bpf::MappingEvents& mapping_events;
    bpf::Processes& processes;
    worker::Hands& hands;
    const AddressSpaces& spaces;
  };
  // `options` must outlive this object, and may change.
  Dumps(const Means& means, const RecorderOptions& options, DumpFolder folder);

  // From now on, old dumps are removed.
  absl::Status StartPruning(const Retention& retention);
  void SetRetention(const Retention& retention) { pruner_->SetRetention(retention); }
  void Prune(absl::Time now);

  // The mappings of a target; null if they are unknown. Valid until they change.
  const AddressSpace* Space(const Target& target) const;
  // Valid as long as the target's mappings and this object.
  ProfileSubject Subject(const Target& target);
  // Takes the frees that a target holds back, so that its books have them.
  void TakeFrees(const Target& target);
  // `blocks`: of this target, or null.
  absl::StatusOr<profile::Profile> Build(const Target& target, const LiveBlocks* blocks = nullptr);
  profile::Profile Build(const Target& target, std::vector<bpf::TallyEntry> tallies,
                         const LiveBlocks* blocks = nullptr);
  // The time that Build has spent on other processes since the last call.
  absl::Duration TakeUncharged() { return std::exchange(uncharged_, absl::ZeroDuration()); }

  // Whether a target is worth a profile: it runs a sampled allocator, and neither a rule nor --only excludes it.
  bool HasProfile(const Target& target);
  bool HasProfile(const Target& target, bool has_tallies);
  // Whether HasProfile was ever true.
  bool recorded_any() const { return recorded_any_; }

  // Builds, writes and reports one dump; prints errors. Returns its path.
  absl::StatusOr<std::string> Write(Target& target, heaptap_dump_kind kind);
  absl::StatusOr<std::string> WriteProfile(Target& target, heaptap_dump_kind kind, const profile::Profile& profile);
  // Those written since the last call, at most the latest kMaxWritten.
  static constexpr size_t kMaxWritten = 1000;
  std::vector<profile::Survey::Dump> TakeWritten();
  // Whether a dump could not be written.
  bool failed() const { return failed_; }
  // The path of the last dump with the most live bytes; "" if there is none.
  const std::string& largest_last_dump() const { return largest_last_dump_; }

  // A line about the processes without a last dump because they took no sample; "" if there are none.
  std::string WithoutSamples() const;
  void AddWithoutSamples(const std::string& name) { without_samples_.push_back(name); }
  // A line about how the stacks in the last dumps end.
  std::string StackSummary() const;
  void AddStackEnds(const profile::Profile& profile);
  // Lines for people; none without leaks. `path`: of the dump; "" if only the process knows it.
  std::vector<std::string> LeakReport(const Target& target, const profile::LeakSummary& leaks,
                                      const std::string& path) const;
  // Prints a line of JSON about the books of each target. Reads the maps once for all of them.
  void SayBooks(std::vector<const Target*> targets) const;
  void SayLosses(const std::vector<std::string>& warnings);
  // Fills in what the figures say about dumps.
  void AddFigures(profile::CollectorFigures& figures) const;

 private:
  void Fail(const absl::Status& status);

  const bpf::Entries& entries_;
  const bpf::MappingEvents& mapping_events_;
  bpf::Processes& processes_;
  worker::Hands& hands_;
  const AddressSpaces& spaces_;
  const RecorderOptions& options_;
  DumpFolder folder_;
  std::optional<DumpPruner> pruner_;
  absl::Duration uncharged_ = {};
  bool recorded_any_ = false;
  bool failed_ = false;
  std::string largest_last_dump_;
  double largest_last_bytes_ = -1;
  std::vector<std::string> without_samples_;  // names of processes that ended before their first sample
  profile::StackEnds stack_ends_ = {};        // of last dumps
  std::set<std::string> losses_reported_;
  std::deque<profile::Survey::Dump> written_;
  profile::CountsByName dumps_counted_;
  uint64_t dump_errors_ = 0;
  absl::Duration dump_time_ = {};
  std::optional<absl::Time> last_dump_ = {};
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_DUMPS_H_
