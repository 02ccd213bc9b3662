// SPDX-License-Identifier: Apache-2.0
//
// Dumps that processes ask for or trigger, and how much of the recording's time each user may use for profiles.
// Not thread-safe.
#ifndef HEAPTAP_USERSPACE_DUMPS_REQUESTS_H_
#define HEAPTAP_USERSPACE_DUMPS_REQUESTS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bpf/events.h"
#include "heaptap/contract.h"
#include "userspace/attach/allocators.h"
#include "userspace/base/accounts.h"
#include "userspace/base/clock.h"
#include "userspace/base/thread_checker.h"
#include "userspace/bpf/books.h"
#include "userspace/crews/errands.h"
#include "userspace/dumps/answers.h"
#include "userspace/dumps/dumps.h"
#include "userspace/profile/profile.h"
#include "userspace/tables/unwinding.h"
#include "userspace/targets/controls.h"
#include "userspace/targets/target.h"
#include "userspace/targets/target_table.h"

namespace heaptap::recording {

class Requests {
 public:
  // What it needs of others, which must outlive this object.
  struct Means {
    const bpf::Books& books;
    worker::Errands& errands;
    TargetTable& targets;
    AddressSpaces& spaces;
    Controls& controls;
    Allocators& allocators;
    Unwinding& unwinding;
    Dumps& dumps;
  };
  // System-wide: users have accounts, and nothing waits here.
  Requests(const Means& means, bool is_system_wide);

  // A target has asked for a dump, or for its unwind tables. A dump that cannot be made now is made later, unless the
  // process has given up by then.
  void HandleDump(Target& target, const heaptap_event& event);
  // A process that is not recorded has asked for a dump.
  void RefuseDump(const heaptap_event& event);
  // Writes a dump, or postpones it.
  void HandleTrigger(Target& target, heaptap_dump_kind kind);
  // Writes a dump that was postponed, and one that its policy wants from time to time, if they are due.
  void WriteDue(Target& target, base::Instant now);
  // Whether the target has a final dump of its own. A request that is still unanswered counts as failed.
  bool HasOwnFinal(Target& target);
  // Answers requests that waited. To be called regularly.
  void HandlePostponed();

  bool HasPostponed() const { return !postponed_.empty(); }
  // Requests that waited until their processes gave up.
  uint64_t given_up() const { return given_up_; }

  Answers& answers() { return answers_; }
  bool failed() const { return failed_; }

  // Whether no stacks of the process wait for unwind tables, or they have waited long enough; and whether it is known
  // which files its mappings are of.
  bool IsSettled(const Target& target);
  // The facts about the target have been read, so that its user is known.
  void NoteUser(const Target& target);
  // The user whose account the process uses; none if that is unknown. Root, unless the recording is system-wide.
  std::optional<uid_t> AccountOf(const Target& target) const;
  // Whether the user of a process may have a profile of it now: has time left, and the background makes no other one
  // for this user, except root. Always, unless the recording is system-wide.
  bool HasTime(const Target& target);
  // Charges the user of a process.
  void Charge(const Target& target, absl::Duration used);

 private:
  // What the process asked for, by which event, and the place of the answer.
  struct Question {
    heaptap_event event;
    heaptap_dump_request request;
    Answers::Place place;
  };
  // What it gets.
  struct Reply {
    std::string answer;  // worker::AnswerQuestion
    bool has_contents = false;
    profile::LeakSummary leaks = {};
    std::vector<std::string> warnings = {};
  };
  // Without contents if they could not be made.
  static Reply Refusal(const Question& question, int error);
  void MakeRecords(const Target& target, const Question& question);
  void MakeDump(const Target& target, const Question& question);
  // `target`: as it was when it asked.
  void Answer(const Target& target, const Question& question, Reply reply);
  // A request of a target that another collector controlled. `control`: of now.
  void HandleOfOther(Target& target, const heaptap_event& event, const absl::StatusOr<heaptap_control>& control);
  // Until HandlePostponed. Says so if the process no longer waits.
  void Postpone(const Target& target, const heaptap_event& event);
  // Between these two, the background makes a profile that the user of the process pays for.
  std::optional<uid_t> BeginMaking(const Target& target);
  void EndMaking(const Target& target, std::optional<uid_t> user, absl::Duration used);

  const Means means_;
  Answers answers_;
  std::optional<base::Accounts> accounts_;       // system-wide
  std::multiset<std::optional<uid_t>> making_;   // users for whom the background makes profiles
  std::map<uint64_t, heaptap_event> postponed_;  // requests, by process id
  uint64_t given_up_ = 0;
  bool failed_ = false;
  base::ThreadChecker thread_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_DUMPS_REQUESTS_H_
