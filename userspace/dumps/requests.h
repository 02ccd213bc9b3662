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
#include "userspace/targets/area_gifts.h"
#include "userspace/targets/controls.h"
#include "userspace/targets/target.h"
#include "userspace/targets/target_table.h"

namespace heaptap::recording {

class Requests {
 public:
  // The objects that this one uses. They must outlive it.
  struct Means {
    const bpf::Books& books;
    worker::Errands& errands;
    TargetTable& targets;
    AddressSpaces& spaces;
    Controls& controls;
    AreaGifts& gifts;
    Allocators& allocators;
    Unwinding& unwinding;
    Dumps& dumps;
  };
  // System-wide: users have accounts, and no call waits here.
  Requests(const Means& means, bool is_system_wide);

  // A target has asked for a dump, for its unwind tables, or for an area. A dump that cannot be made now is made later,
  // unless the process has given up by then.
  void HandleDump(Target& target, const heaptap_event& event);
  // A process that is not recorded has asked for a dump.
  void RefuseDump(const heaptap_event& event);
  // Writes a dump, or postpones it.
  void HandleTrigger(Target& target, heaptap_dump_kind kind);
  // Writes a dump that was postponed, and a scheduled one that its policy wants, if they are due.
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

  // Whether a profile can be made: no stacks of the process wait for unwind tables, or they have waited long enough,
  // and it is known which files its mappings belong to.
  bool IsSettled(const Target& target);
  // The facts about the target have been read, so that its user is known.
  void NoteUser(const Target& target);
  // The user whose account the process uses; none if that is unknown. Root, unless the recording is system-wide.
  std::optional<uid_t> AccountOf(const Target& target) const;
  // Whether the user of a process may have a profile of it now: the user has time left, and the background makes no
  // other profile for this user; root may have several. Always true, unless the recording is system-wide.
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
  // What the process gets.
  struct Reply {
    std::string answer;  // worker::AnswerQuestion
    bool has_contents = false;
    profile::LeakSummary leaks = {};
    std::vector<std::string> warnings = {};
  };
  // A reply with an error instead of contents.
  static Reply Refusal(const Question& question, int error);
  void MakeRecords(const Target& target, const Question& question);
  void MakeDump(const Target& target, const Question& question);
  // `target`: as it was when it asked.
  void Answer(const Target& target, const Question& question, Reply reply);
  // A request of a target that another collector controlled. `control`: the block as it is now.
  void HandleOfOther(Target& target, const heaptap_event& event, const absl::StatusOr<heaptap_control>& control);
  // Keeps the request until HandlePostponed. Prints a message if the process no longer waits.
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
