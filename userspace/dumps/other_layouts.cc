// SPDX-License-Identifier: Apache-2.0
#include "userspace/dumps/other_layouts.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/messages.h"
#include "userspace/bpf/other_layout.h"
#include "userspace/profiles/profile_builder.h"
#include "userspace/targets/target_state.h"

namespace heaptap::recording {

void DrainOtherLayouts(const bpf::Pins& pins, const std::string& states_folder, Dumps& dumps) {
  for (const std::string& layout : pins.OtherLayouts()) {
    const bpf::Pins other = pins.Other(layout);
    if (absl::Status status = bpf::StopOtherLayout(other); !status.ok()) base::Say(status.message());
    const absl::StatusOr<bpf::OtherBooks> books = bpf::ReadOtherLayout(other);
    if (!books.ok()) {
      base::Say(absl::StrCat("discarded the recording of another heaptap version (", layout,
                             "), which cannot be read: ", books.status().message()));
      other.RemoveAll();
      continue;
    }
    const TargetStates states = TargetStates::OfOther(states_folder, layout);
    for (const auto& [process_id, entries] : books->tallies) {
      const auto process =
          std::find_if(books->processes.begin(), books->processes.end(),
                       [id = process_id](const bpf::OtherProcess& one) { return one.process_id == id; });
      Target target;
      target.process_id = process_id;
      if (process != books->processes.end()) target.pid = process->tgid;
      Ending ending;
      if (absl::StatusOr<TargetState> state = states.Load(process_id); state.ok()) {
        target = std::move(state->target);
        ending.space = std::make_shared<AddressSpace>(std::move(state->space));
      }
      target.ending = std::move(ending);
      const Dumps::Filled filled = dumps.Fill(BuildOtherProfile(*books, dumps.Subject(target)));
      dumps.Publish(target, HEAPTAP_DUMP_FINAL, filled).IgnoreError();
    }
    other.RemoveAll();
    base::Say(absl::StrCat("ended the recording of another heaptap version (", layout,
                           ") with a last dump of each of its ", books->tallies.size(),
                           " processes; a new recording begins"));
  }
}

}  // namespace heaptap::recording
