// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/need_bpf.h"
#include "tests/unit/support/unified_groups.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/perf_mapping_events.h"

namespace heaptap::bpf {
namespace {

constexpr size_t kPage = 4096;

// The events of one process, after it has ended.
template <typename Behaviour>
std::vector<MappingEvent> EventsOfChild(MappingEvents& events, pid_t* pid, Behaviour behaviour) {
  *pid = fork();
  if (*pid == 0) {
    behaviour();
    _exit(1);
  }
  waitpid(*pid, nullptr, 0);
  std::vector<MappingEvent> all = events.Take();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const MappingEvent& a, const MappingEvent& b) { return a.time < b.time; }));
  std::erase_if(all, [&](const MappingEvent& event) { return event.pid != *pid; });
  return all;
}

const MappingEvent* FindMap(const std::vector<MappingEvent>& events, absl::string_view suffix) {
  const auto found = std::find_if(events.begin(), events.end(), [&](const MappingEvent& event) {
    return event.kind == MappingEvent::kMap && absl::EndsWith(event.mapping.path, suffix);
  });
  return found == events.end() ? nullptr : &*found;
}

TEST(MappingEvents, BuffersOfManyProcessorsAreSmaller) {
  EXPECT_EQ(PerfMappingEvents::DataBytes(1), size_t{512} << 10);
  EXPECT_EQ(PerfMappingEvents::DataBytes(64), size_t{512} << 10);
  EXPECT_EQ(PerfMappingEvents::DataBytes(65), size_t{256} << 10);
  // A power of two, and more than one record can have.
  EXPECT_EQ(PerfMappingEvents::DataBytes(200), size_t{128} << 10);
  EXPECT_EQ(PerfMappingEvents::DataBytes(8192), size_t{128} << 10);
}

TEST(MappingEvents, SeeTheExecOfAProcessThatIsDead) {
  absl::StatusOr<std::unique_ptr<MappingEvents>> events = PerfMappingEvents::Start();
  NEED_BPF(events.status());
  pid_t pid;
  const std::vector<MappingEvent> seen = EventsOfChild(**events, &pid, [] { execl("/bin/true", "true", nullptr); });
  ASSERT_GE(seen.size(), 3);
  EXPECT_EQ(seen[0].kind, MappingEvent::kFork);
  EXPECT_EQ(seen[0].parent, getpid());
  const auto exec =
      std::find_if(seen.begin(), seen.end(), [](const MappingEvent& e) { return e.kind == MappingEvent::kExec; });
  ASSERT_NE(exec, seen.end());
  const MappingEvent* program = FindMap(seen, "/true");
  ASSERT_NE(program, nullptr);
  EXPECT_GE(program->time, exec->time) << "an exec comes before what it maps";
  EXPECT_LT(program->mapping.start, program->mapping.end);
  EXPECT_NE(program->mapping.inode, 0);
  EXPECT_NE(FindMap(seen, "/libc.so.6"), nullptr);
  EXPECT_EQ((*events)->lost(), 0);
}

TEST(MappingEvents, SeeADlopen) {
  absl::StatusOr<std::unique_ptr<MappingEvents>> events = PerfMappingEvents::Start();
  NEED_BPF(events.status());
  pid_t pid;
  const std::vector<MappingEvent> seen =
      EventsOfChild(**events, &pid, [] { _exit(dlopen("libthread_db.so.1", RTLD_NOW) != nullptr ? 0 : 1); });
  const MappingEvent* library = FindMap(seen, "/libthread_db.so.1");
  ASSERT_NE(library, nullptr);
  EXPECT_EQ(
      std::count_if(seen.begin(), seen.end(), [](const MappingEvent& e) { return e.kind == MappingEvent::kExec; }), 0);
}

