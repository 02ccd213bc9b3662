// SPDX-License-Identifier: Apache-2.0
//
// What a system-wide recording does for its targets every second: saves their states for the next recorder, folds the
// tallies of ended threads, and gives freed memory back to the kernel. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_UPKEEP_H_
#define HEAPTAP_USERSPACE_RECORDING_UPKEEP_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "userspace/base/background.h"
#include "userspace/base/clock.h"
#include "userspace/base/repeated_task.h"
#include "userspace/bpf/books.h"
#include "userspace/crews/looks.h"
#include "userspace/dumps/dumps.h"
#include "userspace/targets/target_state.h"
#include "userspace/targets/target_table.h"

namespace heaptap::recording {

class Upkeep {
 public:
  // The objects that this one uses. They must outlive it.
  struct Means {
    bpf::Books& books;
    worker::Looks& orders;
    TargetTable& targets;
    Dumps& dumps;
    base::Background& background;
  };
  explicit Upkeep(const Means& means) : means_(means) {}

  // These two stop after some time, and go on at the next call.
  void SaveStates(TargetStates& states, base::Instant now);
  // Saves the states of young processes too, for the recorder that comes next.
  void SaveAllStates(TargetStates& states);
  // Begins to add up the tallies of ended threads, when all processes together have many tallies relative to `bound`,
  // or one process has many relative to its limit. To be called every second. Reading all tallies takes some time, so
  // it is done more rarely if there is little to gain.
  void FoldWhenFull(const std::map<uint64_t, bpf::RecordedProcess>& processes, uint64_t bound, base::Instant now);
  // Goes on with the folding for some milliseconds, unless another thread reads tallies. To be called soon after orders
  // are done: a thread that begins after a look at the threads of its process makes the look worthless.
  void FoldSome();
  // Gives freed memory that the C library keeps back to the kernel, if there is much of it. To be called every second.
  void ReturnMemory(base::Instant now);
  // Whether FoldSome is to be called again at once, because the map may fill up.
  bool IsFolding() const { return HasToFold() && !folding_->left.empty() && !is_being_read_; }

 private:
  // Saves states of processes that began at `old` at the latest. A state that cannot be saved does not stop the others.
  void Save(TargetStates& states, base::Instant old, base::Instant end);
  // Notes whether a state was saved. `process_id` 0: no further states are begun in this round.
  void NoteSaved(uint64_t process_id, const absl::Status& status);
  // The tallies of a process that may belong to ended threads.
  struct Candidates {
    uint64_t process_id;
    std::vector<bpf::TallyEntry> tallies;
    // The threads that lived at a look, and how many the process had begun until then.
    std::optional<std::set<uint32_t>> living = {};
    uint32_t threads_begun = 0;
    bool is_fresh = false;  // nothing was folded since the look
  };
  // One round of folding.
  struct Folding {
    double fullest;  // as a share of the bound, at its beginning
    bool is_read = false;
    std::deque<Candidates> left = {};
    size_t looks = 0;  // under way
    bool has_folded = false;
    absl::Duration cost = {};
  };
  bool HasToFold() const { return folding_.has_value() && folding_->is_read; }
  // Folds the tallies of ended threads, or has hands look which threads have ended. What is left after that goes back
  // to Folding::left.
  void Fold(Candidates candidates, base::Instant end);
  void LookAtThreads(pid_t pid, Candidates candidates);
  void FoldEnded(pid_t pid, Candidates candidates, base::Instant end);

  const Means means_;
  uint64_t last_saved_ = 0;  // process id
  bool has_more_ = false;    // to save, but the disk was busy
  size_t saving_now_ = 0;    // states under way, plus one while further states are begun
  absl::Status result_;      // of those that are done since the last message
  base::RepeatedTask saving_{{.name = "states",
                              .failure = "cannot save the states of processes for the next daemon",
                              .success = "the states of processes are saved",
                              .advice = "until it works again, what is recorded is lost if the daemon is killed"}};
  std::optional<Folding> folding_;
  bool is_being_read_ = false;  // when FoldSome was last called
  base::Instant folded_ = base::Instant::InfinitePast();
  absl::Duration fold_cost_ = {};
  bool has_folded_ = false;        // the last time
  double fullest_after_fold_ = 0;  // as a share of the bound
  bool is_returning_ = false;      // memory
  base::Instant returned_ = base::Instant::InfinitePast();
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_UPKEEP_H_
