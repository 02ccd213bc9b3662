// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>
#include <stdio.h>
#include <sys/prctl.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "userspace/base/messages.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/process/control_block.h"
#include "userspace/worker/reader_jobs.h"
#include "userspace/worker/worker.h"

namespace {

// Lines of at most 80 letters.
std::vector<std::string> ForAStart() {
  return {"For a start, as root:",
          "  heaptap doctor          shows whether this machine can record",
          "  heaptap run -- PROGRAM  records a program and its children until they end",
          "  heaptap attach PID      records a process that has a library of heaptap",
          "  heaptap daemon          records every such process of the machine",
          "  heaptap report FILE     shows who holds the memory, of a dump of these"};
}

// From this size on, freed memory goes back to the kernel at once. By default the C library raises its threshold to
// 32 MiB when such blocks are freed (mallopt(3)), and then keeps what tables and profiles have used in each of its
// arenas.
constexpr int kReturnedBytes = 1 << 20;
// This much free memory stays at the end of the heap. Taking it and giving it back makes a thread wait for others that
// change mappings.
constexpr int kKeptBytes = 16 << 20;
// By default, each of a daemon's short-lived threads gets a heap of its own, which keeps what the thread has freed.
constexpr int kArenas = 2;

// Detects truncated output: a full disk, a closed pipe.
int CheckStdout(int status) {
  const bool is_written = fflush(stdout) == 0 && ferror(stdout) == 0;
  // A failed command has already printed its error.
  if (is_written || status != heaptap::cli::kSuccess) return status;
  heaptap::base::Say("cannot write the whole output to stdout");
  return heaptap::cli::kFailure;
}

}  // namespace

int main(int argc, char** argv) {
  heaptap::worker::RunIfWorker(argc, argv, heaptap::worker::AllReaderJobs());
  mallopt(M_MMAP_THRESHOLD, kReturnedBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_ARENA_MAX, kArenas);
  prctl(PR_SET_NAME, heaptap::process::kCollectorName);
  // The words after "--" are the program's own command line and must not be parsed.
  char** const end = argv + argc;
  char** const dashes = std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  const std::vector<std::string> program(dashes, end);  // with the dashes
  const std::vector<std::string> words(argv + 1, dashes);
  heaptap::cli::CommandLine line;
  line.ForAStart(ForAStart());
  heaptap::cli::AddRun(line, program);
  heaptap::cli::AddAttach(line);
  heaptap::cli::AddDoctor(line);
  heaptap::cli::AddDaemon(line, words);
  heaptap::cli::AddList(line);
  heaptap::cli::AddDump(line);
  heaptap::cli::AddActive(line);
  heaptap::cli::AddRate(line);
  heaptap::cli::AddStats(line);
  heaptap::cli::AddDiff(line);
  heaptap::cli::AddReport(line);
  heaptap::cli::AddView(line);
  heaptap::cli::AddTop(line);
  heaptap::cli::AddHistory(line);
  heaptap::cli::AddMark(line);
  return CheckStdout(line.Run(words));
}
