// SPDX-License-Identifier: Apache-2.0
//
// The kernel's books on the real kernel.
#ifndef HEAPTAP_TESTS_UNIT_BPF_BOOKS_FIXTURE_H_
#define HEAPTAP_TESTS_UNIT_BPF_BOOKS_FIXTURE_H_

#include <sys/types.h>

#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/bpf_puppet.h"
#include "userspace/bpf/books.h"

namespace heaptap::bpf {

class BooksTest : public ::testing::Test {
 protected:
  // Maps of other sizes belong to one test. Those of the default sizes are shared, since detaching takes half a second.
  absl::Status Load(const MapSizes& sizes) {
    absl::Status status = own_.Load(sizes);
    books_ = own_.books.get();
    return status;
  }
  absl::Status Load() {
    if (shared_ == nullptr) {
      shared_ = new Recording;
      if (absl::Status status = shared_->Load({}); !status.ok()) {
        delete std::exchange(shared_, nullptr);
        return status;
      }
    }
    books_ = shared_->books.get();
    return absl::OkStatus();
  }
  static void TearDownTestSuite() { delete std::exchange(shared_, nullptr); }

  void TearDown() override {
    if (books_ == nullptr) return;
    Events();
    for (const pid_t pid : pids_) books_->processes().Untrack(pid);
    for (const uint64_t id : ids_) EXPECT_TRUE(books_->Forget({id}).ok());
    EXPECT_TRUE(books_->Sweep().ok());
  }

  uint64_t Track(pid_t pid, bool follow = false, const Triggers& triggers = {}) {
    absl::StatusOr<uint64_t> id = books_->processes().Track(pid, follow, triggers);
    EXPECT_TRUE(id.ok()) << id.status();
    pids_.insert(pid);
    ids_.insert(id.value_or(0));
    return id.value_or(0);
  }

  heaptap_tally Sum(uint64_t process_id) { return bpf::Sum(*books_, process_id); }
  LiveTotals Live(uint64_t process_id) { return bpf::Live(*books_, process_id); }
  void ExpectBalanced(uint64_t process_id) { bpf::ExpectBalanced(*books_, process_id); }

  std::vector<heaptap_event> Events() {
    absl::StatusOr<std::vector<heaptap_event>> events = books_->TakeEvents();
    EXPECT_TRUE(events.ok()) << events.status();
    if (!events.ok()) return {};
    for (const heaptap_event& event : *events) {
      pids_.insert(static_cast<pid_t>(event.tgid));
      if (event.process_id != 0) ids_.insert(event.process_id);
    }
    return *std::move(events);
  }

  std::vector<uint32_t> Kinds(const std::vector<heaptap_event>& events) {
    std::vector<uint32_t> kinds;
    for (const heaptap_event& event : events) kinds.push_back(event.kind);
    return kinds;
  }

  Books* books_ = nullptr;

 private:
  Recording own_;
  inline static Recording* shared_ = nullptr;
  // All processes of the test, to clean up.
  std::set<pid_t> pids_;
  std::set<uint64_t> ids_;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_TESTS_UNIT_BPF_BOOKS_FIXTURE_H_
