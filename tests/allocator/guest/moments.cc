// SPDX-License-Identifier: Apache-2.0
//
// Odd moments in the life of a process: static constructors and destructors, threads and their last destructors, fork
// with threads, exit handlers, and libraries that are opened. Blocks are allocated in one moment and freed in another,
// while sampling is switched on and off. A wrong free is the end of most hosts, so the program mostly has to survive.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "sampling.h"

namespace {

// Allocates before main, and frees after it, and after the guest's own exit handler.
struct Early {
  Early() : block(malloc(1000)), text(new std::string(100, 'x')) {}
  ~Early() {
    free(block);
    delete text;
    free(malloc(10000));
  }
  void* block;
  std::string* text;
};
Early early;

void* FillBlock(size_t size) {
  void* block = malloc(size);
  memset(block, static_cast<int>(size), size);
  return block;
}

bool IsIntact(const void* block, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(block);
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] != static_cast<unsigned char>(size)) return false;
  }
  return true;
}

// More keys than a thread has room for without an allocation.
pthread_key_t keys[40];
std::atomic<int> destructor_calls;

void Destroy(void* argument) {
  free(argument);
  free(FillBlock(300));
  destructor_calls++;
  // The last round is after the guest's.
  if (destructor_calls % 3 != 0) pthread_setspecific(keys[0], FillBlock(20));
}

thread_local std::string thread_text;

void ThreadsEnd() {
  for (pthread_key_t& key : keys) CHECK(pthread_key_create(&key, Destroy) == 0);
  for (int round = 0; round < 50; round++) {
    std::thread([] {
      thread_text.assign(1000, 'y');
      for (pthread_key_t& key : keys) pthread_setspecific(key, FillBlock(50));
    }).join();
  }
  CHECK(destructor_calls >= 50 * 40);
}

// Blocks go from thread to thread, and sampling is switched meanwhile.
void ThreadsPassBlocks() {
  constexpr int kSlots = 512;
  static std::atomic<void*> slots[kSlots];
  static std::atomic<bool> stop;
  static std::atomic<int> broken;
  auto work = [](unsigned seed) {
    for (unsigned i = 0; !stop; i++) {
      seed = seed * 1103515245 + 12345;
      const size_t size = 16 + (seed >> 8) % (i % 64 == 0 ? 100000 : 600);
      auto* block = static_cast<unsigned char*>(seed & 1 ? malloc(size) : realloc(calloc(1, 16), size));
      memcpy(block, &size, sizeof(size));
      memset(block + sizeof(size), static_cast<int>(size), size - sizeof(size));
      auto* other = static_cast<unsigned char*>(slots[(seed >> 4) % kSlots].exchange(block));
      if (other == nullptr) continue;
      size_t other_size;
      memcpy(&other_size, other, sizeof(other_size));
      for (size_t k = sizeof(size); k < other_size; k++) broken += other[k] != static_cast<unsigned char>(other_size);
      free(other);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; i++) threads.emplace_back(work, i);
  for (int i = 0; i < 40; i++) {
    usleep(5000);
    i % 2 == 0 ? SwitchSamplingOff() : SwitchSamplingOn();
    const pid_t child = fork();
    if (child == 0) {
      for (int k = 0; k < 2000; k++) free(FillBlock(static_cast<size_t>(k)));
      std::string text(5000, 'z');
      _exit(text.size() == 5000 ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  SwitchSamplingOn();
  stop = true;
  for (auto& thread : threads) thread.join();
  for (auto& slot : slots) free(slot.exchange(nullptr));
  CHECK(broken == 0);
}

// Each fork handler allocates, before the host's own and after them.
void* fork_block;
void BeforeFork() { fork_block = FillBlock(400); }
void AfterFork() {
  CHECK(IsIntact(fork_block, 400));
  free(fork_block);
}

void ForkHandlers() {
  pthread_atfork(BeforeFork, AfterFork, AfterFork);
  for (int i = 0; i < 20; i++) {
    const pid_t child = fork();
    if (child == 0) exit(failures);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
}

// What libc allocates for a caller, who frees it.
void BlocksOfLibc() {
  for (int i = 0; i < 1000; i++) {
    free(strdup("a text of libc"));
    char* text = nullptr;
    CHECK(asprintf(&text, "%d and more", i) > 0);
    free(text);
    dlsym(RTLD_DEFAULT, "there_is_no_such_symbol");
    CHECK(dlerror() != nullptr);
  }
  char* line = nullptr;
  size_t size = 0;
  FILE* file = fopen("/proc/self/maps", "r");
  while (getline(&line, &size, file) > 0) line = static_cast<char*>(realloc(line, ++size));
  free(line);
  fclose(file);
}

// The plugin takes malloc and free from libc if RTLD_DEEPBIND is obeyed. Its names are those of deepbind_plugin.c.
void OpenDeep(const char* path) {
  void* plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  CHECK(plugin != nullptr);
  if (plugin == nullptr) return;
  auto take = reinterpret_cast<void* (*)(size_t)>(dlsym(plugin, "TakeFromPlugin"));
  auto release = reinterpret_cast<void (*)(void*)>(dlsym(plugin, "GiveToPlugin"));
  for (int i = 0; i < 1000; i++) {
    free(take(100));
    release(malloc(100));
    release(new char[10]);
  }
  dlclose(plugin);
}

void AtExit() {
  free(FillBlock(3000));
  if (failures != 0) _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  void* old = FillBlock(777);
  SwitchSamplingOn();
  atexit(AtExit);
  ThreadsEnd();
  ThreadsPassBlocks();
  ForkHandlers();
  BlocksOfLibc();
  OpenDeep(argv[1]);
  CHECK(IsIntact(old, 777));
  free(old);
  static void* stays = FillBlock(100);
  CHECK(stays != nullptr);
  // The children of the loops above and this process exit with sampling on.
  return failures != 0;
}
