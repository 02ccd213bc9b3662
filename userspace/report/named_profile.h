// SPDX-License-Identifier: Apache-2.0
//
// A profile with names, which the views of `heaptap report` sum and show.
//
// Texts and frames are stored once and have numbers, because a hundred thousand call paths repeat a few thousand of
// them. Immutable after construction, so thread-compatible.
#ifndef HEAPTAP_USERSPACE_REPORT_NAMED_PROFILE_H_
#define HEAPTAP_USERSPACE_REPORT_NAMED_PROFILE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/source_frames.h"
#include "userspace/report/measure.h"

namespace heaptap::report {

// The number of a text. 0: the empty text, which means unknown.
using TextId = uint32_t;
// The number of a frame.
using FrameId = uint32_t;

// A function in a call path, or a function that the compiler has inlined there.
struct NamedFrame {
  TextId function = 0;  // printable; never unknown (profile/frame_names.h)
  TextId file = 0;      // printable
  uint32_t line = 0;    // of the call; 0: unknown
  TextId library = 0;   // the path of the mapped file, printable
  bool is_inline = false;
  bool has_symbol = false;  // else the name is "<file>+0x<offset>" or an address

  friend bool operator==(const NamedFrame&, const NamedFrame&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const NamedFrame& frame) {
    return H::combine(std::move(hash), frame.function, frame.file, frame.line, frame.library, frame.is_inline);
  }
};

// A call path.
struct Path {
  std::vector<FrameId> frames = {};  // innermost first, with inlined functions; empty: unknown
  bool truncated = false;            // outer frames are missing
  Measures measures = {};
};

// The kind of frame that is added at the outer end of paths.
enum class Roots {
  kNone,
  kThreads,  // the thread that allocated: a path for each thread of a context
  kSizes,    // the size of the blocks, in profiles with blocks: live memory only
  kAges,     // the age of the blocks, like kSizes
};

// The outer end of a path whose outer frames are missing.
enum class CutPaths {
  kBare,    // the last frame that is known
  kMarked,  // profile::kOuterFramesMissing, for views that show the outermost frame as a root
};

class NamedProfile {
 public:
  // The names of all frames of the profile. `find` is asked once for each address. `measures`: those of each context,
  // for a difference (changes.h); empty: the profile's own. `roots` stand outside of the mark of a cut path. REQUIRES:
  // `measures` is empty, or `roots` is kNone.
  NamedProfile(const profile::Profile& profile, const profile::FindSourceFrames& find,
               absl::Span<const Measures> measures = {}, Roots roots = Roots::kNone,
               CutPaths cut_paths = CutPaths::kBare);

  absl::Span<const Path> paths() const { return paths_; }
  const NamedFrame& frame(FrameId id) const { return frames_[id]; }
  absl::string_view text(TextId id) const { return texts_[id]; }
  // The sums over all paths.
  const Measures& total() const { return total_; }

 private:
  void AddPathsOfThreads(const profile::Profile& profile, const profile::Context& context, const Path& path);
  void AddPathsOfBlocks(const profile::Context& context, const Path& path, Roots roots);
  void AddPathBelow(const Path& path, std::string root, const Measures& measures);
  TextId AddText(std::string text);
  FrameId AddFrame(const NamedFrame& frame);
  void AppendFrames(const profile::Profile& profile, const profile::FindSourceFrames& find, uint64_t address,
                    std::vector<FrameId>& frames);

  std::vector<std::string> texts_;
  absl::flat_hash_map<std::string, TextId> text_ids_;
  std::vector<NamedFrame> frames_;
  absl::flat_hash_map<NamedFrame, FrameId> frame_ids_;
  absl::flat_hash_map<uint64_t, std::vector<FrameId>> at_address_;
  std::vector<Path> paths_;
  Measures total_;
};

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_NAMED_PROFILE_H_
