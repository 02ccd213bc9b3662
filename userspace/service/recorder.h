// SPDX-License-Identifier: Apache-2.0
//
// One recording: the books in the kernel, the recorded processes (target.h), and their dumps.
//
// A recording of given processes (RecordChild, RecordRunning) knows them from the start. A system-wide recording takes
// in each process that uses a sampled allocator, from its first allocation: probes are attached for the whole machine,
// and a process enters when it hits one. A system-wide recording can stay in the kernel when the recorder ends or is
// killed; the next recorder takes it over.
//
// When a process exits, its final dump is written if its policy says so. An exec drops the books, since the memory is
// gone.
//
// Not thread safe. The owner polls fds(), or waits for kPumpInterval at most, and calls Pump.
#ifndef HEAPTAP_USERSPACE_SERVICE_RECORDER_H_
#define HEAPTAP_USERSPACE_SERVICE_RECORDER_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heaptap/contract.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/mapping_events.h"
#include "userspace/export/heap_v2.h"
#include "userspace/profile/profile.h"
#include "userspace/service/address_spaces.h"
#include "userspace/service/answer_processes.h"
#include "userspace/service/bounded_work.h"
#include "userspace/service/collector.h"
#include "userspace/service/dump_folder.h"
#include "userspace/service/probe_files.h"
#include "userspace/service/process_handle.h"
#include "userspace/service/profile_builder.h"
#include "userspace/service/retention.h"
#include "userspace/service/rules.h"
#include "userspace/service/target.h"
#include "userspace/service/target_state.h"
#include "userspace/service/unwind_tables.h"

namespace heaptap::service {

// A writer of dumps (userspace/export/).
using DumpFormat = std::string (*)(const profile::Profile&);

// The options of a system-wide recording.
struct SystemWide {
  std::optional<Rules> rules = {};          // none: RecorderOptions::policy for all processes
  std::string state_folder = {};            // for dumps, and for the state that the next recorder needs
  std::string pin_folder = {};              // in a BPF file system; "": the recording ends with the recorder
  std::vector<std::string> libraries = {};  // allocators to attach to before any process maps them
  Retention retention = {};
  bool shall_end = false;  // the recorder takes over an existing recording only to end it
  double budget = 0;       // CPU time of all probes, as a share of one core; 0: no bound
};

struct RecorderOptions {
  std::string prefix = "jeprof";         // of the collector's own dumps; unused if system-wide
  bool prefix_given = false;             // the prefix is not the default
  DumpFormat format = exporter::HeapV2;  // of the collector's own dumps; a process always gets jemalloc's format
  Policy policy = {.dump_at_exit = DumpAtExit::kAlways};
  bpf::MapSizes map_sizes = {};
  bool show_books = false;  // print a line of JSON when a target's books close
  // Write dumps only of processes whose comm matches a pattern (fnmatch(3)); empty: of all.
  std::vector<std::string> only = {};
  // Record children too, and attach for every process that maps an allocator's file. Otherwise one process only.
  bool follow = false;
  std::optional<SystemWide> system_wide = {};  // system-wide; requires follow
};

class Recorder {
 public:
  // How long mapped files may wait to be looked at.
  static constexpr absl::Duration kPumpInterval = absl::Milliseconds(250);

  // Loads the programs and opens the folder for dumps. Records nothing yet, unless it is system-wide.
  static absl::StatusOr<std::unique_ptr<Recorder>> Start(const RecorderOptions& options);

  // Records a child of this process that will exec.
  absl::Status RecordChild(pid_t pid);
  // Reads the unwind tables of the child program's files, several at a time.
  void ReadAhead(const std::vector<std::string>& paths);
  // Attaches to a file that the child's program will map.
  absl::StatusOr<bool> AttachFile(const std::string& path);
  // Records a running process. NotFound: no such process, or no sampled allocator in it.
  absl::Status RecordRunning(pid_t pid);

  std::vector<int> fds() const;
  // Handles everything that has happened since the last call.
  void Pump();

  // Writes a dump of each target.
  void DumpAll(heaptap_dump_kind kind);
  // Ends the recording: writes last dumps of the targets that still live, and restores their control blocks.
  void Finish();
  // Ends a system-wide recording without dumps: removes it from the kernel and restores control blocks.
  void End();

  // A line about the processes without a last dump because they took no sample; "" if there are none.
  std::string WithoutSamples() const;
  // A line about how the stacks in the last dumps end.
  std::string StackSummary() const;

  bool IsRecorded(pid_t pid) const;
  // Whether any process so far had a sampled allocator.
  bool recorded_any() const { return recorded_any_; }
  // Whether a dump or another task has failed (its error is already printed).
  bool failed() const { return failed_; }
  // Whether another recorder began the recording.
  bool took_over() const { return books_->adopted(); }

