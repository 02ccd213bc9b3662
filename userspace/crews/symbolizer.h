// SPDX-License-Identifier: Apache-2.0
//
// Functions (including inlined ones), files and lines for addresses of a recorded process.
//
// Names come from the .symtab of the mapped file, the .symtab of its debug file, and the .dynsym and the mini debug
// information of the mapped file; inlined functions, files and lines come from the debug information of the mapped
// file, else of its debug file. Debug files belong to root (worker.cc), so that the process cannot have written them,
// or the caller of this class fetches them.
//
// The mapped file may be hostile. A crew reads it (crew.h). A file that crashes, stalls or bloats its reader loses only
// its own names: what was found before counts, and the stage that failed is not tried again with this file.
//
// Not thread-safe.
#ifndef HEAPTAP_USERSPACE_CREWS_SYMBOLIZER_H_
#define HEAPTAP_USERSPACE_CREWS_SYMBOLIZER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/retries.h"
#include "userspace/crews/crews.h"
#include "userspace/elf/mappings.h"
#include "userspace/symbolize/answer.h"
#include "userspace/symbolize/debug_files.h"
#include "userspace/symbolize/frame.h"
#include "userspace/worker/reader_jobs.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

// The most addresses that one job looks up.
inline constexpr size_t kMaxBatch = 1 << 14;

class Symbolizer {
 public:
  struct Options {
    // Bytes of memory for answers. The least recently used file is dropped first; a file with more answers is not kept.
    uint64_t cache_bytes = 64 << 20;
    std::string debug_root = "/usr/lib/debug";
    Limits limits = {};  // of one job
    // Called for a file without a debug file here: fetches the debug file with this build-id (bytes), which may be
    // hostile, for the file that was mapped as `path`. Invalid: there is none. Null: nothing is fetched.
    std::function<base::FileDescriptor(const std::string& build_id, const std::string& path)> fetch = {};
    // Called before `fetch`, for a file with a .gnu_debuglink: opens what may be its debug file at the places of that
    // machine. Each is compared with `links`, and may be hostile; `links` may be hostile too. Null: there are none.
    std::function<std::vector<base::FileDescriptor>(const symbolize::DebugLinks& links, const std::string& path)>
        open_linked = {};
    // Called for a file whose debug information names another one that it shares with others (.gnu_debugaltlink): opens
    // it at its place of that machine. The file is used if it has the build-id that `links` wants. The file may be
    // hostile, and so may `links`. Invalid: there is none. Null: only files below debug_root are used.
    std::function<base::FileDescriptor(const symbolize::DebugLinks& links, const std::string& path)> open_shared = {};
  };

  // `crews` must outlive this object.
  Symbolizer(Crews& crews, Options options);

  // The frames of each of `file_offsets`, in any order, in a file of `user`. The path in the file's mapping also gives
  // the folder of .gnu_debuglink. If the mapping has a build-id and the file has another one, there are no frames. Each
  // offset lies inside an instruction: a return address minus 1. One call for many offsets is much cheaper than many
  // calls. Frames are empty where nothing was found: not an ELF file, no symbols, not code, an unreadable file.
  std::vector<symbolize::Frames> Symbolize(uid_t user, const JobFile& job_file,
                                           absl::Span<const uint64_t> file_offsets);

  // What was not read of the file of the last Symbolize.
  symbolize::Gap gap() const { return gap_; }
  // Jobs that looked up addresses, so far.
  uint64_t jobs() const { return jobs_; }
  // Approximate bytes of memory in use.
  uint64_t cache_bytes() const { return cached_bytes_; }

 private:
  struct File {
    absl::flat_hash_map<uint64_t, symbolize::Frames> by_offset;
    symbolize::Names names;
    symbolize::Stage last_stage = symbolize::Stage::kDwarf;  // the last stage that has not failed lately
    base::Retry retry;                                       // of the stages that have failed
    symbolize::Gap gap = symbolize::Gap::kNone;
    uint64_t frames_bytes = 0;
    uint64_t bytes = 0;  // its part of cached_bytes_
    std::list<FileVersion>::iterator used;
    // Where its debug files may be: `debug_paths` DebugPaths, then SharedPaths. None: not found out yet.
    std::optional<std::vector<std::string>> paths;
    size_t debug_paths = 0;
    base::FileDescriptor fetched_debug;
    base::FileDescriptor fetched_shared;
  };

  // What one call is about.
  struct Call {
    uid_t user;
    const JobFile& file;
    const symbolize::DebugLinks& links;
  };
  void FindDebugPaths(File& file, const Call& call);
  // What the debug file says of itself. NotFound: there is none. `fetched`: a file to look at instead of file.paths.
  absl::StatusOr<symbolize::DebugLinks> AskForDebugFile(const File& file, const Call& call, int fetched);
  absl::StatusOr<symbolize::DebugLinks> FindLinked(File& file, const Call& call);
  absl::StatusOr<symbolize::DebugLinks> FetchDebugFile(File& file, const Call& call);
  void Ask(File& file, const Call& call, absl::Span<const uint64_t> offsets);
  void MakeRoom();

  Crews& crews_;
  const Options options_;
  std::map<FileVersion, File> files_;
  std::list<FileVersion> used_;  // most recently used first
  uint64_t cached_bytes_ = 0;
  uint64_t jobs_ = 0;
  symbolize::Gap gap_ = symbolize::Gap::kNone;
};

// The file offset of an address in a mapping.
inline uint64_t FileOffset(const elf::Mapping& mapping, uint64_t address) {
  return address - mapping.start + mapping.file_offset;
}

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_CREWS_SYMBOLIZER_H_
