// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/support/simulated_books.h"

#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>

#include <algorithm>

#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"

namespace heaptap::bpf {
namespace {

using Cause = EndedBooks::Cause;

class SimulatedUnwindMaps final : public UnwindMaps {
 public:
  explicit SimulatedUnwindMaps(SimulatedKernel& kernel) : kernel_(kernel) {}

  uint32_t NewTable() override { return ++tables_; }
  absl::Status AddNodes(uint32_t, uint32_t, absl::Span<const heaptap_rows>) override { return absl::OkStatus(); }
  void RemoveTable(uint32_t, uint32_t) override {}
  absl::Status SetFile(const heaptap_file_key&, const heaptap_file&) override { return absl::OkStatus(); }
  void RemoveFile(const heaptap_file_key&) override {}
  std::optional<heaptap_file> ReadFile(const heaptap_file_key&) const override { return std::nullopt; }
  std::vector<heaptap_file_key> FileKeys() const override { return {}; }
  std::map<uint32_t, uint32_t> CountNodes() const override { return {}; }
  bool InvalidateRules(pid_t pid) override {
    if (!kernel_.Run().ok()) return false;
    kernel_.invalidated.push_back(pid);
    return true;
  }
  int raw_stacks_fd() const override { return never_.get(); }
  std::vector<RawStack> TakeRawStacks() override { return std::exchange(kernel_.raw_stacks, {}); }
  void ReplaceStack(uint64_t stack_id, const heaptap_stack& stack) override {
    if (const auto found = kernel_.stacks.find(stack_id); found != kernel_.stacks.end()) found->second = stack;
  }

 private:
  SimulatedKernel& kernel_;
  uint32_t tables_ = 0;
  base::FileDescriptor never_{eventfd(0, EFD_CLOEXEC)};
};

class SimulatedEntries final : public Entries {
 public:
  explicit SimulatedEntries(SimulatedKernel& kernel) : kernel_(kernel) {}

