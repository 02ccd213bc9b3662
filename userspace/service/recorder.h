// SPDX-License-Identifier: Apache-2.0
//
// One recording: the books in the kernel, the processes in it (target.h), and the dumps that come of it.
//
// It records what it is told to (RecordChild, RecordRunning), or, for everyone, each process that uses a sampled
// allocator, from its first allocation: its probes are attached for the whole machine, and a process enters by itself
// when it hits one. What a recording for everyone has in the kernel can stay there when the recorder ends, however that
// happens; the next one takes it over.
//
// At a process's exit its final dump is written, as its policy has it; an exec drops the books, as its memory is gone.
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
#include "userspace/service/answers.h"
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

// A recording of everyone.
struct Everyone {
  std::optional<Rules> rules = {};          // nothing: RecorderOptions::policy for all
  std::string state_folder = {};            // where dumps go, and what a next recorder needs to know
  std::string pin_folder = {};              // in a BPF file system; "": nothing stays
  std::vector<std::string> libraries = {};  // allocators' files to attach to before anybody maps them
  Retention retention = {};
  bool shall_end = false;  // the recorder only takes over what another has left, to end it
  double budget = 0;       // of a core, in the kernel, for all processes together; 0: no bound
};

struct RecorderOptions {
  std::string prefix = "jeprof";         // of the dumps that the collector decides on; not for everyone
  bool prefix_given = false;             // the prefix is not the default
  DumpFormat format = exporter::HeapV2;  // of those dumps; what a process asks for is always as jemalloc's
  Policy policy = {.dump_at_exit = DumpAtExit::kAlways};
  bpf::MapSizes map_sizes = {};
  bool show_books = false;  // a line of JSON when a target's books close
  // Dumps of processes with such a name only (fnmatch(3), of their comm); empty: of all.
  std::vector<std::string> only = {};
  // Record children too, and attach for every process that maps an allocator's file. Else one process only.
  bool follow = false;
  std::optional<Everyone> everyone = {};  // follows
};

class Recorder {
 public:
  // How long mapped files may wait to be looked at.
  static constexpr absl::Duration kPumpInterval = absl::Milliseconds(250);

  // Loads the programs and opens the folder for dumps. Records nothing yet, unless it is for everyone.
  static absl::StatusOr<std::unique_ptr<Recorder>> Start(const RecorderOptions& options);

  // Records a child of ours that will exec.
  absl::Status RecordChild(pid_t pid);
  // Reads what files of the child's program will need, several at a time.
  void ReadAhead(const std::vector<std::string>& paths);
  // Attaches to a file that the child's program will map.
  absl::StatusOr<bool> AttachFile(const std::string& path);
  // Records a running process. NotFound: no such process, or no sampled allocator in it.
  absl::Status RecordRunning(pid_t pid);

  std::vector<int> fds() const;
  // Handles all that has happened.
  void Pump();

  // Writes a dump of each target.
  void DumpAll(heaptap_dump_kind kind);
  // Ends the recording: last dumps of the targets that still live, which are left as they were found.
  void Finish();
  // Ends a recording of everyone without dumps: nothing stays in the kernel, and processes are left as they were found.
  void End();

  // Which processes have no last dump, as they took no sample, a line; "" if there are none.
  std::string WithoutSamples() const;
  // How the stacks of the samples in the last dumps of ended or finished targets ended, a line.
  std::string StackSummary() const;

  bool IsRecorded(pid_t pid) const;
  // Whether any process so far had a sampled allocator.
  bool recorded_any() const { return recorded_any_; }
  // Whether something that was asked for could not be done (it was said when it happened).
  bool failed() const { return failed_; }
  // Whether the recording is one that another recorder began.
  bool took_over() const { return books_->adopted(); }

  // For a recording of everyone. What clients may ask is as in collector.h.
  //
  // To be called every second: rates, budget, dumps on the schedule, age of dumps.
  void Tick(absl::Time now);
  // What holds from now on, for all processes.
  void SetRules(Rules rules, const Policy& defaults, const Retention& retention, double budget);
  // As of the last Pump, or later: those who ask at once share one, as each costs a look at all tallies. Valid until
  // the next call of Pump or of what changes a process.
  const std::vector<ProcessSummary>& Summaries();
  const std::deque<EndedProcess>& ended() const { return ended_; }
  absl::StatusOr<ProfileSnapshot> Snapshot(pid_t pid);
  absl::StatusOr<std::string> DumpOne(pid_t pid);
  absl::StatusOr<AllocatorFigures> ReadAllocatorFigures(pid_t pid);
  absl::Status SetActive(pid_t pid, bool active);
  absl::Status SetRate(pid_t pid, std::optional<uint32_t> lg_sample);
  exporter::CollectorFigures Figures();
  // The process that holds most; 0 if none is recorded.
  pid_t LargestProcess();

