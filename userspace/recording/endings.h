// SPDX-License-Identifier: Apache-2.0
//
// The ends of targets: finds the ends that no event reports, writes last dumps, and closes books. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_ENDINGS_H_
#define HEAPTAP_USERSPACE_RECORDING_ENDINGS_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/base/background.h"
#include "userspace/base/clock.h"
#include "userspace/base/thread_checker.h"
#include "userspace/bpf/books.h"
#include "userspace/dumps/dumps.h"
#include "userspace/dumps/recorder_options.h"
#include "userspace/dumps/requests.h"
#include "userspace/profile/figures.h"
#include "userspace/recording/ended_list.h"
#include "userspace/recording/queries.h"
#include "userspace/spaces/address_spaces.h"
#include "userspace/tables/unwinding.h"
#include "userspace/targets/target.h"
#include "userspace/targets/target_state.h"
#include "userspace/targets/target_table.h"

namespace heaptap::recording {

class Endings {
 public:
  // The objects that this one uses. They must outlive it.
  struct Means {
    bpf::Books& books;
    TargetTable& targets;
    AddressSpaces& spaces;
    Unwinding& unwinding;
    Dumps& dumps;
    Requests& requests;
    Queries& queries;
    base::Background& background;
    base::Background& cleaning;
    const RecorderOptions& options;
  };
  explicit Endings(const Means& means);

  // Says that the books outlive this process, and the states of targets with them. `states` must outlive this object.
  void UseStates(TargetStates* states) { states_ = states; }

  // Handles the end of a target. Its books are closed later.
  void Handle(Target& target, Ending ending);
  // Like Handle, for a target whose end brought no event.
  void EndUnseen(Target& target);
  // Ends targets that the kernel no longer knows.
  void EndMissing(const std::map<uint64_t, bpf::RecordedProcess>& processes);
  // After lost events: finds the processes whose beginning or end was missed, a bounded number in each call.
  void FindUnnoticed();
  void FindAllUnnoticedEnds();
  // Whether FindUnnoticed has left some for the next call.
  bool HasMore() const { return has_more_ && IsSearchDue(base::Now()); }
  // These two close books that an earlier recorder left open. Call the first one before the targets are taken over, and
  // the second one after that. `pump` handles all events so far.
  void ForgetClosedByPredecessor();
  void FinishOrphans(absl::FunctionRef<void()> pump);

  // Writes the last dumps of targets that have ended, and closes their books. The background does most of it.
  void CloseEnded(base::Instant now);
  // Closes the books of a target without a dump.
  void Close(uint64_t process_id);
  // Whether the books of the process are closed. They may not be deleted yet.
  bool IsClosed(uint64_t process_id) const { return closed_.contains(process_id) || forgotten_.contains(process_id); }
  // Begins to delete the books of closed targets. To be called after the next events: at a reset, an eBPF program may
  // have been in the middle of an entry.
  void ForgetClosed();
  // Whether the books of all processes that have ended are closed and deleted.
  bool IsSettled() const {
    return to_close_.empty() && !is_closing_ && closed_.empty() && forgotten_.empty() && !has_more_ &&
           means_.books.EventsLost() == events_lost_;
  }
  // A target goes on under another process id, with new books.
  Target& Replace(uint64_t ended_id, uint64_t new_id);

  // System-wide: the processes that have ended, most recent first.
  const std::deque<profile::EndedProcess>& ended() const { return ended_.all(); }
  // Keeps the processes that have ended in a file, which outlives this object (EndedList::KeepIn).
  absl::Status KeepEndedIn(const std::string& path, base::Background& files) { return ended_.KeepIn(path, files); }
  bool failed() const { return failed_; }

 private:
  using Unnoticed = bpf::EndedBooks;

  // Finds at most `most` ends. False: there are more, for the next call.
  bool FindUnnoticedEnds(size_t most);
  // The target of this PID whose books ended with a reset that no event has reported; null: there is none.
  const Target* FindReset(pid_t pid, const std::map<uint64_t, Unnoticed>& ended) const;
  // The policy of a process that ended before it was looked at, by what the kernel and the saved state tell of it.
  Policy PolicyOfEnded(const Target& target) const;
  // What is to be done with the books of a target that has ended.
  struct Closing;
  Closing Plan(Target& target);
  void ReadAndFill(std::vector<Closing>& closing, absl::Status& status) const;
  void CloseOne(Target& target, const Closing& closing);
  // Whether another living collector records the process too, and so writes its last dump.
  bool IsLeftToOther(const Target& target);
  void Fail(const absl::Status& status);

  const Means means_;
  const RecorderOptions& recorder_options_;
  const bool is_system_wide_;
  TargetStates* states_ = nullptr;
  std::set<uint64_t> to_close_;   // ended, not closed yet
  bool is_closing_ = false;       // in the background
  std::set<uint64_t> missing_;    // process ids that the kernel's map had no entry for at the last Tick
  std::set<uint64_t> closed_;     // process ids whose books are to be deleted
  std::set<uint64_t> forgotten_;  // process ids whose books are being deleted
  EndedList ended_;
  static constexpr absl::Duration kQuickSearch = absl::Milliseconds(2);
  // A search after a quick one is due at once.
  bool IsSearchDue(base::Instant now) const {
    return search_cost_ < kQuickSearch || now - searched_ >= 10 * search_cost_;
  }
  base::Instant searched_ = base::Instant::InfinitePast();  // when the last search for missed events ended
  absl::Duration search_cost_ = {};
  uint64_t events_lost_ = 0;  // as of the last FindUnnoticed that found all
  bool has_more_ = false;
  base::Instant exits_handled_ = base::Instant::InfinitePast();
  bool failed_ = false;
  base::ThreadChecker thread_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_ENDINGS_H_