  // For a system-wide recording. Clients' calls are those of collector.h.
  //
  // Call it every second: rates, budget, scheduled dumps, age of dumps.
  void Tick(absl::Time now);
  // Applies new settings to all processes.
  void SetRules(Rules rules, const Policy& defaults, const Retention& retention, double budget);
  // Made once after each Pump, because it reads all tallies. Valid until the next call of Pump or of a function that
  // changes a process.
  const std::vector<ProcessSummary>& Summaries();
  const std::deque<EndedProcess>& ended() const { return ended_; }
  absl::StatusOr<ProfileSnapshot> Snapshot(pid_t pid);
  absl::StatusOr<std::string> DumpOne(pid_t pid);
  absl::StatusOr<AllocatorFigures> ReadAllocatorFigures(pid_t pid);
  absl::Status SetActive(pid_t pid, bool active);
  absl::Status SetRate(pid_t pid, std::optional<uint32_t> lg_sample);
  exporter::CollectorFigures Figures();
  // The process with the most live memory; 0 if none is recorded.
  pid_t LargestProcess();

 private:
  // Between two triggered dumps of one process in a system-wide recording.
  static constexpr absl::Duration kTriggerPause = absl::Seconds(1);
  // A bound, because any process can take the name of a collector.
  static constexpr size_t kMaxCollectorsReported = 16;
  // Ended processes that are remembered with their last figures.
  static constexpr size_t kMaxEnded = 1000;

  Recorder(const RecorderOptions& options, DumpFolder folder, std::optional<bpf::Pins> pins,
           std::unique_ptr<bpf::Books> books, std::unique_ptr<bpf::MappingEvents> mapping_events);
  static absl::StatusOr<DumpFolder> OpenFolder(const RecorderOptions& options);
  // recorder_system_wide.cc
  absl::Status StartSystemWide();
  absl::Status SetDefaults();
  void DrainOtherLayouts(const std::string& states_folder);
  void TakeOverBooks();
  void ForgetClosedByPredecessor();
  void FinishOrphans();
  void RecordRunningProcesses();
  // Reads the mappings and the control block of a process that was running before it entered. False: it is gone, or has
  // no attached allocator (yet).
  bool Inspect(Target& target);
  // Sets the policy by the rules and configures the kernel. A process that is not to be recorded stays a target until
  // the next Pump.
  void ApplyPolicy(Target& target);
  // Applies the current rules to the processes that an earlier rule ignored.
  void RecordIgnored();
  void HandleEnter(const heaptap_event& event);
  void InspectNewcomers();
  void SaveStates(absl::Time now);
  void FoldThreads(const std::map<uint64_t, std::vector<bpf::TallyEntry>>& tallies);
  void RepairSpaces();
  void EndUnseen(Target& target);
  void EndMissing(const std::map<uint64_t, bpf::RecordedProcess>& processes);
  void KeepBudget(absl::Time now);
  void SayBudget(absl::Time now);

  void Handle(const heaptap_event& event);
  void HandleStart(Target& target, const heaptap_event& event);
  void HandleDump(Target& target, const heaptap_event& event);
  void HandleReset(const heaptap_event& event);
  void HandleTrigger(Target& target, heaptap_dump_kind kind);
  void RefuseDump(const heaptap_event& event);
  // Runs in a child of the collector.
  void RefuseUnrecorded(const ProcessHandle& process, const std::vector<elf::Mapping>& mappings, uint64_t address,
                        pid_t collector) const;
  // recorder_exits.cc
  void HandleExit(Target& target, Ending ending);
  void CloseEnded(absl::Time now);
  void CloseOne(Target& target, const std::vector<bpf::TallyEntry>& tallies);
  bool IsLeftToOther(const Target& target) const;
  // After lost events: finds the processes whose beginning or end was missed.
  void FindUnnoticed();
  void FindUnnoticedEnds();
  // recorder_mappings.cc
  void HandleMapping(const bpf::MappingEvent& event);
  // Reads the unwind tables of files that recorded processes have just mapped.
  void ReadAhead(const std::vector<bpf::MappingEvent>& events);
  void LookForAllocator(const bpf::MappingEvent& event);
  // Removes the probes from files that no process maps any more, so that their file systems can be unmounted.
  void ReleaseFiles(absl::Time now);
  // `news`: mapping events that have not been handled yet.
  void HandleTableWanted(const heaptap_event& event, const std::vector<bpf::MappingEvent>& news);
  // Call it after all mappings before the question have been handled, so that their tables are in the kernel.
  void AnswerTables(Target& target, uint32_t asked);
  void EnterMapped(pid_t pid, const elf::Mapping& mapping);
  // Finishes a stack that the kernel could not unwind.
  void FinishRawStack(const bpf::RawStack& raw);

  void PrepareTables(pid_t pid, const std::vector<elf::Mapping>& mappings);
  Target& AddTarget(uint64_t process_id, pid_t pid);
  Target* FindTarget(uint64_t process_id);
  // The target that runs under this PID now.
  Target* FindRunning(pid_t pid);
  absl::StatusOr<Target*> FindForClient(pid_t pid);
  // Copies the facts about a process's allocator to a process with the same memory.
  static void CopyAllocatorFacts(const Target& from, Target& to);
  void UseControl(Target& target, const heaptap_control& control, uint64_t address);
  // Writes the collector and the rate to the target's control block.
  void WriteControl(Target& target);
  // Runs `work` on the memory of a target, with a time limit. Unavailable: the limit was reached, now or earlier.
  absl::Status WithMemory(Target& target, std::function<absl::Status(const ProcessHandle&)> work);
  // A handle on the process behind an event. NotFound if it has ended since.
  absl::StatusOr<ProcessHandle> Open(pid_t pid, uint64_t process_id) const;

