// SPDX-License-Identifier: Apache-2.0
//
// Writes the history of all processes (history/writer.h) in a thread of its own.
//
// Each round takes a survey, asks for the frames of new paths, and writes one transaction. If the database is full,
// room is made at once, and the round is repeated. Any other error of the database costs the points of that moment and
// is reported once; the recording does not notice the error. If the file is gone, a new one begins as soon as its
// folder is there.
//
// The processor time for call paths is bounded by a share of a core. Very many paths are read less often than every
// interval; the points between have the paths of the latest reading.
#ifndef HEAPTAP_USERSPACE_DAEMON_HISTORIAN_H_
#define HEAPTAP_USERSPACE_DAEMON_HISTORIAN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/api/collector.h"
#include "userspace/api/history_place.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/base/repeated_task.h"
#include "userspace/crews/crews.h"
#include "userspace/daemon/history_names.h"
#include "userspace/history/retention.h"
#include "userspace/history/schema.h"
#include "userspace/history/writer.h"
#include "userspace/profile/survey.h"

namespace heaptap::daemon {

struct HistoryOptions {
  std::string path = {};  // of the database; "": no history
  uint64_t most_bytes = history::kDefaultBytes;
  absl::Duration interval = absl::Seconds(10);
  // How long a stack waits for its outer frames. After that, the stack has the part of its path that is known. Longer
  // than RawStacks::kMaxWait.
  absl::Duration patience = absl::Seconds(40);
};

class Historian {
 public:
  // The most processes of one user besides root that have a history. Those that were recorded first have one.
  static constexpr size_t kMaxProcessesOfUser = 256;
  // The paths of a point: as many as hold this share together, but at most kMaxPaths. The other paths share one row.
  static constexpr double kShare = 0.99;
  static constexpr size_t kMaxPaths = 200;
  // How much larger a path must be to take the row of another one. Otherwise, rows would change with each sample.
  static constexpr double kLoyalty = 1.25;
  // The share of a core that rounds with paths may take, in the long run, at the usual interval. At a shorter interval
  // the share is larger by the same factor. New paths do not count, because they have bounds of their own (below).
  // There is no pause while new paths are left over from a round.
  static constexpr double kShareOfCore = 0.002;
  static constexpr absl::Duration kUsualInterval = absl::Seconds(10);
  // The most new paths of one process at once, and in a day. The largest come first, so a new leak is among them.
  static constexpr double kMaxNewPaths = 2000;
  // The most new paths of all processes in one round: the recording's thread looks each one up.
  static constexpr size_t kMaxNewPathsOfAll = 5000;

  // The thread begins at once. The collector and the crews must outlive this object.
  Historian(api::Collector& collector, worker::Crews& crews, HistoryOptions options);
  // REQUIRES: the collector no longer answers, and the crews are cancelled. Waits for the disk.
  ~Historian();

  // Writes a point of each process at once, with all its paths. False: the deadline has passed, there was an error, or
  // the thread ends. Thread-safe.
  bool WriteNow(base::Instant deadline);

  // For those who read the history.
  api::HistoryPlace& place() { return place_; }

 private:
  struct Known {
    int64_t id = 0;
    absl::flat_hash_map<uint64_t, uint64_t> numbers = {};     // of paths, by stack id
    absl::flat_hash_map<uint64_t, base::Instant> waits = {};  // since when they wait for outer frames, by stack id
    double new_paths = kMaxNewPaths;                          // the number that it may have now
    base::Instant new_paths_at = {};
    history::Point last = {};
    // Since when the process no longer runs; none: it runs.
    struct Missing {
      absl::Time time = {};
      base::Instant at = {};
    };
    std::optional<Missing> missing = {};
  };
  // A process in this round.
  struct Turn {
    const profile::SurveyedProcess* process = nullptr;
    std::vector<profile::StackShare> stacks = {};  // most bytes first
    size_t chosen = 0;                             // the number of stacks with a row of their own
    std::vector<uint64_t> asked = {};              // stacks whose frames are known now
    profile::SurveyedStacks found = {};
    bool is_complete = true;  // all chosen stacks have a path
  };

  // A known process that does not run any more.
  struct Gone {
    uint64_t process_id = 0;
    absl::Time ended = {};
    std::string how = {};  // as in Writer::EndProcess
  };

  void Work();
  // A round, repeated if it was necessary and possible to make room for it.
  absl::Status RoundWithRoom();
  absl::Status TryRound();
  absl::Status Round();
  void ForgetProcesses();
  void Close();
  // To be called after a round with paths. Sets when paths are read again.
  void Pause(absl::Duration cost);
  // Most bytes first. A path that has a row keeps it until another one is clearly larger.
  static void SortStacks(const Known* known, std::vector<profile::StackShare>& stacks);
  std::vector<Turn> MakeTurns(const profile::Survey& survey);
  void FindNewPaths(base::Instant now, std::vector<Turn>& turns);
  std::vector<Gone> FindGone(absl::Time now, const profile::Survey& survey);
  absl::Status Write(absl::Time now, const profile::Survey& survey, const std::vector<Gone>& gone,
                     std::vector<Turn>& turns);
  absl::Status WriteOne(absl::Time now, Turn& turn, std::vector<HistoryNames::Task>& tasks);
  absl::Status AddPaths(Turn& turn, Known& known, std::vector<HistoryNames::Task>& tasks);
  // Also ends the processes that an earlier daemon has left, once all running processes are known.
  absl::Status EndProcesses(absl::Time now, const profile::Survey& survey, const std::vector<Gone>& gone);
  bool SleepUntil(base::Instant end);         // or until somebody asks for a round; false: the thread must stop
  uint64_t BeginRound();                      // returns the calls of WriteNow so far
  void EndRound(uint64_t asked, bool is_ok);  // `asked`: what BeginRound returned

  api::Collector& collector_;
  const HistoryOptions options_;
  api::HistoryPlace place_;
  HistoryNames names_;

  // Used by the thread only.
  std::unique_ptr<history::Writer> writer_;
  history::Pruner pruner_;
  std::map<uint64_t, Known> known_;  // by process id
  profile::Activities activities_;
  base::Instant paths_at_ = base::Instant::InfinitePast();  // when paths are read again
  // What this round has done.
  absl::Duration new_paths_cost_ = {};
  bool has_left_paths_ = false;  // new paths
  bool has_ended_others_ = false;
  base::RepeatedTask writing_;

  base::Mutex mutex_;
  bool shall_stop_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;    // calls of WriteNow
  uint64_t tried_ ABSL_GUARDED_BY(mutex_) = 0;    // calls that came before the latest round
  uint64_t written_ ABSL_GUARDED_BY(mutex_) = 0;  // calls that came before the latest round that wrote everything
  std::thread thread_;
};

}  // namespace heaptap::daemon

#endif  // HEAPTAP_USERSPACE_DAEMON_HISTORIAN_H_
