// SPDX-License-Identifier: Apache-2.0
//
// One recording: the books in the kernel, the processes in it, and the dumps that come of it.
//
// A TARGET is one recorded process image: it begins with Record*, a fork or an exec, and ends with exec or exit. At its
// exit the final dump is written, however it ended; an exec drops the books, as its memory is gone.
//
// Not thread safe. The owner polls fds(), or waits for kPumpInterval at most, and calls Pump.
#ifndef HEAPTAP_USERSPACE_SERVICE_RECORDER_H_
#define HEAPTAP_USERSPACE_SERVICE_RECORDER_H_

#include <sys/types.h>

#include <cstdint>
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
#include "userspace/profile/frames.h"
#include "userspace/profile/profile.h"
#include "userspace/service/address_spaces.h"
#include "userspace/service/answers.h"
#include "userspace/service/dump_folder.h"
#include "userspace/service/probe_files.h"
#include "userspace/service/process_handle.h"
#include "userspace/service/profile_builder.h"
#include "userspace/service/unwind_tables.h"

namespace heaptap::service {

// A writer of dumps (userspace/export/).
using DumpFormat = std::string (*)(const profile::Profile&);

struct RecorderOptions {
  std::string prefix = "jeprof";           // of the dumps that the collector decides on
  bool prefix_given = false;               // the prefix is not the default
  DumpFormat format = exporter::HeapV2;    // of those dumps; what a process asks for is always as jemalloc's
  std::optional<uint32_t> lg_sample = {};  // wins over the process's own rate
  bpf::Triggers triggers = {};
  bpf::MapSizes map_sizes = {};
  bool show_books = false;  // a line of JSON when a target's books close
  // Record children too, and attach for every process that maps an allocator's file. Else one process only.
  bool follow = false;
};

class Recorder {
 public:
  // How long mapped files may wait to be looked at.
  static constexpr absl::Duration kPumpInterval = absl::Milliseconds(250);

  // Loads the programs and opens the folder for dumps. Records nothing yet.
  static absl::StatusOr<std::unique_ptr<Recorder>> Start(const RecorderOptions& options);

  // Records a child of ours that will exec.
  absl::Status RecordChild(pid_t pid);
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

  // How the stacks of the samples in the last dumps of ended or finished targets ended, a line.
  std::string StackSummary() const;

  bool IsRecorded(pid_t pid) const;
  // Whether any process so far had a sampled allocator.
  bool recorded_any() const { return recorded_any_; }
  // Whether something that was asked for could not be done (it was said when it happened).
  bool failed() const { return failed_; }

 private:
  struct Target {
    uint64_t process_id = 0;
    pid_t pid = 0;
    std::string name;
    bool started = false;    // its allocator has shown itself
    bool own_final = false;  // it asked for its final dump itself, and none has failed
    uint64_t control_address = 0;
    profile::AddressRange allocator;
    uint32_t lg_sample = HEAPTAP_DEFAULT_LG_SAMPLE;
    uint32_t max_frames = UINT32_MAX;  // that the process wants in a context
    bool raw = false;                  // it wants dumps of its own uncorrected
    DumpSequence sequence;
  };

  Recorder(const RecorderOptions& options, DumpFolder folder, std::unique_ptr<bpf::Books> books,
           std::unique_ptr<bpf::MappingEvents> mapping_events);

  void Handle(const heaptap_event& event);
  void HandleStart(Target& target, const heaptap_event& event);
  void HandleDump(Target& target, const heaptap_event& event);
  void HandleReset(const heaptap_event& event);
  void RefuseDump(const heaptap_event& event);
  void RefuseStranger(const ProcessHandle& stranger, const std::vector<elf::Mapping>& mappings, uint64_t address) const;
  void HandleExit(Target& target);
  // Makes up for lost events: finds the processes that began or ended unnoticed.
  void FindUnnoticed();
  void HandleMapping(const bpf::MappingEvent& event);
  // `news`: mapping events that have not been handled yet.
  void HandleTableWanted(const heaptap_event& event, const std::vector<bpf::MappingEvent>& news);
  // Finishes a stack that the kernel could not.
  void Finish(const bpf::RawStack& raw);

  Target& AddTarget(uint64_t process_id, pid_t pid);
  Target* FindTarget(uint64_t process_id);
  // What is known of a process's allocator, for one with the same memory.
  static void TakeOver(const Target& from, Target& to);
  void UseControl(Target& target, const heaptap_control& control, uint64_t address);
  // A handle on the process behind an event. NotFound if it has ended meanwhile.
  absl::StatusOr<ProcessHandle> Open(pid_t pid, uint64_t process_id) const;

  ProfileSubject Subject(const Target& target) const;
  absl::StatusOr<profile::Profile> Build(const Target& target) const;
  // What a process asked for, as the contents of its file.
  struct Contents {
    std::string text;
    profile::LeakSummary leaks;
    std::vector<std::string> warnings;
  };
  absl::StatusOr<Contents> MakeContents(const Target& target, const heaptap_dump_request& request) const;
  // Whether there is anything to say about a target: it runs a sampled allocator.
  bool HasProfile(const Target& target);
  // Builds, writes and reports one dump; null if that failed.
  std::optional<profile::Profile> Dump(Target& target, heaptap_dump_kind kind, std::string* path);
  void AddStackEnds(const profile::Profile& profile);
  void SayLeaks(const Target& target, const profile::LeakSummary& leaks, const std::string& path) const;
  void SayBooks(const Target& target) const;
  void SayLosses(const std::vector<std::string>& warnings);
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
  std::unique_ptr<bpf::Books> books_;
  std::unique_ptr<bpf::MappingEvents> mapping_events_;
  ProbeFiles probe_files_;
  UnwindTables tables_;
  AddressSpaces spaces_;
  // Taken, but later than the events that were taken with them.
  std::vector<bpf::RawStack> raw_stacks_to_come_;
  std::vector<bpf::MappingEvent> mappings_to_come_;
  std::map<uint64_t, Target> targets_;                             // by process id
  std::set<uint64_t> closed_;                                      // process ids whose books are to be deleted
  std::set<std::tuple<uint32_t, uint64_t, uint32_t>> files_seen_;  // device, inode, generation of files looked at
  std::set<std::string> losses_said_;
  Answers answers_;
  profile::StackEnds stack_ends_ = {};  // of last dumps
  uint64_t events_lost_ = 0;            // as of the last FindUnnoticed
  bool recorded_any_ = false;
  bool failed_ = false;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_RECORDER_H_
