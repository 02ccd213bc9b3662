// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/other_layout.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/pinned_map.h"

namespace heaptap::bpf {
namespace {

constexpr absl::Duration kDetachPause = absl::Milliseconds(2);

// Programs, links to them (on the life of processes, on probes), and the map by which one program calls others.
constexpr absl::string_view kRunningPins[] = {"link_", "file_", "program_", "map_programs"};

// The id of a program, or of the program of a link. 0: `fd` is neither.
uint32_t ProgramId(const base::FileDescriptor& fd) {
  std::ifstream file(absl::StrCat("/proc/self/fdinfo/", fd.get()));
  for (std::string line; std::getline(file, line);) {
    uint32_t id = 0;
    if (absl::StartsWith(line, "prog_id:") && absl::SimpleAtoi(absl::StripPrefix(line, "prog_id:"), &id)) return id;
  }
  return 0;
}

// Takes no reference to the program, which would keep it loaded.
absl::StatusOr<bool> ProgramIsThere(uint32_t id) {
  uint32_t next = 0;
  const int error = bpf_prog_get_next_id(id - 1, &next);
  if (error == -ENOENT) return false;
  if (error != 0) return KernelError(error, "looking for eBPF programs of another collector");
  return next == id;
}

// Looks up any number of fields, and keeps the first error.
class FieldReader {
 public:
  explicit FieldReader(const PinnedMap& map) : map_(map) {}

  IntegerField Key(absl::string_view name) { return Keep(map_.KeyInteger(name)); }
  IntegerField Value(absl::string_view name) { return Keep(map_.ValueInteger(name)); }
  std::optional<IntegerField> OptionalValue(absl::string_view name) {
    const absl::StatusOr<IntegerField> field = map_.ValueInteger(name);
    return field.ok() ? std::optional(*field) : std::nullopt;
  }
  // Older versions have these fields in the process, not in its identity.
  IntegerField Identity(absl::string_view name) {
    const absl::StatusOr<IntegerField> field = map_.ValueInteger(absl::StrCat("identity.", name));
    return field.ok() ? *field : Value(name);
  }
  ArrayField Array(absl::string_view name) { return Keep(map_.ValueArray(name)); }
  const absl::Status& status() const { return status_; }

 private:
  template <typename Field>
  Field Keep(const absl::StatusOr<Field>& field) {
    if (field.ok()) return *field;
    status_.Update(field.status());
    return {};
  }

  const PinnedMap& map_;
  absl::Status status_;
};

absl::StatusOr<PinnedMap> OpenNeeded(const Pins& pins, absl::string_view name) {
  absl::StatusOr<PinnedMap> map = PinnedMap::Open(pins, name);
  if (!absl::IsNotFound(map.status())) return map;
  return absl::FailedPreconditionError(absl::StrCat("map ", name, " is missing: ", map.status().message()));
}

absl::Status OkIfNotFound(const absl::Status& status) { return absl::IsNotFound(status) ? absl::OkStatus() : status; }

// Other numbers are garbage.
bool IsPid(uint64_t tgid) { return tgid != 0 && tgid <= static_cast<uint64_t>(std::numeric_limits<pid_t>::max()); }

absl::StatusOr<std::set<uint64_t>> ReadClosed(const Pins& pins) {
  std::set<uint64_t> closed;
  absl::StatusOr<PinnedMap> map = PinnedMap::Open(pins, "forgotten");
  if (absl::IsNotFound(map.status())) return closed;
  if (!map.ok()) return map.status();
  FieldReader fields(*map);
  const IntegerField id = fields.Key("");
  if (!fields.status().ok()) return fields.status();
  absl::Status status =
      map->ForEachEntry([&](absl::Span<const uint8_t> key, absl::Span<const uint8_t>) { closed.insert(id.Read(key)); });
  if (!status.ok()) return status;
  return closed;
}

absl::Status ReadRecorded(const Pins& pins, std::map<uint64_t, OtherProcess>& processes) {
  absl::StatusOr<PinnedMap> map = OpenNeeded(pins, "processes");
  if (!map.ok()) return map.status();
  FieldReader fields(*map);
  const IntegerField tgid = fields.Key("");
  const IntegerField id = fields.Identity("id");
  const IntegerField flags = fields.Value("flags");
  if (!fields.status().ok()) return fields.status();
  return map->ForEachEntry([&](absl::Span<const uint8_t> key, absl::Span<const uint8_t> value) {
    const OtherProcess process = {.process_id = id.Read(value),
                                  .tgid = static_cast<pid_t>(tgid.Read(key)),
                                  .flags = static_cast<uint32_t>(flags.Read(value))};
    if (!IsPid(tgid.Read(key)) || (process.flags & HEAPTAP_PROCESS_SHARES_PARENT) != 0) return;
    processes.emplace(process.process_id, process);
  });
}

// Books that an exec or a reset has ended count as closed: they get no last dump.
absl::Status ReadUnnoticed(const Pins& pins, std::map<uint64_t, OtherProcess>& processes, std::set<uint64_t>& closed) {
  absl::StatusOr<PinnedMap> map = PinnedMap::Open(pins, "unnoticed");
  if (!map.ok()) return OkIfNotFound(map.status());
  FieldReader fields(*map);
  const IntegerField id = fields.Key("");
  const IntegerField tgid = fields.Identity("parent_tgid");  // in `unnoticed` the PID of the process
  const IntegerField flags = fields.Value("flags");
  if (!fields.status().ok()) return fields.status();
  return map->ForEachEntry([&](absl::Span<const uint8_t> key, absl::Span<const uint8_t> value) {
    if ((flags.Read(value) & (HEAPTAP_PROCESS_EXECED | HEAPTAP_PROCESS_RESET)) != 0) closed.insert(id.Read(key));
    if (!IsPid(tgid.Read(value))) return;
    processes.emplace(id.Read(key), OtherProcess{.process_id = id.Read(key),
                                                 .tgid = static_cast<pid_t>(tgid.Read(value)),
                                                 .flags = static_cast<uint32_t>(flags.Read(value)),
                                                 .ended = true});
  });
}

struct CountFields {
  CountFields(FieldReader& fields, absl::string_view name)
      : objects(fields.Value(absl::StrCat(name, ".objects"))),
        bytes(fields.Value(absl::StrCat(name, ".bytes"))),
        weight(fields.Value(absl::StrCat(name, ".weight"))),
        weighted_objects(fields.Value(absl::StrCat(name, ".weighted_objects"))),
        variance(fields.OptionalValue(absl::StrCat(name, ".variance"))) {}