 private:
  // Between two dumps that triggers ask for, of one process among everyone.
  static constexpr absl::Duration kTriggerPause = absl::Seconds(1);
  // Any process can take the name of a collector.
  static constexpr size_t kMaxOthersSaid = 16;
  // Processes that have ended, which are remembered with their last figures.
  static constexpr size_t kMaxEnded = 1000;

  Recorder(const RecorderOptions& options, DumpFolder folder, std::optional<bpf::Pins> pins,
           std::unique_ptr<bpf::Books> books, std::unique_ptr<bpf::MappingEvents> mapping_events);
  static absl::StatusOr<DumpFolder> OpenFolder(const RecorderOptions& options);
  // recorder_everyone.cc
  absl::Status StartEveryone();
  absl::Status SetDefaults();
  void DrainOtherLayouts(const std::string& states_folder);
  void TakeOverBooks();
  void ForgetClosedBefore();
  void FinishOrphans();
  void RecordRunningProcesses();
  // Learns all about a process that entered by itself long after it began. False: there is nothing to learn (yet).
  bool Introduce(Target& target);
  // Its policy, and what follows from that in the kernel. One that is not to be recorded is a target no longer than
  // until the next Pump.
  void ApplyPolicy(Target& target);
  // Those that a rule left alone, once more by the rules as they are now.
  void RecordIgnored();
  void HandleEnter(const heaptap_event& event);
  void IntroduceNewcomers();
  void SaveStates(absl::Time now);
  void FoldThreads(const std::map<uint64_t, std::vector<bpf::TallyEntry>>& tallies);
  void RepairSpaces();
  void EndUnseen(Target& target);
  void EndForgotten(const std::map<uint64_t, bpf::RecordedProcess>& processes);
  void KeepBudget(absl::Time now);
  void SayBudget(absl::Time now);

  void Handle(const heaptap_event& event);
  void HandleStart(Target& target, const heaptap_event& event);
  void HandleDump(Target& target, const heaptap_event& event);
  void HandleReset(const heaptap_event& event);
  void HandleTrigger(Target& target, heaptap_dump_kind kind);
  void RefuseDump(const heaptap_event& event);
  // In a child of the collector.
  void RefuseStranger(const ProcessHandle& stranger, const std::vector<elf::Mapping>& mappings, uint64_t address,
                      pid_t collector) const;
  // recorder_exits.cc
  void HandleExit(Target& target, Ending ending);
  void CloseEnded(absl::Time now);
  void CloseOne(Target& target, const std::vector<bpf::TallyEntry>& tallies);
  bool IsLeftToOther(const Target& target) const;
  // Makes up for lost events: finds the processes that began or ended unnoticed.
  void FindUnnoticed();
  void FindUnnoticedEnds();
  // recorder_mappings.cc
  void HandleMapping(const bpf::MappingEvent& event);
  // The same for files that recorded processes have mapped.
  void ReadAhead(const std::vector<bpf::MappingEvent>& events);
  void LookForAllocator(const bpf::MappingEvent& event);
  // Takes the probes off the files that nobody has mapped any more, so that what they lie on can be unmounted.
  void ReleaseFiles(absl::Time now);
  // `news`: mapping events that have not been handled yet.
  void HandleTableWanted(const heaptap_event& event, const std::vector<bpf::MappingEvent>& news);
  // To be called when all mappings up to the question have been handled: their tables are in the kernel.
  void AnswerTables(Target& target, uint32_t asked);
  void EnterMapped(pid_t pid, const elf::Mapping& mapping);
  // Finishes a stack that the kernel could not.
  void Finish(const bpf::RawStack& raw);

  void PrepareTables(pid_t pid, const std::vector<elf::Mapping>& mappings);
  Target& AddTarget(uint64_t process_id, pid_t pid);
  Target* FindTarget(uint64_t process_id);
  // The target that runs under this PID now.
  Target* FindRunning(pid_t pid);
  absl::StatusOr<Target*> FindForClient(pid_t pid);
  // What is known of a process's allocator, for one with the same memory.
  static void TakeOver(const Target& from, Target& to);
  void UseControl(Target& target, const heaptap_control& control, uint64_t address);
  // Says in the target's control block what it shall do.
  void WriteControl(Target& target);
  // Does something with the memory of a target, within a bound. Unavailable: beyond it.
  absl::Status WithMemory(Target& target, std::function<absl::Status(const ProcessHandle&)> work);
  // A handle on the process behind an event. NotFound if it has ended meanwhile.
  absl::StatusOr<ProcessHandle> Open(pid_t pid, uint64_t process_id) const;

