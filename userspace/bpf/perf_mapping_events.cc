// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/perf_mapping_events.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/bpf/kernel_error.h"

namespace heaptap::bpf {
namespace {

constexpr size_t kRingPage = 4096;
// A record of an mmap has about 150 bytes, so each CPU has room for some thousand of them between two reads.
constexpr size_t kMostDataBytes = 128 * kRingPage;
// The buffers of all CPUs together. One thread reads them, so hundreds of CPUs need no more room.
constexpr size_t kAllDataBytes = 64 * kMostDataBytes;
// The size of a record has 16 bits, so a buffer with more room than this has lost nothing.
constexpr size_t kMaxRecordBytes = size_t{1} << 16;
// So each buffer has more room than that.
constexpr size_t kLeastDataBytes = 2 * kMaxRecordBytes;

// The fields that sample_id_all adds at the end of each record, for sample_type TID | TIME (perf_event_open(2)).
struct SampleId {
  uint32_t pid, tid;
  uint64_t time;
};

struct ForkRecord {
  uint32_t pid, parent_pid, tid, parent_tid;
};

struct CommRecord {
  uint32_t pid, tid;
};

struct Mmap2Record {
  uint32_t pid, tid;
  uint64_t address, length, file_offset;
  uint32_t major, minor;
  uint64_t inode, inode_generation;
  uint32_t protection, flags;
  // then the path, NUL-terminated, padded to 8 bytes
};

// The result of read(2) for PERF_FORMAT_LOST (Linux 6.0).
struct ReadLost {
  uint64_t value;
  uint64_t lost;
};

// The body of a record, copied out of the ring.
class Body {
 public:
  explicit Body(std::vector<char> bytes) : bytes_(std::move(bytes)) {}

  template <typename T>
  bool Get(size_t offset, T* value) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return false;
    memcpy(value, bytes_.data() + offset, sizeof(T));
    return true;
  }
  bool GetSampleId(SampleId* id) const { return bytes_.size() >= sizeof(*id) && Get(bytes_.size() - sizeof(*id), id); }
  std::string GetString(size_t offset) const {
    if (offset >= bytes_.size()) return "";
    return std::string(bytes_.data() + offset, strnlen(bytes_.data() + offset, bytes_.size() - offset));
  }

