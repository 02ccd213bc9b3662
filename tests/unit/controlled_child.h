// SPDX-License-Identifier: Apache-2.0
//
// A process with a control block, as a process with a sampled allocator has one.
#ifndef HEAPTAP_TESTS_UNIT_CONTROLLED_CHILD_H_
#define HEAPTAP_TESTS_UNIT_CONTROLLED_CHILD_H_

#include <functional>

#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/support/child.h"
#include "userspace/process/control_block.h"
#include "userspace/process/handle.h"

namespace heaptap {

class ControlledChild {
 public:
  // `change`: what differs from the block of an allocator that nobody records yet.
  explicit ControlledChild(const std::function<void(heaptap_control&)>& change = [](heaptap_control&) {})
      : child_([&] {
          block_ = {};
          block_.magic = HEAPTAP_CONTROL_MAGIC;
          block_.version = HEAPTAP_CONTROL_VERSION;
          block_.size = sizeof(block_);
          block_.lg_sample = 17;
          block_.collector_lg_sample = HEAPTAP_NO_RATE;
          block_.max_frames = 99;
          block_.text_begin = 0x1000;
          block_.text_end = 0x2000;
          change(block_);
          return true;
        }) {}

  pid_t pid() const { return child_.pid(); }
  // The same in each child.
  static uint64_t address() { return reinterpret_cast<uint64_t>(&block_); }
  // Changes it, as the process would.
  void Write(const std::function<void(heaptap_control&)>& change) const {
    heaptap_control block = Read();
    change(block);
    const absl::StatusOr<process::Handle> process = process::Handle::Open(pid());
    EXPECT_TRUE(process.ok() && process->Write(address(), &block, sizeof(block)).ok());
  }
  // As it is now.
  heaptap_control Read() const {
    const absl::StatusOr<process::Handle> process = process::Handle::Open(pid());
    const absl::StatusOr<heaptap_control> control =
        process.ok() ? process::ReadControl(*process, address()) : absl::StatusOr<heaptap_control>(process.status());
    EXPECT_TRUE(control.ok()) << control.status();
    return control.value_or(heaptap_control{});
  }

 private:
  static inline heaptap_control block_;
  Child child_;
};

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_CONTROLLED_CHILD_H_