  const AddressSpace* Space(const Target& target) const;
  ProfileSubject Subject(const Target& target) const;
  absl::StatusOr<profile::Profile> Build(const Target& target) const;
  profile::Profile Build(const Target& target, std::vector<bpf::TallyEntry> tallies) const;
  // The contents of the file that a process asked for.
  struct Contents {
    std::string text;
    profile::LeakSummary leaks;
    std::vector<std::string> warnings;
  };
  absl::StatusOr<Contents> MakeContents(const Target& target, const heaptap_dump_request& request) const;
  // Whether a target is worth a profile: it runs a sampled allocator, and neither a rule nor --only excludes it.
  bool HasProfile(const Target& target);
  bool HasProfile(const Target& target, bool has_tallies);
  // Builds, writes and reports one dump; prints errors.
  absl::StatusOr<std::string> Dump(Target& target, heaptap_dump_kind kind);
  absl::StatusOr<std::string> WriteDump(Target& target, heaptap_dump_kind kind, const profile::Profile& profile);
  void AddStackEnds(const profile::Profile& profile);
  // `path`: of the dump; "" if only the process knows it.
  void SayLeaks(const Target& target, const profile::LeakSummary& leaks, const std::string& path) const;
  // Reads the maps once for all targets.
  void SayBooks(std::vector<const Target*> targets) const;
  void SayLosses(const std::vector<std::string>& warnings);
  std::vector<ProcessSummary> MakeSummaries();
  void ReadActive(Target& target);
  void NoteOwner(Target& target);
  ProcessSummary Summarise(const Target& target, const std::vector<bpf::TallyEntry>& tallies) const;
  // Stops recording every target and restores its control block.
  void Abandon();
  void Fail(const absl::Status& status);
  void Close(uint64_t process_id);
  // Deletes the books of closed targets.
  void ForgetClosed();
  // A target goes on under another process id, with new books.
  Target& Replace(uint64_t ended_id, uint64_t new_id);

  RecorderOptions options_;
  DumpFolder folder_;
  std::optional<bpf::Pins> pins_;
  std::unique_ptr<bpf::Books> books_;
  std::unique_ptr<bpf::MappingEvents> mapping_events_;
  ProbeFiles probe_files_;
  UnwindTables tables_;
  AddressSpaces spaces_;
  BoundedWork target_memory_;
  // Read, but later than the events that were read with them.
  std::vector<bpf::RawStack> raw_stacks_to_come_;
  std::vector<bpf::MappingEvent> mappings_to_come_;
  std::map<uint64_t, Target> targets_;                             // by process id
  std::set<uint64_t> newcomers_;                                   // entered, but heaptap:start not seen
  std::set<uint64_t> closed_;                                      // process ids whose books are to be deleted
  std::set<std::tuple<uint32_t, uint64_t, uint32_t>> files_seen_;  // device, inode, generation of files looked at
  size_t files_refused_ = 0;                                       // with unusable notes
  std::set<ProbeFiles::File> files_kept_;                          // attached even while no process maps them
  std::map<ProbeFiles::File, elf::Mapping> files_mapped_;          // a mapping of each, as last seen
  absl::Time files_looked_at_ = absl::InfinitePast();
  std::set<std::string> losses_reported_;
  std::set<pid_t> collectors_reported_;  // other collectors
  AnswerProcesses answers_;
  profile::StackEnds stack_ends_ = {};  // of last dumps
  uint64_t events_lost_ = 0;            // as of the last FindUnnoticed
  bool recorded_any_ = false;
  std::vector<std::string> without_samples_;  // names of processes that ended before their first sample
  bool failed_ = false;

  // For a system-wide recording.
  std::optional<TargetStates> states_;
  std::optional<DumpPruner> pruner_;
  std::deque<EndedProcess> ended_;  // most recent first
  std::set<uint64_t> to_close_;     // ended, not closed yet
  uint64_t mappings_lost_ = 0;      // as of the last RepairSpaces
  uint64_t last_saved_ = 0;         // process id
  std::set<uint64_t> ignored_;      // process ids to close because a rule ignores a living process
  absl::Time exits_handled_ = absl::InfinitePast();
  std::optional<std::vector<ProcessSummary>> summaries_;
  std::set<uint64_t> rate_changes_;  // process ids whose change of rate is not reported yet
  absl::Time budget_reported_ = absl::InfinitePast();
  absl::Time active_read_ = absl::InfinitePast();
  exporter::CountsByName events_counted_;
  exporter::CountsByName dumps_counted_;
  uint64_t dump_errors_ = 0;
  absl::Duration dump_time_ = {};
  std::optional<absl::Time> last_dump_ = {};
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_RECORDER_H_