 private:
  std::vector<char> bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MappingEvents>> PerfMappingEvents::Start(absl::Span<const int> groups) {
  std::unique_ptr<PerfMappingEvents> events(new PerfMappingEvents);
  if (groups.empty()) {
    if (absl::Status status = events->OpenGroup(kEveryone); !status.ok()) return status;
  }
  for (const int group : groups) {
    if (group < 0) continue;
    if (absl::Status status = events->OpenGroup(group); !status.ok()) return status;
  }
  return events;
}

size_t PerfMappingEvents::DataBytes(size_t cpus) {
  // The kernel wants a power of two.
  return std::clamp(std::bit_floor(kAllDataBytes / std::max<size_t>(cpus, 1)), kLeastDataBytes, kMostDataBytes);
}

absl::Status PerfMappingEvents::OpenGroup(int group) {
  const int cpus = libbpf_num_possible_cpus();
  if (cpus < 0) return KernelError(cpus, "counting CPUs");
  data_bytes_ = DataBytes(cpus);
  const size_t before = buffers_.size();
  for (int cpu = 0; cpu < cpus; cpu++) {
    if (absl::Status status = OpenCpu(cpu, group); !status.ok()) return status;
  }
  return buffers_.size() > before ? absl::OkStatus() : absl::FailedPreconditionError("no CPU allows perf events");
}

absl::Status PerfMappingEvents::ReplaceGroup(int before, int now) {
  if (now >= 0) {
    if (absl::Status status = OpenGroup(now); !status.ok()) return status;
  }
  if (before < 0) return absl::OkStatus();
  std::erase_if(buffers_, [&](Buffer& buffer) {
    if (buffer.group != before) return false;
    Read(buffer, pending_);
    lost_ += buffer.lost;
    Close(buffer);
    return true;
  });
  return absl::OkStatus();
}

absl::Status PerfMappingEvents::OpenCpu(int cpu, int group) {
  perf_event_attr attributes = {};
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.size = sizeof(attributes);
  attributes.config = PERF_COUNT_SW_DUMMY;
  attributes.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME;
  attributes.sample_id_all = 1;
  attributes.mmap = 1;
  attributes.mmap2 = 1;
  attributes.comm = 1;
  attributes.comm_exec = 1;
  attributes.task = 1;
  attributes.exclude_kernel = 1;
  attributes.read_format = PERF_FORMAT_LOST;
  attributes.watermark = 1;
  attributes.wakeup_watermark = 1;  // at the first event
  attributes.use_clockid = 1;
  attributes.clockid = CLOCK_MONOTONIC;
  Buffer buffer;
  buffer.group = group;
  const unsigned flags = PERF_FLAG_FD_CLOEXEC | (group == kEveryone ? 0 : PERF_FLAG_PID_CGROUP);
  buffer.fd = syscall(SYS_perf_event_open, &attributes, group, cpu, -1, flags);
  if (buffer.fd < 0) {
    if (errno == ENODEV) return absl::OkStatus();  // a possible CPU that is offline
    return KernelError(errno, "perf_event_open for mappings");
  }
  buffer.memory = mmap(nullptr, kRingPage + data_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, buffer.fd, 0);
  if (buffer.memory == MAP_FAILED) {
    const int error = errno;
    close(buffer.fd);
    return KernelError(error, "mapping a perf buffer");
  }
  buffers_.push_back(buffer);
  return absl::OkStatus();
}

PerfMappingEvents::~PerfMappingEvents() {
  for (const Buffer& buffer : buffers_) Close(buffer);
}

void PerfMappingEvents::Close(const Buffer& buffer) const {
  munmap(buffer.memory, kRingPage + data_bytes_);
  close(buffer.fd);
}

std::vector<int> PerfMappingEvents::fds() const {
  std::vector<int> fds;
  for (const Buffer& buffer : buffers_) fds.push_back(buffer.fd);
  return fds;
}

uint64_t PerfMappingEvents::lost() const {
  uint64_t sum = lost_;
  for (const Buffer& buffer : buffers_) sum += buffer.lost;
  return sum;
}

std::vector<MappingEvent> PerfMappingEvents::Take() {
  std::vector<MappingEvent> events = std::exchange(pending_, {});
  for (Buffer& buffer : buffers_) Read(buffer, events);
  std::stable_sort(events.begin(), events.end(),
                   [](const MappingEvent& a, const MappingEvent& b) { return a.time < b.time; });
  return events;
}

void PerfMappingEvents::Read(Buffer& buffer, std::vector<MappingEvent>& events) const {
  auto* control = static_cast<perf_event_mmap_page*>(buffer.memory);
  const char* data = static_cast<const char*>(buffer.memory) + kRingPage;
  const uint64_t head = __atomic_load_n(&control->data_head, __ATOMIC_ACQUIRE);
  uint64_t tail = control->data_tail;
  const uint64_t taken = tail;
  const auto copy = [&](uint64_t from, void* to, size_t size) {
    const size_t begin = from % data_bytes_;
    const size_t first = std::min(size, data_bytes_ - begin);
    memcpy(to, data + begin, first);
    memcpy(static_cast<char*>(to) + first, data, size - first);
  };
  while (head - tail >= sizeof(perf_event_header)) {
    perf_event_header header;
    copy(tail, &header, sizeof(header));
    if (header.size < sizeof(header) || header.size > head - tail) break;
    std::vector<char> bytes(header.size - sizeof(header));
    copy(tail + sizeof(header), bytes.data(), bytes.size());
    tail += header.size;
    const Body body(std::move(bytes));

    SampleId id;
    if (!body.GetSampleId(&id)) continue;
    MappingEvent event = {};
    event.time = id.time;
    if (Mmap2Record map; header.type == PERF_RECORD_MMAP2 && body.Get(0, &map)) {
      event.kind = MappingEvent::kMap;
      event.pid = map.pid;
      event.mapping.start = map.address;
      event.mapping.end = map.address + map.length;
      event.mapping.file_offset = map.file_offset;
      event.mapping.device_major = map.major;
      event.mapping.device_minor = map.minor;
      event.mapping.inode = map.inode;
      event.mapping.generation = static_cast<uint32_t>(map.inode_generation);
      event.mapping.path = body.GetString(sizeof(map));
    } else if (CommRecord comm; header.type == PERF_RECORD_COMM && (header.misc & PERF_RECORD_MISC_COMM_EXEC) != 0 &&
                                body.Get(0, &comm)) {
      event.kind = MappingEvent::kExec;
      event.pid = comm.pid;
    } else if (ForkRecord fork; header.type == PERF_RECORD_FORK && body.Get(0, &fork) && fork.pid != fork.parent_pid) {
      event.kind = MappingEvent::kFork;
      event.pid = fork.pid;
      event.parent = fork.parent_pid;
    } else if (ForkRecord end; header.type == PERF_RECORD_EXIT && body.Get(0, &end) && end.pid == end.tid) {
      event.kind = MappingEvent::kEnd;
      event.pid = end.pid;
    } else {
      continue;
    }
    events.push_back(std::move(event));
  }
  __atomic_store_n(&control->data_tail, tail, __ATOMIC_RELEASE);
  // The kernel writes a record of the loss (PERF_RECORD_LOST) only in front of the next event, which may never come.
  // Its counter is asked only if there can be a loss, because that interrupts the CPU of the buffer.
  if (__atomic_load_n(&control->data_head, __ATOMIC_ACQUIRE) - taken < data_bytes_ - kMaxRecordBytes) return;
  if (ReadLost answer; read(buffer.fd, &answer, sizeof(answer)) == sizeof(answer)) buffer.lost = answer.lost;
}

}  // namespace heaptap::bpf
