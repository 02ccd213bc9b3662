// SPDX-License-Identifier: Apache-2.0
//
// Measures ways to take a stack in the kernel (tests/bench/stacks.bpf.c), with heaptap's own books and unwind tables:
//
//     stacks OBJECT LIBRARY PROGRAM
//
// A line "WAY FRAMES COUNT" on stdin runs `PROGRAM FRAMES COUNT` with LIBRARY preloaded, every allocation sampled, and
// WAY's program attached; PROGRAM prints nanoseconds. The answer is a line with these, the nanoseconds of one run of
// WAY's program according to the kernel, and the number of frames of all stacks except the first few: 0 if they were
// not whole, -1 if they differ.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bpf/books.h"
#include "bpf/events.h"
#include "bpf/unwind.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/probes.h"
#include "userspace/crews/errands.h"
#include "userspace/crews/hands.h"
#include "userspace/crews/looks.h"
#include "userspace/elf/mappings.h"
#include "userspace/elf/probes.h"
#include "userspace/process/maps.h"
#include "userspace/tables/unwind_tables.h"
#include "userspace/worker/reader_jobs.h"
#include "userspace/worker/worker.h"

namespace {

using heaptap::base::FileDescriptor;
using heaptap::bpf::AttachedProbe;
using heaptap::bpf::Books;
using heaptap::bpf::KernelBooks;

// Allocations of a program that must not be measured.
constexpr uint64_t kOthers = 100;

template <typename Value>
Value Check(absl::StatusOr<Value> value) {
  if (value.ok()) return *std::move(value);
  std::cerr << value.status().message() << "\n";
  exit(1);
}

void Check(bool success, absl::string_view what) {
  if (success) return;
  std::cerr << what << ": " << strerror(errno) << "\n";
  exit(1);
}

template <typename Info>
Info ReadInfo(int fd, Info info = {}) {
  uint32_t size = sizeof(info);
  Check(bpf_obj_get_info_by_fd(fd, &info, &size) == 0, "asking the kernel about a program or a map");
  return info;
}

// The maps of a program by name.
std::map<std::string, heaptap::base::FileDescriptor> OpenMaps(int program) {
  std::array<uint32_t, 64> ids;
  bpf_prog_info info = {};
  info.nr_map_ids = ids.size();
  info.map_ids = reinterpret_cast<uint64_t>(ids.data());
  info = ReadInfo(program, info);
  std::map<std::string, heaptap::base::FileDescriptor> maps;
  for (uint32_t i = 0; i < info.nr_map_ids; i++) {
    heaptap::base::FileDescriptor map(bpf_map_get_fd_by_id(ids[i]));
    Check(map.valid(), "opening a program's map");
    maps[ReadInfo<bpf_map_info>(map.get()).name] = std::move(map);
  }
  return maps;
}

// Runs of eBPF programs so far, and their nanoseconds.
struct Runs {
  uint64_t count;
  uint64_t nanoseconds;
};

Runs ReadRuns(int program) {
  const auto info = ReadInfo<bpf_prog_info>(program);
  return {info.run_cnt, info.run_time_ns};
}

class Bench {
 public:
  Bench(const char* object, const char* library, const char* program)
      : library_(library),
        program_(program),
        books_(Check(KernelBooks::Load({}))),
        tables_({.maps = books_->unwind(),
                 .identify = books_->program(heaptap::bpf::Program::kIdentify),
                 .looks = looks_,
                 .orders = looks_,
                 .errands = errands_},
                HEAPTAP_DEFAULT_UNWIND_BYTES) {
    object_ = bpf_object__open_file(object, nullptr);
    Check(object_ != nullptr, object);
    std::map<std::string, heaptap::base::FileDescriptor> maps =
        OpenMaps(books_->program(heaptap::bpf::Program::kSample));
    bpf_map* map;
    bpf_object__for_each_map(map, object_) {
      const auto shared = maps.find(bpf_map__name(map));
      if (shared == maps.end() || bpf_map__is_internal(map)) continue;
      Check(bpf_map__reuse_fd(map, shared->second.get()) == 0, "sharing a map");
    }
    Check(bpf_object__load(object_) == 0, "loading the programs");
    tables_.EnterVdso();
    Attach(HEAPTAP_PROBE_FREE, "ignore", free_probes_);
    statistics_ = heaptap::base::FileDescriptor(bpf_enable_stats(BPF_STATS_RUN_TIME));
    Check(statistics_.valid(), "switching on the kernel's statistics of programs");
  }

  std::string Measure(const std::string& way, const std::string& frames, const std::string& count) {
    if (way != way_) {
      alloc_probes_.clear();
      Attach(HEAPTAP_PROBE_ALLOC, way, alloc_probes_);
      way_ = way;
    }
    TakeDepths();
    const int program = bpf_program__fd(bpf_object__find_program_by_name(object_, way.c_str()));
    const Runs before = ReadRuns(program);
    const std::string nanoseconds = Run({program_, frames, count});
    const Runs after = ReadRuns(program);
    const double each = double(after.nanoseconds - before.nanoseconds) / double(after.count - before.count);
    return absl::StrCat(nanoseconds, " ", each, " ", TakeDepths());
  }

