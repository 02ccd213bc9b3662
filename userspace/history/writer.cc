// SPDX-License-Identifier: Apache-2.0
#include "userspace/history/writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/history/schema.h"

namespace heaptap::history {
namespace {

constexpr char kAddTick[] = "INSERT OR IGNORE INTO ticks VALUES(?, ?)";
constexpr char kAddPoint[] = "INSERT OR REPLACE INTO points VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
constexpr char kFindPath[] = "SELECT id FROM paths WHERE frames = ?";
constexpr char kFindNumber[] = "SELECT number FROM process_paths WHERE process = ? AND path = ?";
constexpr char kAddFile[] =
    "INSERT INTO files(id, path, version) VALUES(1 + max(?, (SELECT coalesce(max(id), 0) FROM files)), ?, ?)";
constexpr char kAddFrame[] =
    "INSERT INTO frames(id, file, offset) VALUES(1 + max(?, (SELECT coalesce(max(id), 0) FROM frames)), ?, ?)";
constexpr char kFindFrame[] = "SELECT id, named FROM frames WHERE file = ? AND offset = ?";

constexpr const char* kNoteLast[kLevels] = {"UPDATE processes SET last0 = ? WHERE id = ?",
                                            "UPDATE processes SET last1 = ? WHERE id = ?",
                                            "UPDATE processes SET last2 = ? WHERE id = ?"};

// Two daemons know the start of a process by different clocks. Process ids and PIDs are not reused within this time.
constexpr absl::Duration kSameStart = absl::Minutes(1);

// A frame without a name is looked up again when a process of a later recording has it.
constexpr int kNotAskedFor = 0;
constexpr int kAskedFor = 1;

absl::Status InsertMark(Database& database, absl::Time time, std::optional<int64_t> process, absl::string_view kind,
                        absl::string_view text) {
  if (process.has_value()) {
    Statement count = database.Prepare("SELECT count(*) FROM marks WHERE process = ?");
    if (!count.Bind(*process).Step()) return count.status();
    if (count.Integer(0) >= kMaxMarks) {
      return absl::FailedPreconditionError(absl::StrCat("the process has ", kMaxMarks, " marks already"));
    }
  }
  Statement add = database.Prepare("INSERT INTO marks(time, process, kind, text) VALUES(?, ?, ?, ?)");
  return add.Bind(absl::ToUnixMillis(time)).Bind(process).Bind(kind).Bind(text).Run();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Writer>> Writer::Open(const std::string& path, uint64_t most_bytes) {
  absl::StatusOr<std::unique_ptr<Database>> database = OpenForWriting(path, most_bytes);
  if (!database.ok()) return database.status();
  return std::unique_ptr<Writer>(new Writer(*std::move(database), path, most_bytes));
}

Writer::Writer(std::unique_ptr<Database> database, std::string path, uint64_t most_bytes)
    : database_(std::move(database)),
      path_(std::move(path)),
      most_bytes_(most_bytes),
      add_tick_(database_->Prepare(kAddTick)),
      add_point_(database_->Prepare(kAddPoint)),
      find_path_(database_->Prepare(kFindPath)),
      find_number_(database_->Prepare(kFindNumber)),
      find_frame_(database_->Prepare(kFindFrame)) {}

absl::Status Writer::Begin() {
  if (LogBytes(path_) > MostLogBytes(most_bytes_)) {
    database_->Execute("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
    if (LogBytes(path_) > MostLogBytes(most_bytes_)) {
      return absl::UnavailableError("another program has kept the database open in one transaction for too long");
    }
  }
  return database_->Execute("BEGIN IMMEDIATE");
}

absl::Status Writer::Commit() { return database_->Execute("COMMIT"); }

void Writer::Rollback() {
  // Some errors have rolled the transaction back already.
  database_->Execute("ROLLBACK").IgnoreError();
  for (auto& last : last_) last.clear();
  begun_ = {};
  path_counts_.clear();
  asked_.clear();
}

absl::StatusOr<int64_t> Writer::AddProcess(const ProcessFacts& facts) {
  const int64_t started = absl::ToUnixMillis(facts.started);
  Statement find = database_->Prepare(
      "SELECT id FROM processes WHERE process_id = ? AND pid = ? AND abs(started - ?) < ? ORDER BY id LIMIT 1");
  find.Bind(static_cast<int64_t>(facts.process_id)).Bind(int64_t{facts.pid}).Bind(started);
  if (find.Bind(absl::ToInt64Milliseconds(kSameStart)).Step()) {
    const int64_t id = find.Integer(0);
    Statement again = database_->Prepare("UPDATE processes SET ended = NULL, how = NULL WHERE id = ?");
    if (absl::Status status = again.Bind(id).Run(); !status.ok()) return status;
    return id;
  }
  if (!find.status().ok()) return find.status();
  Statement add = database_->Prepare(
      "INSERT INTO processes(service, command, pid, process_id, owner, started) VALUES(?, ?, ?, ?, ?, ?)");
  add.Bind(absl::string_view(facts.service)).Bind(absl::string_view(facts.command)).Bind(int64_t{facts.pid});
  add.Bind(static_cast<int64_t>(facts.process_id));
  add.Bind(facts.owner.has_value() ? std::optional<int64_t>(*facts.owner) : std::nullopt).Bind(started);
  if (absl::Status status = add.Run(); !status.ok()) return status;
  return database_->last_id();
}

absl::Status Writer::EndProcess(int64_t process, absl::Time time, absl::string_view how) {
  for (auto& last : last_) last.erase(process);
  path_counts_.erase(process);
  // A point can be taken after the end of the process, before the end is known.
  Statement end =
      database_->Prepare("UPDATE processes SET ended = max(?, coalesce(last0, 0)), how = nullif(?, '') WHERE id = ?");
  return end.Bind(absl::ToUnixMillis(time)).Bind(how).Bind(process).Run();
}

absl::Status Writer::EndOthers(absl::Span<const int64_t> running, absl::Time time) {
  std::vector<int64_t> gone;
  Statement find = database_->Prepare("SELECT id FROM processes WHERE ended IS NULL");
  while (find.Step()) {
    const int64_t id = find.Integer(0);
    if (std::find(running.begin(), running.end(), id) == running.end()) gone.push_back(id);
  }
  if (!find.status().ok()) return find.status();
  for (const int64_t id : gone) {
    // The time of its end is unknown, so its last point counts as the end.
    Statement end = database_->Prepare("UPDATE processes SET ended = coalesce(last0, last1, last2, ?) WHERE id = ?");
    if (absl::Status status = end.Bind(absl::ToUnixMillis(time)).Bind(id).Run(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Writer::AddFile(const CodeFile& file) {
  Statement find = database_->Prepare("SELECT id FROM files WHERE path = ? AND version = ?");
  if (find.Bind(absl::string_view(file.path)).BindBlob(file.version).Step()) return find.Integer(0);
  if (!find.status().ok()) return find.status();
  Statement add = database_->Prepare(kAddFile);
  add.Bind(last_file_).Bind(absl::string_view(file.path)).BindBlob(file.version);
  if (absl::Status status = add.Run(); !status.ok()) return status;
  return last_file_ = database_->last_id();
}

absl::StatusOr<int64_t> Writer::FrameNumber(const FileOffset& place, std::vector<NewFrame>& new_frames) {
  find_frame_.Reset().Bind(place.file).Bind(static_cast<int64_t>(place.offset));
  if (find_frame_.Step()) {
    const int64_t frame = find_frame_.Integer(0);
    const bool is_new = find_frame_.Integer(1) == kNotAskedFor;
    find_frame_.Reset();
    if (is_new && place.file != 0 && asked_.insert(frame).second) new_frames.push_back({frame, place});
    return frame;
  }
  if (!find_frame_.status().ok()) return find_frame_.status();
  Statement add = database_->Prepare(kAddFrame);
  add.Bind(last_frame_).Bind(place.file).Bind(static_cast<int64_t>(place.offset));
  if (absl::Status status = add.Run(); !status.ok()) return status;
  const int64_t frame = last_frame_ = database_->last_id();
  if (place.file != 0 && asked_.insert(frame).second) new_frames.push_back({frame, place});
  return frame;
}

absl::StatusOr<uint64_t> Writer::AddPath(int64_t process, absl::Span<const FileOffset> frames,
                                         std::vector<NewFrame>& new_frames) {
  std::vector<uint64_t> ids;
  ids.reserve(frames.size());
  for (const FileOffset& place : frames) {
    const absl::StatusOr<int64_t> frame = FrameNumber(place, new_frames);
    if (!frame.ok()) return frame.status();
    ids.push_back(static_cast<uint64_t>(*frame));
  }
  const std::string bytes = EncodeNumbers(ids);
  int64_t path = 0;
  if (find_path_.Reset().BindBlob(bytes).Step()) path = find_path_.Integer(0);
  find_path_.Reset();
  if (path == 0) {
    Statement add = database_->Prepare("INSERT INTO paths(frames) VALUES(?)");
    if (absl::Status status = add.BindBlob(bytes).Run(); !status.ok()) return status;
    path = database_->last_id();
  }
  const auto [count, is_unknown] = path_counts_.try_emplace(process, 0);
  if (is_unknown) {
    Statement last = database_->Prepare("SELECT max(number) FROM process_paths WHERE process = ?");
    if (!last.Bind(process).Step()) return last.status();
    count->second = last.Integer(0);
  }
  uint64_t number = 0;
  if (find_number_.Reset().Bind(process).Bind(path).Step()) number = find_number_.Integer(0);
  find_number_.Reset();
  if (number != 0) return number;
  Statement add = database_->Prepare("INSERT INTO process_paths VALUES(?, ?, ?)");
  number = count->second + 1;
  if (absl::Status status = add.Bind(process).Bind(path).Bind(static_cast<int64_t>(number)).Run(); !status.ok()) {
    return status;
  }
  return count->second = number;
}

absl::Status Writer::AddMark(absl::Time time, std::optional<int64_t> process, absl::string_view kind,
                             absl::string_view text) {
  return InsertMark(*database_, time, process, kind, text);
}

absl::Status Writer::AddPoint(int64_t process, absl::Time time, const Point& point) {
  const int64_t now = absl::ToUnixMillis(time);
  for (size_t level = 0; level < kLevels; level++) {
    if (level > 0 && begun_[level] != now && StepOf(level, begun_[level]) == StepOf(level, now)) continue;
    begun_[level] = now;
    if (absl::Status status = AddToLevel(level, process, now, point); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Writer::AddToLevel(size_t level, int64_t process, int64_t time, const Point& point) {
  const auto [last, is_first] = last_[level].try_emplace(process);
  Last& before = last->second;
  // If the clock was set back, whole points replace the old ones until the clock has caught up.
  const bool is_whole = is_first || time <= before.time || WindowOf(level, time) != WindowOf(level, before.time);
  const std::string rows = is_whole ? EncodeRows(point.rows) : EncodeChange(before.rows, point.rows);
  const auto number = static_cast<int64_t>(level);
  if (absl::Status status = add_tick_.Bind(number).Bind(time).Run(); !status.ok()) return status;
  add_point_.Bind(number).Bind(time).Bind(process).Bind(static_cast<int64_t>(point.live_bytes));
  add_point_.Bind(static_cast<int64_t>(point.live_objects)).Bind(point.rss_bytes).Bind(point.limit_bytes);
  add_point_.Bind(static_cast<int64_t>(point.allocated_bytes)).Bind(int64_t{point.lg_sample});
  add_point_.Bind(static_cast<int64_t>(point.lost)).Bind(kSamplesPoint + (is_whole ? kWholePoint : 0)).BindBlob(rows);
  if (absl::Status status = add_point_.Run(); !status.ok()) return status;
  Statement note = database_->Prepare(kNoteLast[level]);
  if (absl::Status status = note.Bind(time).Bind(process).Run(); !status.ok()) return status;
  before.time = std::max(before.time, time);
  before.rows = point.rows;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<NameWriter>> NameWriter::Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(path);
  if (!database.ok()) return database.status();
  return std::unique_ptr<NameWriter>(new NameWriter(*std::move(database)));
}

absl::Status NameWriter::Write(int64_t file, absl::string_view build_id, absl::Span<const FrameNames> frames) {
  absl::Status status = database_->Execute("BEGIN IMMEDIATE");
  if (status.ok()) status = WriteAll(file, build_id, frames);
  if (status.ok()) status = database_->Execute("COMMIT");
  if (!status.ok()) database_->Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status NameWriter::WriteAll(int64_t file, absl::string_view build_id, absl::Span<const FrameNames> frames) {
  Statement set = database_->Prepare("UPDATE files SET build_id = nullif(?, '') WHERE id = ?");
  if (absl::Status status = set.Bind(build_id).Bind(file).Run(); !status.ok()) return status;
  Statement add = database_->Prepare("INSERT OR REPLACE INTO names VALUES(?, ?, ?, ?, ?)");
  Statement named = database_->Prepare("UPDATE frames SET named = ? WHERE id = ?");
  for (const FrameNames& frame : frames) {
    for (size_t depth = 0; depth < frame.names.size(); depth++) {
      const profile::SourceFrame& name = frame.names[depth];
      add.Bind(frame.frame).Bind(static_cast<int64_t>(depth)).Bind(absl::string_view(name.function));
      absl::Status status = add.Bind(absl::string_view(name.file)).Bind(int64_t{name.line}).Run();
      if (!status.ok()) return status;
    }
    if (absl::Status status = named.Bind(int64_t{kAskedFor}).Bind(frame.frame).Run(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status AddMark(const std::string& path, absl::Time time, std::optional<int64_t> process, absl::string_view kind,
                     absl::string_view text) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(path);
  if (!database.ok()) return database.status();
  return InsertMark(**database, time, process, kind, text);
}

}  // namespace heaptap::history
