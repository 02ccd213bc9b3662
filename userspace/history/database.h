// SPDX-License-Identifier: Apache-2.0
//
// A thin layer over SQLite: one connection, and statements with bound values. Not thread-safe; several connections may
// use one file at the same time.
//
// Errors: DataLoss: the file is not a sound database. ResourceExhausted: the file may not grow further, or the disk is
// full. DeadlineExceeded: see SetDeadline. Unavailable: any other error.
#ifndef HEAPTAP_USERSPACE_HISTORY_DATABASE_H_
#define HEAPTAP_USERSPACE_HISTORY_DATABASE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"

struct sqlite3;
struct sqlite3_stmt;

namespace heaptap::history {

// A statement. Errors are kept: Step returns false, and status() tells why.
class Statement {
 public:
  Statement(sqlite3* database, const char* sql);
  Statement(Statement&& other) noexcept : database_(other.database_), statement_(std::exchange(other.statement_, {})) {}
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // Binds the next parameter.
  Statement& Bind(int64_t value);
  Statement& Bind(std::optional<int64_t> value);
  Statement& Bind(absl::string_view text);
  Statement& BindBlob(absl::string_view bytes);
  // Whether there is a row.
  bool Step();
  // Runs a statement without rows. It can be bound and run again.
  absl::Status Run();
  // Makes the statement ready for other values.
  Statement& Reset();
  absl::Status status() const;

  int64_t Integer(int column) const;
  std::optional<int64_t> OptionalInteger(int column) const;
  std::string Text(int column) const;  // of a text or a blob

 private:
  sqlite3* database_;
  sqlite3_stmt* statement_ = nullptr;
  int next_ = 1;
  int result_ = 0;
};

class Database {
 public:
  // Creates the file with mode 0600 if there is none.
  static absl::StatusOr<std::unique_ptr<Database>> Create(const std::string& path);
  // Opens an existing file. NotFound: there is none.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  // Statements that still run at this time are given up.
  void SetDeadline(base::Instant deadline);

  // Whether the file is no longer at its path. Nobody sees what is written to such a file.
  bool HasMoved() const;

  absl::Status Execute(const std::string& sql);
  Statement Prepare(const char* sql) { return {handle_, sql}; }
  int64_t last_id() const;
  int64_t changes() const;  // of the last statement

 private:
  explicit Database(sqlite3* handle) : handle_(handle) {}
  static absl::StatusOr<std::unique_ptr<Database>> OpenFile(const std::string& path);
  sqlite3* handle_;
  base::Instant deadline_ = base::Instant::InfiniteFuture();
};

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_DATABASE_H_
