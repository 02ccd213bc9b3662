// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/top/top_model.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "userspace/base/clock.h"
#include "userspace/base/printable_text.h"
#include "userspace/report/human.h"
#include "userspace/report/text.h"

namespace heaptap::cli {
namespace {

using profile::ProcessSummary;
using report::HumanBytes;

struct Figures {
  const ProcessSummary& summary;
  std::optional<double> resident = {};
};

uint64_t Losses(const ProcessSummary& summary) {
  uint64_t sum = 0;
  for (const auto& [reason, count] : summary.losses) sum += count;
  return sum;
}

// Unknown figures come last.
constexpr double kLeast = -std::numeric_limits<double>::infinity();

double GrowthPerMinute(const Figures& of) { return of.summary.growth_per_minute.value_or(kLeast); }

// The text of a growth, such as "+14.1M~": marked if it may be noise.
std::string GrowthText(const Figures& of) {
  const double growth = GrowthPerMinute(of);
  if (growth == kLeast) return report::kUnknown;
  const double error = of.summary.growth_error.value_or(0);
  const report::Measure measure = {.bytes = growth, .variance = error * error};
  return absl::StrCat(growth > 0 ? "+" : "", HumanBytes(growth), report::IsNoise(measure) ? report::kNoiseMark : "");
}

struct Column {
  const char* name;  // of --sort
  const char* title;
  int width;                           // negative: aligned to the left
  double (*order)(const Figures& of);  // null: by the text
  std::string (*text)(const Figures& of);
};

constexpr int kCommandWidth = 15;  // as comm has it
constexpr Column kColumns[] = {
    {"live", "LIVE", 7, [](const Figures& of) { return of.summary.live_bytes; },
     [](const Figures& of) { return HumanBytes(of.summary.live_bytes); }},
    {"growth", "GROWTH/m", 9, GrowthPerMinute, GrowthText},
    {"rss", "RSS", 7, [](const Figures& of) { return of.resident.value_or(kLeast); },
     [](const Figures& of) { return of.resident.has_value() ? HumanBytes(*of.resident) : report::kUnknown; }},
    {"peak", "PEAK", 7, [](const Figures& of) { return of.summary.peak_bytes; },
     [](const Figures& of) { return HumanBytes(of.summary.peak_bytes); }},
    {"rate", "ALLOC/s", 8, [](const Figures& of) { return of.summary.allocation_rate; },
     [](const Figures& of) { return HumanBytes(of.summary.allocation_rate); }},
    {"lost", "LOST", 5, [](const Figures& of) { return static_cast<double>(Losses(of.summary)); },
     [](const Figures& of) { return absl::StrCat(Losses(of.summary)); }},
    {"pid", "PID", 0, [](const Figures& of) { return -static_cast<double>(of.summary.pid); }, nullptr},
    {"command", "COMMAND", 0, nullptr, nullptr},
};
constexpr size_t kPidWidth = 7;

const char* const kKeys[] = {"Up, Down, PgUp, PgDn   choose a process",
                             "Enter                  its call paths; u reads them again",
                             "Left, Right            sort by another column; r reverses",
                             "/                      show names with these letters",
                             "Space                  pause, go on",
                             "d                      write a dump of the process",
                             "m                      note a text in the history of the process",
                             "h, ?                   this help",
                             "q, Esc                 back, quit"};

// Applies a key to a line of text.
void Edit(int key, std::string& text) {
  if (key == kKeyBackspace) {
    if (!text.empty()) text.pop_back();
  } else if (key < kKeyUp && absl::ascii_isprint(static_cast<unsigned char>(key))) {
    text.push_back(static_cast<char>(key));
  }
}

// One row, without its picture.
std::string RowText(const Figures& of) {
  std::string text = absl::StrFormat("%*d %-*s", static_cast<int>(kPidWidth), of.summary.pid, kCommandWidth,
                                     report::HumanCommand(of.summary.command).substr(0, kCommandWidth));
  for (const Column& column : kColumns) {
    if (column.text != nullptr) absl::StrAppendFormat(&text, " %*s", column.width, column.text(of));
  }
  return text;
}

std::string Mark(const char* title, bool is_sorted, bool is_reversed) {
  return absl::StrCat(title, is_sorted ? (is_reversed ? "^" : "v") : "");
}

std::string TitleText(size_t sorted, bool is_reversed) {
  const auto title = [&](size_t i) { return Mark(kColumns[i].title, i == sorted, is_reversed); };
  const size_t pid = std::size(kColumns) - 2;
  std::string text =
      absl::StrFormat("%*s %-*s", static_cast<int>(kPidWidth), title(pid), kCommandWidth, title(pid + 1));
  for (size_t i = 0; i < pid; i++) absl::StrAppendFormat(&text, " %*s", kColumns[i].width, title(i));
  return text;
}

std::string Cut(absl::string_view text, size_t width) { return std::string(base::FirstCharacters(text, width)); }

}  // namespace

void TopModel::Update(std::vector<TopProcess> processes, base::Instant now) {
  if (is_paused_) return;
  absl::flat_hash_map<uint64_t, Row> rows;
  for (TopProcess& process : processes) {
    const uint64_t id = process.summary.process_id;
    const auto known = rows_.find(id);
    Row row = {.process = {}, .trend = known == rows_.end() ? report::Trend() : std::move(known->second.trend)};
    row.trend.Add(now, process.summary.live_bytes);
    row.process = std::move(process);
    rows.emplace(id, std::move(row));
  }
  rows_ = std::move(rows);
}

void TopModel::ShowPaths(pid_t pid, absl::string_view text) {
  page_ = Page::kPaths;
  shown_pid_ = pid;
  paths_ = absl::StrSplit(absl::StripTrailingAsciiWhitespace(text), '\n');
  first_line_ = 0;
}

bool TopModel::SortBy(absl::string_view column) {
  for (size_t i = 0; i < std::size(kColumns); i++) {
    if (column == kColumns[i].name) {
      column_ = i;
      return true;
    }
  }
  return false;
}

std::vector<const TopModel::Row*> TopModel::Rows() const {
  std::vector<const Row*> rows;
  rows.reserve(rows_.size());
  for (const auto& [id, row] : rows_) {
    if (absl::StrContains(absl::AsciiStrToLower(row.process.summary.command), absl::AsciiStrToLower(filter_))) {
      rows.push_back(&row);
    }
  }
  const Column& column = kColumns[column_];
  std::ranges::sort(rows, [&](const Row* a, const Row* b) {
    if (is_reversed_) std::swap(a, b);
    if (column.order == nullptr && a->process.summary.command != b->process.summary.command) {
      return a->process.summary.command < b->process.summary.command;
    }
    if (column.order != nullptr) {
      const double of_a = column.order({a->process.summary, a->process.resident_bytes});
      const double of_b = column.order({b->process.summary, b->process.resident_bytes});
      if (of_a != of_b) return of_a > of_b;
    }
    return a->process.summary.process_id < b->process.summary.process_id;
  });
  return rows;
}

pid_t TopModel::selected() const {
  if (page_ == Page::kPaths) return shown_pid_;
  const std::vector<const Row*> rows = Rows();
  const auto chosen =
      std::ranges::find_if(rows, [this](const Row* row) { return row->process.summary.process_id == selected_; });
  if (chosen != rows.end()) return (*chosen)->process.summary.pid;
  return rows.empty() ? 0 : rows.front()->process.summary.pid;
}

void TopModel::Move(int64_t by) {
  if (page_ == Page::kPaths) {
    const auto last = static_cast<int64_t>(paths_.size()) - static_cast<int64_t>(body_height_);
    const int64_t line = static_cast<int64_t>(first_line_) + by;
    first_line_ = static_cast<size_t>(std::clamp<int64_t>(line, 0, std::max<int64_t>(last, 0)));
    return;
  }
  const std::vector<const Row*> rows = Rows();
  if (rows.empty()) return;
  const auto chosen =
      std::ranges::find_if(rows, [this](const Row* row) { return row->process.summary.process_id == selected_; });
  const int64_t at = chosen == rows.end() ? 0 : chosen - rows.begin();
  const int64_t next = std::clamp<int64_t>(at + by, 0, std::ssize(rows) - 1);
  selected_ = rows[static_cast<size_t>(next)]->process.summary.process_id;
}

// Moves to the next or the previous column, in the order of the screen.
void TopModel::Step(int by) {
  const auto count = static_cast<int>(std::size(kColumns));
  column_ = static_cast<size_t>((static_cast<int>(column_) + by + count) % count);
}

void TopModel::PressInFilter(int key) {
  if (key == kKeyEnter || key == kKeyEscape) typing_ = Typing::kNothing;
  if (key == kKeyEscape) filter_.clear();
  Edit(key, filter_);
}

TopAction TopModel::PressInMark(int key) {
  Edit(key, mark_);
  if (key != kKeyEnter && key != kKeyEscape) return TopAction::kNone;
  typing_ = Typing::kNothing;
  return key == kKeyEnter && !mark_.empty() ? TopAction::kMark : TopAction::kNone;
}

TopAction TopModel::Leave() {
  if (page_ == Page::kProcesses) return TopAction::kQuit;
  page_ = Page::kProcesses;
  return TopAction::kNone;
}

TopAction TopModel::Press(int key) {
  message_.clear();
  if (typing_ == Typing::kMark) return PressInMark(key);
  if (typing_ == Typing::kFilter) {
    PressInFilter(key);
    return TopAction::kNone;
  }
  const auto page = static_cast<int64_t>(body_height_);
  constexpr int64_t kFar = 1 << 30;
  switch (key) {
    case 'q':
    case kKeyEscape:
      return Leave();
    case 'h':
    case '?':
      page_ = page_ == Page::kHelp ? Page::kProcesses : Page::kHelp;
      return TopAction::kNone;
    case kKeyUp:
    case kKeyDown:
      Move(key == kKeyUp ? -1 : 1);
      return TopAction::kNone;
    case kKeyPageUp:
    case kKeyPageDown:
      Move(key == kKeyPageUp ? -page : page);
      return TopAction::kNone;
    case kKeyHome:
    case kKeyEnd:
      Move(key == kKeyHome ? -kFar : kFar);
      return TopAction::kNone;
    case kKeyLeft:
    case kKeyRight:
      Step(key == kKeyLeft ? -1 : 1);
      return TopAction::kNone;
    case 'r':
      is_reversed_ = !is_reversed_;
      return TopAction::kNone;
    case ' ':
      is_paused_ = !is_paused_;
      return TopAction::kNone;
    case '/':
      if (page_ == Page::kProcesses) typing_ = Typing::kFilter;
      return TopAction::kNone;
    case 'm':
      if (selected() == 0 || page_ == Page::kHelp) return TopAction::kNone;
      typing_ = Typing::kMark;
      mark_.clear();
      return TopAction::kNone;
    case kKeyEnter:
      return page_ == Page::kProcesses && selected() != 0 ? TopAction::kShowPaths : TopAction::kNone;
    case 'u':
      return page_ == Page::kPaths ? TopAction::kShowPaths : TopAction::kNone;
    case 'd':
      return page_ != Page::kHelp && selected() != 0 ? TopAction::kDump : TopAction::kNone;
    default:
      return TopAction::kNone;
  }
}

std::vector<TopLine> TopModel::Body(size_t width, size_t height, bool is_utf8) {
  std::vector<TopLine> lines;
  lines.reserve(height);
  if (page_ == Page::kHelp) {
    for (const char* line : kKeys) lines.push_back({line});
    return lines;
  }
  if (page_ == Page::kPaths) {
    first_line_ = std::min(first_line_, paths_.size() > height ? paths_.size() - height : 0);
    for (size_t i = first_line_; i < paths_.size() && lines.size() < height; i++) lines.push_back({paths_[i]});
    return lines;
  }
  const std::vector<const Row*> rows = Rows();
  const pid_t chosen = selected();
  size_t at = 0;
  while (at < rows.size() && rows[at]->process.summary.pid != chosen) at++;
  // The chosen row is on the screen.
  if (at < first_row_) first_row_ = at;
  if (at >= first_row_ + height) first_row_ = at - height + 1;
  first_row_ = std::min(first_row_, rows.size() > height ? rows.size() - height : 0);
  for (size_t i = first_row_; i < rows.size() && lines.size() < height; i++) {
    const Row& row = *rows[i];
    std::string text = Cut(RowText({row.process.summary, row.process.resident_bytes}), width);
    // A picture takes a column for each value.
    if (text.size() + 2 < width) absl::StrAppend(&text, "  ", row.trend.Picture(width - text.size() - 2, is_utf8));
    lines.push_back({std::move(text), i == at ? TopLine::Style::kSelected : TopLine::Style::kPlain});
  }
  if (rows.empty()) lines.push_back({filter_.empty() ? "no process is recorded" : "no process has such a name"});
  return lines;
}

std::string TopModel::Footer() const {
  if (typing_ == Typing::kFilter) return absl::StrCat("names with: ", filter_);
  if (typing_ == Typing::kMark) return absl::StrCat("mark process ", selected(), " with: ", mark_);
  if (!message_.empty()) return message_;
  std::string text = page_ == Page::kPaths  ? "u read again  d dump  m mark  q back"
                     : page_ == Page::kHelp ? "q back"
                     : is_paused_           ? "PAUSED  Space goes on"
                                            : "Enter paths  / filter  Space pause  d dump  m mark  h help  q quit";
  if (!filter_.empty() && page_ == Page::kProcesses) absl::StrAppend(&text, "  [", filter_, "]");
  return text;
}

std::vector<TopLine> TopModel::Lines(size_t width, size_t height, bool is_utf8) {
  std::vector<TopLine> lines;
  if (height == 0) return lines;
  double live = 0;
  double growth_seconds = 0;  // the longest period of a growth
  for (const auto& [id, row] : rows_) {
    live += row.process.summary.live_bytes;
    growth_seconds = std::max(growth_seconds, row.process.summary.growth_seconds.value_or(0));
  }
  const bool is_list = page_ == Page::kProcesses;
  const std::string growth =
      growth_seconds > 0 ? absl::StrCat("; growth of the last ", report::HumanDuration(absl::Seconds(growth_seconds)),
                                        ", ~ may be noise")
                         : "";
  lines.reserve(height);
  lines.push_back({page_ == Page::kHelp ? "heaptap top: keys"
                   : is_list
                       ? absl::StrCat("heaptap top: ", rows_.size(), rows_.size() == 1 ? " process, " : " processes, ",
                                      HumanBytes(live), " live", growth)
                       : absl::StrCat("heaptap top: process ", shown_pid_)});
  if (is_list) lines.push_back({TitleText(column_, is_reversed_), TopLine::Style::kTitle});
  body_height_ = height > lines.size() + 1 ? height - lines.size() - 1 : 1;
  for (TopLine& line : Body(width, body_height_, is_utf8)) lines.push_back(std::move(line));
  if (lines.size() > height - 1) lines.resize(height - 1);
  while (lines.size() + 1 < height) lines.push_back({""});
  lines.push_back({Footer(), TopLine::Style::kMessage});
  for (TopLine& line : lines) line.text = Cut(line.text, width);
  return lines;
}

std::string TopModel::Table() const {
  std::string text = absl::StrCat(TitleText(column_, is_reversed_), "\n");
  for (const Row* row : Rows()) {
    absl::StrAppend(&text, RowText({row->process.summary, row->process.resident_bytes}), "\n");
  }
  return text;
}

}  // namespace heaptap::cli