 private:
  void Attach(absl::string_view probe, const std::string& name, std::vector<AttachedProbe>& probes) {
    const int program = bpf_program__fd(bpf_object__find_program_by_name(object_, name.c_str()));
    Check(program >= 0, name);
    heaptap::base::FileDescriptor file(open(library_.c_str(), O_RDONLY | O_CLOEXEC));
    Check(file.valid(), library_);
    for (const auto& site : Check(heaptap::elf::ReadProbes(file.get(), {HEAPTAP_PROVIDER_OTEL}))) {
      if (site.name != probe) continue;
      probes.push_back(
          Check(AttachedProbe::Attach(program, {library_, site.file_offset, site.semaphore_file_offset}, -1)));
    }
    Check(!probes.empty(), library_);
  }

  // The number of frames of the stacks, as in the answer; resets the counts.
  int TakeDepths() {
    bpf_map* map = bpf_object__find_map_by_name(object_, "depths");
    int depth = -1;
    uint64_t sum = 0;
    uint64_t most = 0;
    for (uint32_t frames = 0; frames <= HEAPTAP_MAX_FRAMES; frames++) {
      uint64_t stacks = 0;
      const uint64_t none = 0;
      bpf_map__lookup_elem(map, &frames, sizeof(frames), &stacks, sizeof(stacks), 0);
      bpf_map__update_elem(map, &frames, sizeof(frames), &none, sizeof(none), BPF_ANY);
      sum += stacks;
      if (stacks <= most) continue;
      most = stacks;
      depth = static_cast<int>(frames);
    }
    return sum - most <= kOthers ? depth : -1;
  }

  // Runs a command to its end, and provides the unwind tables for its stacks. Returns its output.
  std::string Run(const std::vector<std::string>& command) {
    int gate[2];
    int output[2];
    Check(pipe2(gate, O_CLOEXEC) == 0 && pipe2(output, O_CLOEXEC) == 0, "pipe2");
    const pid_t child = fork();
    Check(child >= 0, "fork");
    if (child == 0) {
      char nothing;
      dup2(output[1], STDOUT_FILENO);
      setenv("LD_PRELOAD", library_.c_str(), 1);
      setenv(HEAPTAP_CONF_VARIABLE, "lg_prof_sample:0", 1);
      std::vector<char*> arguments;
      for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
      arguments.push_back(nullptr);
      if (read(gate[0], &nothing, 1) == 1) execv(arguments[0], arguments.data());
      _exit(127);
    }
    const heaptap::base::FileDescriptor gate_in(gate[0]);
    const heaptap::base::FileDescriptor gate_out(gate[1]);
    const heaptap::base::FileDescriptor output_out(output[0]);
    close(output[1]);
    const uint64_t process_id = Check(books_->processes().Track(child, false, {}));
    Check(write(gate_out.get(), "", 1) == 1, "write");

    std::string printed;
    pollfd wait[] = {{output_out.get(), POLLIN, 0}, {books_->events_fd(), POLLIN, 0}};
    for (bool open = true; open;) {
      poll(wait, 2, -1);
      Serve();
      char buffer[256];
      if (wait[0].revents == 0) continue;
      const ssize_t size = read(output_out.get(), buffer, sizeof(buffer));
      if (size > 0) printed.append(buffer, size);
      open = size > 0;
    }
    int status = -1;
    const bool has_ended = waitpid(child, &status, 0) == child;
    Check(has_ended && status == 0, absl::StrCat(command[0], " failed, status ", status));
    Serve();
    books_->processes().Untrack(child);
    Check(books_->Forget({process_id}).ok(), "closing the books");
    while (!printed.empty() && printed.back() == '\n') printed.pop_back();
    return printed;
  }

  void Serve() {
    for (const heaptap_event& event : Check(books_->TakeEvents())) {
      if (event.kind != HEAPTAP_EVENT_TABLE_WANTED) continue;
      heaptap_file_key key;
      memcpy(&key, event.memory, sizeof(key));
      tables_.Find(key, event.tgid, event.argument, {}, [](const heaptap::elf::Mapping&) {});
    }
    const auto is_over = [this] {
      looks_.HandleDone();
      return !tables_.IsReading();
    };
    errands_.WaitUntil(is_over, heaptap::base::Now() + absl::Minutes(1));
  }

  const std::string library_;
  const std::string program_;
  std::unique_ptr<Books> books_;
  heaptap::worker::Looks looks_{
      books_->program(heaptap::bpf::Program::kIdentify), {}, heaptap::worker::Hands::kDefault};
  heaptap::worker::Errands errands_{heaptap::worker::Urgency::kForeground};
  heaptap::recording::UnwindTables tables_;
  bpf_object* object_ = nullptr;
  heaptap::base::FileDescriptor statistics_;
  std::string way_;
  std::vector<AttachedProbe> free_probes_;
  std::vector<AttachedProbe> alloc_probes_;
};

}  // namespace

int main(int argc, char** argv) {
  heaptap::worker::RunIfWorker(argc, argv, heaptap::worker::AllReaderJobs());
  if (argc != 4) {
    std::cerr << "usage: stacks OBJECT LIBRARY PROGRAM\n";
    return 2;
  }
  Bench bench(argv[1], argv[2], argv[3]);
  std::string way, frames, count;
  while (std::cin >> way >> frames >> count) std::cout << bench.Measure(way, frames, count) << std::endl;
  return 0;
}
