// SPDX-License-Identifier: Apache-2.0
//
// The options of a recording.
#ifndef HEAPTAP_USERSPACE_DUMPS_RECORDER_OPTIONS_H_
#define HEAPTAP_USERSPACE_DUMPS_RECORDER_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "userspace/base/background.h"
#include "userspace/bpf/books.h"
#include "userspace/crews/hands.h"
#include "userspace/dumps/retention.h"
#include "userspace/formats/heap_v2.h"
#include "userspace/profile/profile.h"
#include "userspace/targets/policy.h"
#include "userspace/targets/rules.h"

namespace heaptap::recording {

// A writer of dumps (userspace/formats/).
using DumpFormat = std::string (*)(const profile::Profile&);

// The options of a system-wide recording.
struct SystemWide {
  std::optional<Rules> rules = {};          // none: RecorderOptions::policy for all processes
  std::string state_folder = {};            // for dumps, and for the state that the next recorder needs
  std::string pin_folder = {};              // in a BPF file system; "": the recording ends with the recorder
  std::vector<std::string> libraries = {};  // allocators to attach to before any process maps them
  // Libraries that every process maps: attached to in the same way, if they are there and are allocators.
  std::vector<std::string> preloaded = {};
  // Folders of control groups: processes outside of them are not recorded; empty: all processes may be recorded.
  std::vector<std::string> groups = {};
  // Whether `libraries` are the only files to attach to.
  bool only_libraries = false;
  Retention retention = {};
  std::string end_command = "heaptap daemon --end";  // ends this recording; for messages
  bool shall_end = false;                            // the recorder takes over an existing recording only to end it
  double budget = 0;                                 // CPU time of all probes, as a share of one core; 0: no bound
};

struct RecorderOptions {
  std::string prefix = "jeprof";        // of the collector's own dumps; unused if system-wide
  bool prefix_given = false;            // the prefix is not the default
  DumpFormat format = formats::HeapV2;  // of the collector's own dumps; a process always gets jemalloc's format
  Policy policy = {.dump_at_exit = DumpAtExit::kAlways};
  bpf::MapSizes map_sizes = {};
  bool show_books = false;  // print a line of JSON when a target's books close
  // Write dumps only of processes whose comm matches a pattern (fnmatch(3)); empty: of all.
  std::vector<std::string> only = {};
  // Let processes count samples at known stacks themselves (contract.h, AREAS), where every allocation is a sample.
  bool counts = false;
  // Record children too, and attach for every process that maps an allocator's file. Otherwise one process only.
  bool follow = false;
  std::optional<SystemWide> system_wide = {};  // system-wide; requires follow
  // Where a system-wide recording does long work. Other recordings have nothing else to do meanwhile.
  base::Background::Place background = base::Background::Place::kOwnThread;
  // How long the hands of a system-wide recording may take.
  worker::HandsBounds hands = worker::Hands::kDefault;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_DUMPS_RECORDER_OPTIONS_H_
