// SPDX-License-Identifier: Apache-2.0
#include "userspace/tables/table_reader.h"

#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "userspace/worker/reader_jobs.h"

namespace heaptap::recording {
namespace {

// The most results that are remembered. There are at most twice as many notes of contents.
constexpr size_t kMaxRead = 4096;

uint64_t BytesOf(const unwind::FileTable& table) { return table.rows.size() * sizeof(heaptap_row); }

absl::StatusOr<unwind::FileTable> RowsOf(const worker::Answer& answer) {
  if (!answer.status.ok()) return answer.status;
  absl::StatusOr<worker::TableOfFile> table = worker::DecodeTable(answer.bytes);
  if (!table.ok()) return table.status();
  return std::move(table->table);
}

}  // namespace

bool TableReader::IsVerdict(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status);
}

void TableReader::Read(const SeenFile& file) {
  const worker::FileVersion version = file.identity.version;
  if (read_.contains(version)) return;
  if (const auto job = being_read_.find(version); job != being_read_.end()) {
    return errands_.Join(job->second.payer, job->second.id, file.payer());
  }
  const worker::Errands::JobId id =
      errands_.Start(file.payer(), file.user(), {.job = worker::Job::kTable, .file = file.file},
                     {.answer_bytes = worker::kMaxTableBytes},
                     [this, version, open = file.open](const worker::Answer& answer) { HandleRead(version, answer); });
  being_read_.insert({version, {.payer = file.payer(), .id = id}});
}

void TableReader::Hasten(const worker::FileVersion& version) {
  const auto job = being_read_.find(version);
  // Done once: thousands of stacks may wait for one table.
  if (job == being_read_.end() || std::exchange(job->second.is_hastened, true)) return;
  errands_.Hasten(job->second.payer, job->second.id);
}

const TableReader::Contents* TableReader::Find(const worker::FileVersion& version) const {
  const auto found = read_.find(version);
  return found == read_.end() ? nullptr : &found->second;
}

void TableReader::HandleRead(const worker::FileVersion& asked, const worker::Answer& answer) {
  being_read_.erase(asked);
  tables_read_++;
  const absl::StatusOr<worker::IdentityOfFile> identity = worker::DecodeIdentity(answer.bytes);
  if (!identity.ok() && !answer.IsFault()) {
    return done_({.asked = asked, .version = {}, .contents = {.table = identity.status()}});
  }
  const worker::IdentityOfFile known = identity.ok() ? *identity : worker::IdentityOfFile{.version = asked};
  absl::StatusOr<unwind::FileTable> rows = RowsOf(answer);
  if (!rows.ok() && !IsVerdict(rows.status())) {
    const absl::Duration pause = retries_.Fail(known.version, base::Now());
    rows = absl::UnavailableError(absl::StrCat("reading it failed: ", rows.status().message(), "; trying again in ",
                                               absl::FormatDuration(pause)));
  } else {
    retries_.Succeed(known.version);
  }
  done_({.asked = asked, .version = known.version, .contents = Keep(known, std::move(rows))});
}

TableReader::Contents TableReader::Keep(const worker::IdentityOfFile& identity,
                                        absl::StatusOr<unwind::FileTable> rows) {
  Contents contents = {.table = nullptr, .build_id = identity.build_id};
  absl::StatusOr<SharedTable>& table = contents.table;
  if (!rows.ok()) {
    table = rows.status();
  } else if (!rows->rows.empty()) {
    table = Share(*std::move(rows));
  }
  // Remembers an invalid file too, since parsing it may have taken long.
  if (!table.ok() && !IsVerdict(table.status())) return contents;
  if (read_.size() >= kMaxRead) read_.clear();
  read_.insert_or_assign(identity.version, contents);
  return contents;
}

SharedTable TableReader::Share(unwind::FileTable rows) {
  if (by_content_.size() > 2 * kMaxRead) {
    std::erase_if(by_content_, [](const auto& entry) { return entry.second.expired(); });
  }
  const auto bytes = absl::string_view(reinterpret_cast<const char*>(rows.rows.data()), BytesOf(rows));
  const uint64_t content = absl::HashOf(rows.base, bytes);
  for (auto [entry, end] = by_content_.equal_range(content); entry != end;) {
    SharedTable table = entry->second.lock();
    if (table == nullptr) {
      entry = by_content_.erase(entry);
      continue;
    }
    if (*table == rows) return table;
    ++entry;
  }
  bytes_kept_ += BytesOf(rows);
  SharedTable table(new unwind::FileTable(std::move(rows)), [this](const unwind::FileTable* gone) {
    bytes_kept_ -= BytesOf(*gone);
    delete gone;
  });
  by_content_.emplace(content, table);
  return table;
}

}  // namespace heaptap::recording
