// SPDX-License-Identifier: Apache-2.0
//
// The memory that all processes hold at one moment, by call path, for the history. Bytes and objects are estimates.
#ifndef HEAPTAP_USERSPACE_PROFILE_SURVEY_H_
#define HEAPTAP_USERSPACE_PROFILE_SURVEY_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "userspace/elf/mappings.h"
#include "userspace/profile/figures.h"

namespace heaptap::profile {

// The live part of one stack, of all threads.
struct StackShare {
  uint64_t stack_id = 0;
  double live_bytes = 0;
  double live_objects = 0;
  uint64_t samples = 0;
  uint64_t allocated_samples = 0;  // live or freed
  double live_variance = 0;        // of live_bytes
};

struct SurveyedProcess {
  ProcessRef ref = {};
  std::string command = {};
  std::optional<uid_t> owner = {};
  absl::Time since = {};
  uint32_t lg_sample = 0;
  // Changes whenever the process allocates or frees a sample; at most some seconds old.
  uint64_t activity = 0;
  std::optional<int64_t> resident_bytes = {};
  std::optional<int64_t> limit_bytes = {};  // of its memory control group
  uint64_t lost = 0;                        // events

  // For processes that the asker does not know yet (Survey::known). None: not read this time; ask again.
  std::optional<std::vector<std::string>> control_groups = {};
  // The name of the script that an interpreter runs (process/script_name.h); "": the process has none, or its name is
  // not known.
  std::string script = {};

  // For processes whose activity differs from the one that the asker knows, if paths are asked for.
  bool is_changed = false;
  double allocated_bytes = 0;  // since `since`
  std::vector<StackShare> stacks = {};
};

struct Survey {
  std::vector<SurveyedProcess> processes = {};
  // Dumps that were written into the collector's folder since the last survey; the latest ones, if there were many.
  struct Dump {
    ProcessRef process = {};
    absl::Time time = {};
    std::string path = {};
  };
  std::vector<Dump> dumps = {};
};

// The activity of each known process, by process id.
using Activities = std::map<uint64_t, uint64_t>;

// A file with code. `version`: equal for equal contents; "": it could not be looked at.
struct StackFile {
  elf::Mapping mapping = {};
  std::string version = {};
};

// The frames of some stacks of one process.
struct SurveyedStacks {
  static constexpr size_t kNoFile = static_cast<size_t>(-1);
  struct Frame {
    size_t file = kNoFile;
    uint64_t offset = 0;  // in the file, inside the call; without a file: an address
  };
  struct Stack {
    std::vector<Frame> frames = {};  // innermost first, without those of the allocator
    bool is_finished = true;         // false: the outer frames will be known later (tables/raw_stacks.h)
  };
  std::vector<Stack> stacks = {};
  std::vector<StackFile> files = {};
  std::string executable = {};
};

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_SURVEY_H_