  absl::Status VisitTallies(absl::FunctionRef<void(uint64_t, const TallyEntry&)> visit) const override {
    kernel_.Step("VisitTallies");
    for (const auto& [process_id, entries] : kernel_.tallies) {
      for (const TallyEntry& entry : entries) visit(process_id, entry);
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<TallyEntry>> ReadTallies(uint64_t process_id) const override {
    kernel_.Step("ReadTallies");
    const auto found = kernel_.tallies.find(process_id);
    return found == kernel_.tallies.end() ? std::vector<TallyEntry>() : found->second;
  }
  absl::StatusOr<std::map<uint64_t, std::vector<TallyEntry>>> ReadAllTallies() const override {
    kernel_.Step("ReadAllTallies");
    if (kernel_.readings_to_fail > 0) {
      kernel_.readings_to_fail--;
      return absl::ResourceExhaustedError("reading map tallies: Cannot allocate memory");
    }
    return kernel_.tallies;
  }
  absl::StatusOr<std::map<uint64_t, LiveTotals>> ReadLiveTotals() const override { return kernel_.live; }
  absl::Status VisitLive(uint64_t process_id, absl::FunctionRef<void(const heaptap_live&)> visit) const override {
    const auto found = kernel_.objects.find(process_id);
    if (found == kernel_.objects.end()) return absl::OkStatus();
    for (const heaptap_live& object : found->second) visit(object);
    return absl::OkStatus();
  }
  absl::StatusOr<heaptap_stack> ReadStack(uint64_t stack_id) const override {
    kernel_.Step("ReadStack");
    const auto found = kernel_.stacks.find(stack_id);
    if (found == kernel_.stacks.end()) return absl::NotFoundError("no such stack");
    return found->second;
  }
  absl::StatusOr<ThreadName> ReadThreadName(uint64_t process_id, uint32_t tid) const override {
    const auto found = kernel_.names.find({process_id, tid});
    if (found == kernel_.names.end()) return absl::NotFoundError("the thread has no name in the books");
    return found->second;
  }
  absl::StatusOr<std::vector<heaptap_record>> ReadRecords(uint64_t process_id) const override {
    const auto found = kernel_.records.find(process_id);
    return found == kernel_.records.end() ? std::vector<heaptap_record>() : found->second;
  }
  Losses ReadLosses(uint64_t process_id) const override {
    kernel_.Step("ReadLosses");
    const auto found = kernel_.losses.find(process_id);
    return found == kernel_.losses.end() ? Losses{} : found->second;
  }
  std::map<uint64_t, Losses> ReadAllLosses() const override {
    kernel_.Step("ReadAllLosses");
    return kernel_.losses;
  }

 private:
  SimulatedKernel& kernel_;
};

class SimulatedProcesses final : public Processes {
 public:
  explicit SimulatedProcesses(SimulatedKernel& kernel) : kernel_(kernel) {}

  absl::StatusOr<uint64_t> Track(pid_t tgid, bool follow, const Triggers& triggers) override {
    const uint64_t id = std::exchange(kernel_.next_collector_id, kernel_.next_collector_id + 2);
    absl::MutexLock lock(&kernel_.mutex);
    RecordedProcess& recorded = kernel_.processes[id];
    recorded.tgid = tgid;
    recorded.process.identity.id = id;
    recorded.process.identity.start_time = SimulatedKernel::Now();
    recorded.process.flags = follow ? HEAPTAP_PROCESS_FOLLOW : 0;
    recorded.process.triggers = ToKernel(triggers);
    return id;
  }
  bool IsCurrent(pid_t tgid, uint64_t process_id) const override {
    if (kernel_.on_is_current != nullptr) kernel_.on_is_current(tgid);
    absl::MutexLock lock(&kernel_.mutex);
    const auto found = kernel_.processes.find(process_id);
    return found != kernel_.processes.end() && found->second.tgid == tgid;
  }
  void Untrack(pid_t tgid) override {
    absl::MutexLock lock(&kernel_.mutex);
    std::erase_if(kernel_.processes, [tgid](const auto& entry) { return entry.second.tgid == tgid; });
  }
  absl::Status RestrictTo(absl::Span<const int>) override { return absl::OkStatus(); }
  absl::Status SetSettings(heaptap_settings settings) override {
    kernel_.settings = settings;
    return absl::OkStatus();
  }
  absl::Status TakeFrees(pid_t, uint64_t process_id, absl::Span<const heaptap_free> frees) override {
    absl::Status status = kernel_.Run();
    std::vector<heaptap_free>& taken = kernel_.frees_taken[process_id];
    if (status.ok()) taken.insert(taken.end(), frees.begin(), frees.end());
    return status;
  }
  absl::Status Configure(pid_t tgid, uint64_t process_id, const ProcessSettings& settings) override {
    if (absl::Status status = kernel_.Run(); !status.ok()) return status;
    absl::MutexLock lock(&kernel_.mutex);
    const auto found = kernel_.processes.find(process_id);
    if (found == kernel_.processes.end() || found->second.tgid != tgid) return absl::NotFoundError("it has ended");
    heaptap_process& process = found->second.process;
    if (settings.ignored) process.flags |= HEAPTAP_PROCESS_IGNORED;
    process.limits = {settings.max_live, settings.max_tallies};
    process.triggers = ToKernel(settings.triggers);
    return absl::OkStatus();
  }
  absl::Status CountUnseenBeginning(pid_t, uint64_t process_id, uint64_t held) override {
    heaptap_loss& loss = kernel_.losses[process_id][HEAPTAP_LOSS_BEGINNING];
    if (loss.events == 0) loss = {.events = 1, .weight = held};
    return absl::OkStatus();
  }
  void UncountBeginning(uint64_t process_id) override { kernel_.losses[process_id][HEAPTAP_LOSS_BEGINNING] = {}; }
  absl::StatusOr<heaptap_process> Read(pid_t tgid) const override {
    absl::MutexLock lock(&kernel_.mutex);
    for (const auto& [process_id, recorded] : kernel_.processes) {
      if (recorded.tgid == tgid) return recorded.process;
    }
    return absl::NotFoundError("the process is not recorded");
  }
  absl::StatusOr<std::map<uint64_t, RecordedProcess>> ReadAll() const override {
    kernel_.Step("ReadProcesses");
    absl::MutexLock lock(&kernel_.mutex);
    return kernel_.processes;
  }
  absl::StatusOr<std::map<uint64_t, EndedBooks>> ReadUnnoticed() const override {
    kernel_.Step("ReadUnnoticed");
    return kernel_.unnoticed;
  }
  bool IsUnnoticed(uint64_t process_id) const override { return kernel_.unnoticed.contains(process_id); }

 private:
  SimulatedKernel& kernel_;
};

class SimulatedBooks final : public Books {
 public:
  SimulatedBooks(SimulatedKernel& kernel, bool adopts)
      : kernel_(kernel), entries_(kernel), processes_(kernel), unwind_(kernel), adopted_(adopts) {
    if (adopts) forgotten_ = kernel.closed;
  }

  std::string layout() const override { return "simulated"; }
  bool adopted() const override { return adopted_; }
  bool HasSizes(const MapSizes&) const override { return true; }

  const Entries& entries() const override { return entries_; }
  Processes& processes() override { return processes_; }
  const Processes& processes() const override { return processes_; }
  UnwindMaps& unwind() override { return unwind_; }
  const UnwindMaps& unwind() const override { return unwind_; }

  int events_fd() const override { return never_.get(); }
  absl::StatusOr<std::vector<heaptap_event>> TakeEvents() override {
    std::vector<heaptap_event> events = std::exchange(kernel_.events, {});
    kernel_.Step("handle events");
    return events;
  }
  uint64_t EventsLost() const override { return kernel_.events_lost; }
  double EventsFill() const override { return 0; }

  bool Fold(pid_t, uint64_t process_id, const TallyEntry& entry, uint32_t) override {
    std::vector<TallyEntry>& tallies = kernel_.tallies[process_id];
    const auto find = [&](uint32_t tid) {
      return std::ranges::find_if(
          tallies, [&](const TallyEntry& one) { return one.stack_id == entry.stack_id && one.tid == tid; });
    };
    if (find(entry.tid) == tallies.end()) return false;
    const heaptap_tally folded = find(entry.tid)->tally;
    tallies.erase(find(entry.tid));
    if (find(0) == tallies.end()) tallies.push_back({.stack_id = entry.stack_id, .tid = 0, .tally = {}});
    heaptap_tally& sum = find(0)->tally;
    for (const auto part : {&heaptap_tally::allocated, &heaptap_tally::freed}) {
      (sum.*part).objects += (folded.*part).objects;
      (sum.*part).bytes += (folded.*part).bytes;
      (sum.*part).weight += (folded.*part).weight;
      (sum.*part).weighted_objects += (folded.*part).weighted_objects;
      (sum.*part).variance += (folded.*part).variance;
    }
    return true;
  }
  absl::Status Sweep() override {
    kernel_.Step("sweep the live objects");
    std::erase_if(kernel_.live, [this](const auto& entry) { return kernel_.closed.contains(entry.first); });
    kernel_.Step("sweep the marks");
    for (const uint64_t process_id : std::exchange(forgotten_, {})) kernel_.closed.erase(process_id);
    return absl::OkStatus();
  }
  bool IsSweepDue() override { return !forgotten_.empty(); }
  absl::Status Forget(const std::set<uint64_t>& process_ids) override {
    kernel_.Step("forget the losses");
    for (const uint64_t process_id : process_ids) {
      if (process_id != 0) kernel_.losses.erase(process_id);
    }
    kernel_.Step("forget the end");
    for (const uint64_t process_id : process_ids) kernel_.unnoticed.erase(process_id);
    kernel_.Step("forget the mark");
    std::vector<uint64_t> stacks;
    for (const uint64_t process_id : process_ids) {
      if (!kernel_.tallies.contains(process_id)) {
        if (!forgotten_.contains(process_id)) kernel_.closed.erase(process_id);
        continue;
      }
      kernel_.closed.insert(process_id);
      forgotten_.insert(process_id);
      for (const TallyEntry& entry : kernel_.tallies[process_id]) stacks.push_back(entry.stack_id);
    }
    kernel_.Step("forget the stacks");
    for (const uint64_t stack_id : stacks) kernel_.stacks.erase(stack_id);
    kernel_.Step("forget the tallies");
    for (const uint64_t process_id : process_ids) kernel_.tallies.erase(process_id);
    return absl::OkStatus();
  }
  void MarkClosed(uint64_t process_id) override {
    kernel_.Step("MarkClosed");
    kernel_.closed.insert(process_id);
  }
  absl::StatusOr<std::set<uint64_t>> ReadClosed() const override {
    kernel_.Step("ReadClosed");
    return kernel_.closed;
  }

  bpf::KernelMemory Memory() const override { return {}; }
  int program(Program) const override { return no_program_.get(); }

 private:
  SimulatedKernel& kernel_;
  SimulatedEntries entries_;
  SimulatedProcesses processes_;
  SimulatedUnwindMaps unwind_;
  const bool adopted_;
  std::set<uint64_t> forgotten_;  // marked until the next sweep
  base::FileDescriptor never_{eventfd(0, EFD_CLOEXEC)};
  // Hands get a descriptor with each question about a file, and the kernel refuses to run this one.
  base::FileDescriptor no_program_{open("/dev/null", O_RDONLY | O_CLOEXEC)};
};

class SimulatedMappingEvents final : public MappingEvents {
 public:
  explicit SimulatedMappingEvents(SimulatedKernel& kernel) : kernel_(kernel) {}
  std::vector<int> fds() const override { return {}; }
  std::vector<MappingEvent> Take() override {
    std::vector<MappingEvent> events = std::exchange(kernel_.mappings, {});
    std::stable_sort(events.begin(), events.end(),
                     [](const MappingEvent& a, const MappingEvent& b) { return a.time < b.time; });
    return events;
  }
  absl::Status ReplaceGroup(int, int) override { return absl::OkStatus(); }
  uint64_t lost() const override { return kernel_.mappings_lost; }

 private:
  SimulatedKernel& kernel_;
};

}  // namespace

uint64_t SimulatedKernel::Now() { return base::Now().nanoseconds(); }

absl::Status SimulatedKernel::Run() {
  if (runs_to_fail == 0) return absl::OkStatus();
  runs_to_fail--;
  return absl::ResourceExhaustedError("running a program: Cannot allocate memory");
}

void SimulatedKernel::Step(const std::string& step) {
  if (on_step != nullptr) on_step(step);
  if (steps_left.has_value() && (*steps_left)-- <= 0) throw CollectorDied{step};
}

heaptap_event SimulatedKernel::MakeEvent(heaptap_event_kind kind, pid_t pid, uint64_t process_id,
                                         const std::string& comm, uint64_t argument) const {
  heaptap_event event = {};
  event.kind = kind;
  event.tgid = pid;
  event.process_id = process_id;
  event.time = Now();
  event.argument = argument;
  comm.copy(event.comm, sizeof(event.comm) - 1);
  return event;
}

void SimulatedKernel::Send(const heaptap_event& event) {
  if (loses_events) {
    events_lost++;
  } else {
    events.push_back(event);
  }
}

RecordedProcess SimulatedKernel::Take(pid_t pid) {
  absl::MutexLock lock(&mutex);
  const auto found =
      std::find_if(processes.begin(), processes.end(), [pid](const auto& entry) { return entry.second.tgid == pid; });
  EXPECT_NE(found, processes.end()) << "process " << pid << " is not recorded";
  RecordedProcess taken = found->second;
  processes.erase(found);
  return taken;
}

uint64_t SimulatedKernel::Add(pid_t pid, uint64_t parent_id, uint32_t flags) {
  const uint64_t id = std::exchange(next_process_id_, next_process_id_ + 2);
  absl::MutexLock lock(&mutex);
  RecordedProcess& recorded = processes[id];
  recorded.tgid = pid;
  recorded.process.identity.id = id;
  recorded.process.identity.start_time = Now();
  recorded.process.identity.parent_id = parent_id;
  recorded.process.flags = flags;
  return id;
}

uint64_t SimulatedKernel::Enter(pid_t pid, const std::string& comm) {
  const uint64_t id = Add(pid, 0, settings.flags);
  Send(MakeEvent(HEAPTAP_EVENT_ENTER, pid, id, comm));
  return id;
}

void SimulatedKernel::Sample(uint64_t process_id, uint64_t bytes) {
  const uint64_t stack_id = next_stack_id_++;
  heaptap_stack& stack = stacks[stack_id];
  stack = {};
  stack.count = 1;
  stack.end = HEAPTAP_STACK_WHOLE;
  stack.frames[0] = stack_id;
  TallyEntry& entry = tallies[process_id].emplace_back();
  entry = {};
  entry.stack_id = stack_id;
  entry.tally.allocated = {
      .objects = 1, .bytes = bytes, .weight = bytes, .weighted_objects = uint64_t{1} << HEAPTAP_OBJECT_FRACTION_BITS};
  absl::MutexLock lock(&mutex);
  if (const auto found = processes.find(process_id); found != processes.end()) {
    found->second.process.figures.tallies++;
    found->second.process.figures.allocated_weight += bytes;
  }
  LiveTotals& totals = live[process_id];
  totals.objects++;
  totals.bytes += bytes;
  totals.weight += bytes;
}

uint64_t SimulatedKernel::Fork(uint64_t parent_id, pid_t child, const std::string& comm) {
  const uint64_t id = Add(child, parent_id, FlagsOf(parent_id));
  Send(MakeEvent(HEAPTAP_EVENT_FORK, child, id, comm, parent_id));
  return id;
}

uint64_t SimulatedKernel::Exec(pid_t pid, const std::string& comm) {
  const RecordedProcess old = Take(pid);
  const uint64_t old_id = old.process.identity.id;
  const uint64_t id = Add(pid, old.process.identity.parent_id, old.process.flags);
  unnoticed[old_id] = {.tgid = pid, .cause = Cause::kExec, .status = 0, .by_oom_kill = false, .peak_weight = 0};
  Send(MakeEvent(HEAPTAP_EVENT_EXEC, pid, id, comm, old_id));
  return id;
}

uint64_t SimulatedKernel::Reset(pid_t pid, uint32_t lg_sample) {
  const RecordedProcess old = Take(pid);
  const uint64_t old_id = old.process.identity.id;
  const uint64_t id = Add(pid, old.process.identity.parent_id, old.process.flags);
  unnoticed[old_id] = {.tgid = pid, .cause = Cause::kReset, .status = 0, .by_oom_kill = false, .peak_weight = 0};
  heaptap_event event = MakeEvent(HEAPTAP_EVENT_RESET, pid, id, "", old_id);
  heaptap_dump_request request = {};
  request.argument = lg_sample;
  memcpy(event.memory, &request, sizeof(request));
  Send(event);
  return id;
}

void SimulatedKernel::Exit(pid_t pid, const std::string& comm, uint32_t status, bool by_oom_kill) {
  const uint64_t id = Take(pid).process.identity.id;
  names.try_emplace({id, static_cast<uint32_t>(pid)}, ThreadName{comm, false});
  unnoticed[id] = {.tgid = pid, .cause = Cause::kExit, .status = status, .by_oom_kill = by_oom_kill, .peak_weight = 0};
  Send(MakeEvent(HEAPTAP_EVENT_EXIT, pid, id, comm, status | (by_oom_kill ? HEAPTAP_EXIT_BY_OOM_KILL : 0)));
}

uint32_t SimulatedKernel::FlagsOf(uint64_t process_id) const {
  absl::MutexLock lock(&mutex);
  return processes.at(process_id).process.flags;
}

bool SimulatedKernel::HasBooks(uint64_t process_id) const {
  absl::MutexLock lock(&mutex);
  return processes.contains(process_id) || unnoticed.contains(process_id) || tallies.contains(process_id) ||
         live.contains(process_id) || losses.contains(process_id) || closed.contains(process_id);
}

std::unique_ptr<Books> MakeSimulatedBooks(SimulatedKernel& kernel, bool adopts) {
  return std::make_unique<SimulatedBooks>(kernel, adopts);
}

std::unique_ptr<MappingEvents> MakeSimulatedMappingEvents(SimulatedKernel& kernel) {
  return std::make_unique<SimulatedMappingEvents>(kernel);
}

}  // namespace heaptap::bpf