  heaptap_count Read(absl::Span<const uint8_t> value) const {
    heaptap_count count = {.objects = objects.Read(value),
                           .bytes = bytes.Read(value),
                           .weight = weight.Read(value),
                           .weighted_objects = weighted_objects.Read(value),
                           .variance = 0};
    if (variance.has_value()) {
      count.variance = variance->Read(value);
    } else if (count.objects != 0) {
      count.variance = count.objects * heaptap_variance(count.bytes / count.objects, count.weight / count.objects);
    }
    return count;
  }

  IntegerField objects;
  IntegerField bytes;
  IntegerField weight;
  IntegerField weighted_objects;
  std::optional<IntegerField> variance;  // older versions do not have it: there, all samples count alike
};

absl::Status ReadTallies(const Pins& pins, const std::set<uint64_t>& closed,
                         std::map<uint64_t, std::vector<TallyEntry>>& tallies) {
  absl::StatusOr<PinnedMap> map = OpenNeeded(pins, "tallies");
  if (!map.ok()) return map.status();
  FieldReader fields(*map);
  const IntegerField process_id = fields.Key("process_id");
  const IntegerField stack_id = fields.Key("stack_id");
  const IntegerField tid = fields.Key("tid");
  const CountFields allocated(fields, "allocated");
  const CountFields freed(fields, "freed");
  if (!fields.status().ok()) return fields.status();
  return map->ForEachEntry([&](absl::Span<const uint8_t> key, absl::Span<const uint8_t> value) {
    const uint64_t id = process_id.Read(key);
    if (closed.contains(id)) return;
    tallies[id].push_back({stack_id.Read(key), static_cast<uint32_t>(tid.Read(key)),
                           heaptap_tally{.allocated = allocated.Read(value), .freed = freed.Read(value)}});
  });
}

// Reads single entries: the map may have hundreds of megabytes, most of them of processes that are gone.
absl::Status ReadStacks(const Pins& pins, const std::map<uint64_t, std::vector<TallyEntry>>& tallies,
                        std::map<uint64_t, OtherStack>& stacks) {
  absl::StatusOr<PinnedMap> map = OpenNeeded(pins, "stacks");
  if (!map.ok()) return map.status();
  FieldReader fields(*map);
  fields.Key("");
  const IntegerField count = fields.Value("count");
  const IntegerField end = fields.Value("end");
  const ArrayField frames = fields.Array("frames");
  if (!fields.status().ok()) return fields.status();
  std::vector<uint8_t> value(map->value_size());
  for (const auto& [process_id, entries] : tallies) {
    for (const TallyEntry& entry : entries) {
      if (entry.stack_id == HEAPTAP_NO_STACK || stacks.contains(entry.stack_id)) continue;
      absl::Status status = map->LookUp(entry.stack_id, absl::MakeSpan(value));
      if (absl::IsNotFound(status)) continue;
      if (!status.ok()) return status;
      const uint64_t said = count.Read(value);
      const auto kept = static_cast<uint32_t>(std::min<uint64_t>({said, frames.count, HEAPTAP_MAX_FRAMES}));
      OtherStack& stack = stacks[entry.stack_id];
      stack.frames.reserve(kept);
      for (uint32_t i = 0; i < kept; i++) stack.frames.push_back(frames.Read(value, i));
      const uint64_t ends_at = end.Read(value);
      const bool as_it_is = kept == said && ends_at < HEAPTAP_STACK_ENDS;
      stack.end = as_it_is ? static_cast<uint32_t>(ends_at) : uint32_t{HEAPTAP_STACK_TRUNCATED};
    }
  }
  return absl::OkStatus();
}

absl::Status ReadLosses(const Pins& pins, const std::set<uint64_t>& closed, std::map<uint64_t, Losses>& losses) {
  absl::StatusOr<PinnedMap> map = PinnedMap::Open(pins, "losses");
  if (!map.ok()) return OkIfNotFound(map.status());
  FieldReader fields(*map);
  const IntegerField process_id = fields.Key("process_id");
  const IntegerField reason = fields.Key("reason");
  const IntegerField events = fields.Value("events");
  const IntegerField weight = fields.Value("weight");
  if (!fields.status().ok()) return fields.status();
  return map->ForEachEntry([&](absl::Span<const uint8_t> key, absl::Span<const uint8_t> value) {
    const uint64_t id = process_id.Read(key);
    const uint64_t why = reason.Read(key);
    if (closed.contains(id) || why == HEAPTAP_NO_LOSS || why >= HEAPTAP_LOSS_REASONS) return;
    losses.try_emplace(id, Losses{}).first->second[why] = {.events = events.Read(value), .weight = weight.Read(value)};
  });
}

}  // namespace

// A link without pins and descriptors is not detached at once: the kernel drops the pin's reference after an RCU grace
// period, in a worker. The id of the link goes before it is detached, its reference to the program afterwards. So the
// links are detached when their programs are gone.
absl::Status StopOtherLayout(const Pins& pins, absl::Duration longest) {
  std::set<uint32_t> programs;
  for (const std::string& name : pins.Names()) {
    if (std::none_of(std::begin(kRunningPins), std::end(kRunningPins),
                     [&](absl::string_view prefix) { return absl::StartsWith(name, prefix); })) {
      continue;
    }
    if (absl::StatusOr<base::FileDescriptor> fd = pins.Get(name); fd.ok()) {
      if (const uint32_t id = ProgramId(*fd); id != 0) programs.insert(id);
    }
    pins.Remove(name);
  }
  const base::Instant deadline = base::Now() + longest;
  while (!programs.empty()) {
    absl::StatusOr<bool> there = ProgramIsThere(*programs.begin());
    if (!there.ok()) return there.status();
    if (!*there) {
      programs.erase(programs.begin());
      continue;
    }
    if (base::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("eBPF program ", *programs.begin(), " of ", pins.folder(),
                                                      " and perhaps others are still loaded ",
                                                      absl::FormatDuration(longest), " after their pins were removed"));
    }
    base::Sleep(kDetachPause);
  }
  // Waits for a grace period, in which programs end that were running on another CPU when they were detached. On a
  // kernel that refuses this (CPUs without a clock tick), the time that has passed is enough for them to end.
  syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
  return absl::OkStatus();
}

absl::StatusOr<OtherBooks> ReadOtherLayout(const Pins& pins) {
  absl::StatusOr<std::set<uint64_t>> closed = ReadClosed(pins);
  if (!closed.ok()) return closed.status();
  OtherBooks books;
  std::map<uint64_t, OtherProcess> processes;
  if (absl::Status status = ReadRecorded(pins, processes); !status.ok()) return status;
  if (absl::Status status = ReadUnnoticed(pins, processes, *closed); !status.ok()) return status;
  for (const auto& [id, process] : processes) {
    if (!closed->contains(id)) books.processes.push_back(process);
  }
  if (absl::Status status = ReadTallies(pins, *closed, books.tallies); !status.ok()) return status;
  if (absl::Status status = ReadStacks(pins, books.tallies, books.stacks); !status.ok()) return status;
  if (absl::Status status = ReadLosses(pins, *closed, books.losses); !status.ok()) return status;
  return books;
}

}  // namespace heaptap::bpf