// The kernel puts a record of the loss in front of the next event, and there may be none for hours.
TEST(MappingEvents, LossesAreKnownAtOnce) {
  absl::StatusOr<std::unique_ptr<MappingEvents>> events = PerfMappingEvents::Start();
  NEED_BPF(events.status());
  constexpr int kMappings = 20'000;  // a buffer has room for some thousand
  pid_t pid;
  const std::vector<MappingEvent> seen = EventsOfChild(**events, &pid, [] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    const int program = open("/proc/self/exe", O_RDONLY);
    if (program < 0 || sched_setaffinity(0, sizeof(one), &one) != 0) _exit(1);
    for (int i = 0; i < kMappings; i++) {
      void* code = mmap(nullptr, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE, program, 0);
      if (code == MAP_FAILED || munmap(code, kPage) != 0) _exit(1);
    }
    _exit(0);
  });
  const auto mapped = static_cast<uint64_t>(std::ranges::count(seen, MappingEvent::kMap, &MappingEvent::kind));
  EXPECT_LT(mapped, kMappings);
  EXPECT_GE((*events)->lost(), kMappings - mapped);
  const uint64_t lost = (*events)->lost();
  (*events)->Take();
  EXPECT_EQ((*events)->lost(), lost) << "each loss counts once";
}

TEST(MappingEvents, ThreadsAreNoForks) {
  absl::StatusOr<std::unique_ptr<MappingEvents>> events = PerfMappingEvents::Start();
  NEED_BPF(events.status());
  pid_t pid;
  const std::vector<MappingEvent> seen = EventsOfChild(**events, &pid, [] {
    pthread_t thread;
    pthread_create(
        &thread, nullptr, [](void*) -> void* { return nullptr; }, nullptr);
    pthread_join(thread, nullptr);
    _exit(0);
  });
  EXPECT_EQ(
      std::count_if(seen.begin(), seen.end(), [](const MappingEvent& e) { return e.kind == MappingEvent::kFork; }), 1);
}

// The events of a child that joins a group first, or of one in none.
std::vector<MappingEvent> EventsInGroup(MappingEvents& events, UnifiedGroup* group, pid_t* pid) {
  return EventsOfChild(events, pid, [group] {
    if (group != nullptr) group->Enter();
    execl("/bin/true", "true", nullptr);
  });
}

TEST(MappingEvents, OfControlGroupsOnly) {
  UnifiedGroup wanted("wanted");
  UnifiedGroup other("other");
  const base::FileDescriptor folder(open(wanted.folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  absl::StatusOr<std::unique_ptr<MappingEvents>> events = PerfMappingEvents::Start({folder.get()});
  NEED_BPF(events.status());
  pid_t pid;
  EXPECT_NE(FindMap(EventsInGroup(**events, &wanted, &pid), "/true"), nullptr);
  EXPECT_THAT(EventsInGroup(**events, nullptr, &pid), testing::IsEmpty());
  EXPECT_THAT(EventsInGroup(**events, &other, &pid), testing::IsEmpty());
}

TEST(MappingEvents, FollowAGroupThatReplacesAnother) {
  UnifiedGroup before("before");
  UnifiedGroup now("now");
  const base::FileDescriptor old(open(before.folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const base::FileDescriptor made(open(now.folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  absl::StatusOr<std::unique_ptr<MappingEvents>> events = PerfMappingEvents::Start({{old.get(), -1}});
  NEED_BPF(events.status());
  const size_t buffers = (*events)->fds().size();
  pid_t pid;
  EXPECT_THAT(EventsInGroup(**events, &now, &pid), testing::IsEmpty());
  EXPECT_NE(FindMap(EventsInGroup(**events, &before, &pid), "/true"), nullptr);
  pid_t last;
  if ((last = fork()) == 0) {
    before.Enter();
    execl("/bin/true", "true", nullptr);
    _exit(1);
  }
  waitpid(last, nullptr, 0);
  ASSERT_TRUE((*events)->ReplaceGroup(old.get(), made.get()).ok());
  EXPECT_EQ((*events)->fds().size(), buffers);
  std::vector<MappingEvent> kept = (*events)->Take();
  std::erase_if(kept, [&](const MappingEvent& event) { return event.pid != last; });
  EXPECT_NE(FindMap(kept, "/true"), nullptr) << "events from before are not lost";
  EXPECT_NE(FindMap(EventsInGroup(**events, &now, &pid), "/true"), nullptr);
  EXPECT_THAT(EventsInGroup(**events, &before, &pid), testing::IsEmpty());
}

}  // namespace
}  // namespace heaptap::bpf
