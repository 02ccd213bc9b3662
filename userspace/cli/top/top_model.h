// SPDX-License-Identifier: Apache-2.0
//
// What `heaptap top` shows, and what its keys do, without a terminal and without a daemon. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_TOP_TOP_MODEL_H_
#define HEAPTAP_USERSPACE_CLI_TOP_TOP_MODEL_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/cli/ask/documents.h"
#include "userspace/profile/figures.h"
#include "userspace/report/trend.h"

namespace heaptap::cli {

// Keys besides letters. A letter stands for itself.
enum TopKey : int { kKeyUp = 1000, kKeyDown, kKeyLeft, kKeyRight, kKeyPageUp, kKeyPageDown, kKeyHome, kKeyEnd };
inline constexpr int kKeyEnter = '\n';
inline constexpr int kKeyEscape = 27;
inline constexpr int kKeyBackspace = 127;

// What the caller has to do after a key.
enum class TopAction { kNone, kQuit, kShowPaths, kDump, kMark };

struct TopLine {
  enum class Style { kPlain, kTitle, kSelected, kMessage };
  std::string text;  // printable; UTF-8 only in pictures at its end
  Style style = Style::kPlain;
};

struct TopProcess {
  profile::ProcessSummary summary;
  std::optional<double> resident_bytes = {};  // none: unknown
};

class TopModel {
 public:
  // The processes as the daemon lists them now. While the model is paused, the rows do not change.
  void Update(std::vector<TopProcess> processes, base::Instant now);

  // Shows the call paths of one process: `text` in lines.
  void ShowPaths(pid_t pid, absl::string_view text);
  // A line at the bottom, until the next key.
  void Say(std::string message) { message_ = std::move(message); }

  TopAction Press(int key);
  // The text of kMark.
  const std::string& mark() const { return mark_; }
  // The process that the action is for; 0: none.
  pid_t selected() const;
  // The screen. At most `height` lines of at most `width` columns.
  std::vector<TopLine> Lines(size_t width, size_t height, bool is_utf8);

  // The table without a screen.
  std::string Table() const;
  // Chooses the order of the rows by the name of a column; false: there is none of this name.
  bool SortBy(absl::string_view column);

 private:
  enum class Page { kProcesses, kPaths, kHelp };
  struct Row {
    TopProcess process;
    report::Trend trend;
  };

  std::vector<const Row*> Rows() const;
  void PressInFilter(int key);
  TopAction PressInMark(int key);
  TopAction Leave();
  void Move(int64_t by);
  void Step(int by);
  std::vector<TopLine> Body(size_t width, size_t height, bool is_utf8);
  std::string Footer() const;

  absl::flat_hash_map<uint64_t, Row> rows_;  // by process id
  Page page_ = Page::kProcesses;
  size_t column_ = 0;  // by which the rows are sorted
  bool is_reversed_ = false;
  bool is_paused_ = false;
  enum class Typing { kNothing, kFilter, kMark };
  Typing typing_ = Typing::kNothing;
  std::string mark_;
  std::string filter_;
  uint64_t selected_ = 0;   // process id
  size_t first_row_ = 0;    // on the screen
  size_t body_height_ = 1;  // of the last screen
  pid_t shown_pid_ = 0;     // of the page of call paths
  std::vector<std::string> paths_;
  size_t first_line_ = 0;
  std::string message_;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_TOP_TOP_MODEL_H_
