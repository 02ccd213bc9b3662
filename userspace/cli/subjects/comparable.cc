// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/subjects/comparable.h"

#include <utility>

#include "userspace/base/messages.h"
#include "userspace/cli/subjects/growth.h"
#include "userspace/report/by_names.h"

namespace heaptap::cli {

void MakeComparable(Dump& before, Dump& after, const NamePlaces& places) {
  if (IsSameProcess(before.profile, after.profile)) return;
  report::ByNames by_names;
  for (Dump* dump : {&before, &after}) {
    const LocalNames names(dump->profile, places, std::move(dump->symbols));
    SayMissing(names);
    report::ByNames::Made made = by_names.Make(dump->profile, names.Find());
    dump->profile = std::move(made.profile);
    dump->symbols = std::move(made.symbols);
  }
  base::Say("the dumps are of two processes: their call paths are compared by the names of functions, without lines");
}

}  // namespace heaptap::cli
