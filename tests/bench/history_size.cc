// SPDX-License-Identifier: Apache-2.0
//
// How large two weeks of history are: history_size FILE PROCESSES CHANGES writes the points of simulated processes into
// FILE, and prints its bytes. Each process has 1,024 call paths, which all have the same number of blocks at first;
// each second, CHANGES of its paths have one block more or less. The points are those of the daemon, except that those
// of every 10 seconds exist only for the last two hours.
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "userspace/history/retention.h"
#include "userspace/history/schema.h"
#include "userspace/history/writer.h"

namespace {

using heaptap::history::Held;
using heaptap::history::Point;
using heaptap::history::Writer;

constexpr size_t kPaths = 1024;
constexpr size_t kFramesOfPath = 20;
// As the daemon chooses them (daemon/historian.h).
constexpr size_t kRowsOfPoint = 200;
constexpr double kLoyalty = 1.25;
// What a sample of a small block stands for at the default rate.
constexpr uint64_t kSampleBytes = 524288;
constexpr uint64_t kSampleObjects = 128;
constexpr uint64_t kFirstSamples = 8;

void Require(const absl::Status& status) {
  if (status.ok()) return;
  fprintf(stderr, "history_size: %s\n", std::string(status.message()).c_str());
  exit(1);
}

struct Process {
  int64_t id = 0;
  std::vector<uint64_t> samples = std::vector<uint64_t>(kPaths, kFirstSamples);
  std::vector<bool> has_row = std::vector<bool>(kPaths);
  std::vector<uint64_t> numbers = std::vector<uint64_t>(kPaths);
};

void Change(Process& process, uint64_t times) {
  for (uint64_t i = 0; i < times; i++) {
    uint64_t& samples = process.samples[random() % kPaths];
    samples = samples == 0 || (random() & 1) != 0 ? samples + 1 : samples - 1;
    samples = std::min(samples, 2 * kFirstSamples);
  }
}

Point Look(Process& process, uint64_t passed, Writer& writer) {
  std::vector<std::pair<double, size_t>> order;
  order.reserve(kPaths);
  for (size_t i = 0; i < kPaths; i++) {
    order.emplace_back(-static_cast<double>(process.samples[i]) * (process.has_row[i] ? kLoyalty : 1), i);
  }
  std::partial_sort(order.begin(), order.begin() + kRowsOfPoint, order.end());
  std::fill(process.has_row.begin(), process.has_row.end(), false);
  Point point = {.rss_bytes = 1 << 30, .allocated_bytes = passed << 20, .lg_sample = 19};
  for (size_t rank = 0; rank < kPaths; rank++) {
    const size_t path = order[rank].second;
    const uint64_t samples = process.samples[path];
    uint64_t number = 0;
    if (rank < kRowsOfPoint) {
      if (process.numbers[path] == 0) {
        std::vector<Writer::NewFrame> new_frames;
        std::vector<heaptap::history::FileOffset> frames;
        for (size_t i = 0; i < kFramesOfPath; i++) frames.push_back({1, (path >> (i / 2)) * kFramesOfPath + i});
        const absl::StatusOr<uint64_t> added = writer.AddPath(process.id, frames, new_frames);
        Require(added.status());
        process.numbers[path] = *added;
      }
      number = process.numbers[path];
      process.has_row[path] = true;
    }
    point.rows[number] += Held{samples * kSampleBytes, samples * kSampleObjects, samples};
    point.live_bytes += samples * kSampleBytes;
    point.live_objects += samples * kSampleObjects;
  }
  return point;
}

uint64_t BytesOf(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 ? status.st_size : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string path = argv[1];
  const uint64_t changes = strtoull(argv[3], nullptr, 10);
  constexpr uint64_t kMostBytes = uint64_t{16} << 30;
  absl::StatusOr<std::unique_ptr<Writer>> writer = Writer::Open(path, kMostBytes);
  Require(writer.status());
  std::vector<Process> processes(strtoull(argv[2], nullptr, 10));
  absl::Time time = absl::FromUnixSeconds(1'790'000'400);
  const absl::Time end = time + absl::Hours(24 * 14);
  Require((*writer)->Begin());
  for (Process& process : processes) {
    const absl::StatusOr<int64_t> id =
        (*writer)->AddProcess({.service = "s",
                               .command = "c",
                               .pid = 1,
                               .process_id = static_cast<uint64_t>(&process - processes.data()),
                               .owner = 0,
                               .started = time});
    Require(id.status());
    process.id = *id;
  }
  Require((*writer)->Commit());
  while (time < end) {
    const absl::Duration step = end - time > absl::Hours(2) ? absl::Minutes(1) : absl::Seconds(10);
    const auto seconds = static_cast<uint64_t>(absl::ToInt64Seconds(step));
    Require((*writer)->Begin());
    for (Process& process : processes) {
      Change(process, seconds * changes);
      Require((*writer)->AddPoint(process.id, time, Look(process, seconds, **writer)));
    }
    Require((*writer)->Commit());
    if (absl::ToInt64Seconds(time - absl::UnixEpoch()) % 600 == 0) {
      Require(heaptap::history::Prune((*writer)->database(), heaptap::history::MostPages(kMostBytes), time).status());
    }
    time += step;
  }
  Require((*writer)->database().Execute("PRAGMA incremental_vacuum"));
  Require((*writer)->database().Execute("PRAGMA wal_checkpoint(TRUNCATE)"));
  printf("%llu\n", static_cast<unsigned long long>(BytesOf(path)));
  return 0;
}