  const AddressSpace* Space(const Target& target) const;
  ProfileSubject Subject(const Target& target) const;
  absl::StatusOr<profile::Profile> Build(const Target& target) const;
  profile::Profile Build(const Target& target, std::vector<bpf::TallyEntry> tallies) const;
  // What a process asked for, as the contents of its file.
  struct Contents {
    std::string text;
    profile::LeakSummary leaks;
    std::vector<std::string> warnings;
  };
  absl::StatusOr<Contents> MakeContents(const Target& target, const heaptap_dump_request& request) const;
  // Whether there is anything to say about a target: it runs a sampled allocator, and is not left alone.
  bool HasProfile(const Target& target);
  bool HasProfile(const Target& target, bool has_tallies);
  // Builds, writes and reports one dump; an error was said.
  absl::StatusOr<std::string> Dump(Target& target, heaptap_dump_kind kind);
  absl::StatusOr<std::string> Write(Target& target, heaptap_dump_kind kind, const profile::Profile& profile);
  void AddStackEnds(const profile::Profile& profile);
  // `path`: of the dump; "" if the process chose it.
  void SayLeaks(const Target& target, const profile::LeakSummary& leaks, const std::string& path) const;
  // Reads whole maps once for all of them.
  void SayBooks(std::vector<const Target*> targets) const;
  void SayLosses(const std::vector<std::string>& warnings);
  std::vector<ProcessSummary> MakeSummaries();
  void ReadActive(Target& target);
  void NoteOwner(Target& target);
  ProcessSummary Summarise(const Target& target, const std::vector<bpf::TallyEntry>& tallies) const;
  // Stops recording every target and leaves it as it was found.
  void Abandon();
  void Fail(const absl::Status& status);
  void Close(uint64_t process_id);
  // Deletes the books of targets that were closed before.
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
  // Taken, but later than the events that were taken with them.
  std::vector<bpf::RawStack> raw_stacks_to_come_;
  std::vector<bpf::MappingEvent> mappings_to_come_;
  std::map<uint64_t, Target> targets_;                             // by process id
  std::set<uint64_t> newcomers_;                                   // entered, and have not said their start
  std::set<uint64_t> closed_;                                      // process ids whose books are to be deleted
  std::set<std::tuple<uint32_t, uint64_t, uint32_t>> files_seen_;  // device, inode, generation of files looked at
  size_t files_refused_ = 0;                                       // that have notes
  std::set<ProbeFiles::File> files_kept_;                          // attached to for whoever will map them
  std::map<ProbeFiles::File, elf::Mapping> files_mapped_;          // as somebody had them when it was looked at last
  absl::Time files_looked_at_ = absl::InfinitePast();
  std::set<std::string> losses_said_;
  std::set<pid_t> others_said_;  // other collectors
  Answers answers_;
  profile::StackEnds stack_ends_ = {};  // of last dumps
  uint64_t events_lost_ = 0;            // as of the last FindUnnoticed
  bool recorded_any_ = false;
  std::vector<std::string> without_samples_;  // names of processes that have ended before their first sample
  bool failed_ = false;

  // Of everyone.
  std::optional<TargetStates> states_;
  std::optional<DumpPruner> pruner_;
  std::deque<EndedProcess> ended_;  // the last one first
  std::set<uint64_t> to_close_;     // ended, not closed yet
  uint64_t mappings_lost_ = 0;      // as of the last RepairSpaces
  uint64_t last_saved_ = 0;         // process id
  std::set<uint64_t> left_alone_;   // by a rule: process ids that are to be closed, though the process lives
  absl::Time exits_handled_ = absl::InfinitePast();
  std::optional<std::vector<ProcessSummary>> summaries_;
  std::set<uint64_t> budget_news_;  // process ids whose rates have changed since that was said
  absl::Time budget_said_ = absl::InfinitePast();
  absl::Time active_read_ = absl::InfinitePast();
  exporter::CountsByName events_counted_;
  exporter::CountsByName dumps_counted_;
  uint64_t dump_errors_ = 0;
  absl::Duration dump_time_ = {};
  std::optional<absl::Time> last_dump_ = {};
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_RECORDER_H_
