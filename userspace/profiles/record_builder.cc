// SPDX-License-Identifier: Apache-2.0
#include "userspace/profiles/record_builder.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heaptap::recording {

absl::StatusOr<profile::SampleRecords> BuildRecords(const bpf::Entries& entries, const ProfileSubject& subject,
                                                    uint64_t count, const NameLiving& name_living) {
  absl::StatusOr<std::vector<heaptap_record>> records = entries.ReadRecords(subject.process_id);
  if (!records.ok()) return records.status();
  if (records->size() > count) records->erase(records->begin(), records->end() - static_cast<ptrdiff_t>(count));

  // Many samples share a few stacks and threads.
  std::map<uint64_t, std::shared_ptr<const std::vector<uint64_t>>> stacks;
  std::set<uint32_t> tids;
  for (const heaptap_record& record : *records) {
    tids.insert(record.tid);
    if (record.free_time != 0) tids.insert(record.free_tid);
  }
  const std::map<uint32_t, std::string> names = ThreadNames(entries, subject.process_id, tids, name_living);
  const auto make_deed = [&](uint32_t tid, uint64_t time, uint64_t stack_id) {
    const auto [stack, new_stack] = stacks.try_emplace(stack_id);
    if (new_stack) {
      stack->second = std::make_shared<std::vector<uint64_t>>(ProgramFrames(entries, subject, stack_id).frames);
    }
    return profile::Deed{.tid = tid, .thread_name = names.at(tid), .time = time, .frames = stack->second};
  };
  profile::SampleRecords result = {
      .period = uint64_t{1} << subject.lg_sample, .demanded = count, .pid = static_cast<uint64_t>(subject.pid)};
  for (const heaptap_record& record : *records) {
    profile::SampleRecord sample = {.size = record.size,
                                    .allocation = make_deed(record.tid, record.time, record.stack_id)};
    if (record.free_time != 0) sample.free = make_deed(record.free_tid, record.free_time, record.free_stack_id);
    result.samples.push_back(std::move(sample));
  }
  return result;
}

}  // namespace heaptap::recording
