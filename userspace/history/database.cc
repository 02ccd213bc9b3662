// SPDX-License-Identifier: Apache-2.0
#include "userspace/history/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::history {
namespace {

// Somebody who queries the database can hold a lock for a moment.
constexpr int kBusyMilliseconds = 2000;

// SQLite's virtual machine runs this many instructions between two looks at the clock: about a tenth of a millisecond.
constexpr int kStepsBetweenLooks = 10000;

absl::Status ErrorOf(sqlite3* database, int result) {
  const int code = result & 0xff;  // the primary code
  if (code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE) return absl::OkStatus();
  const char* text = database == nullptr ? sqlite3_errstr(result) : sqlite3_errmsg(database);
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) return absl::DataLossError(text);
  if (code == SQLITE_INTERRUPT) return absl::DeadlineExceededError("the database took too long to answer");
  if (code == SQLITE_FULL) return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

}  // namespace

Statement::Statement(sqlite3* database, const char* sql) : database_(database) {
  result_ = sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr);
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::Bind(int64_t value) {
  sqlite3_bind_int64(statement_, next_++, value);
  return *this;
}

Statement& Statement::Bind(std::optional<int64_t> value) {
  if (value.has_value()) return Bind(*value);
  sqlite3_bind_null(statement_, next_++);
  return *this;
}

Statement& Statement::Bind(absl::string_view text) {
  sqlite3_bind_text64(statement_, next_++, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}

Statement& Statement::BindBlob(absl::string_view bytes) {
  sqlite3_bind_blob64(statement_, next_++, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
  return *this;
}

bool Statement::Step() {
  if (statement_ == nullptr) return false;  // result_ says why
  result_ = sqlite3_step(statement_);
  return result_ == SQLITE_ROW;
}

absl::Status Statement::Run() {
  while (Step()) {
  }
  absl::Status result = status();
  Reset();
  return result;
}

Statement& Statement::Reset() {
  sqlite3_reset(statement_);
  next_ = 1;
  return *this;
}

absl::Status Statement::status() const { return ErrorOf(database_, result_); }

int64_t Statement::Integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::optional<int64_t> Statement::OptionalInteger(int column) const {
  if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::nullopt;
  return Integer(column);
}

std::string Statement::Text(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return bytes == nullptr ? "" : std::string(static_cast<const char*>(bytes), size);
}

absl::StatusOr<std::unique_ptr<Database>> Database::Create(const std::string& path) {
  // SQLite gives its other files the mode of this one.
  const base::FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return absl::UnavailableError(strerror(errno));
  return OpenFile(path);
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return absl::NotFoundError(strerror(errno));
  return OpenFile(path);
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenFile(const std::string& path) {
  sqlite3* handle = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &handle,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, nullptr);
  std::unique_ptr<Database> database(new Database(handle));
  if (result != SQLITE_OK) return ErrorOf(handle, result);
  sqlite3_busy_timeout(handle, kBusyMilliseconds);
  return database;
}

void Database::SetDeadline(base::Instant deadline) {
  deadline_ = deadline;
  const auto is_over = [](void* self) { return base::Now() > static_cast<Database*>(self)->deadline_ ? 1 : 0; };
  sqlite3_progress_handler(handle_, kStepsBetweenLooks, is_over, this);
}

Database::~Database() { sqlite3_close(handle_); }

absl::Status Database::Execute(const std::string& sql) {
  return ErrorOf(handle_, sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr));
}

bool Database::HasMoved() const {
  int has_moved = 0;
  return sqlite3_file_control(handle_, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved) == SQLITE_OK && has_moved != 0;
}

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(handle_); }
int64_t Database::changes() const { return sqlite3_changes64(handle_); }

}  // namespace heaptap::history
