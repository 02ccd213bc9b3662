// SPDX-License-Identifier: Apache-2.0
//
// What a C++ program may expect of malloc and its relatives beyond behaviour.c: destructors of thread_local variables,
// plugins that throw and go, threads that are cancelled. Run it with libheaptap.so preloaded.
//
//   cxx_behaviour PLUGIN LIBRARY      LIBRARY: libheaptap.so, also to be loaded and closed as a plugin
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cxx_plugin.h"

namespace {

void Check(bool condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "cxx_behaviour: %s\n", what);
  exit(1);
}

// --- thread_local ----------------------------------------------------------------------------------------------------

std::atomic<int> destroyed;

// Allocates and frees as it goes, after the thread's own function has returned.
struct Keeper {
  std::vector<std::string> texts;
  ~Keeper() {
    for (const std::string& text : texts) Check(text == std::string(text.size(), text[0]), "a thread_local's contents");
    texts.clear();
    for (int i = 0; i < 100; i++) texts.emplace_back(static_cast<size_t>(i * 37), 'y');
    destroyed++;
  }
};

thread_local Keeper keeper;
thread_local std::unique_ptr<std::string> given;  // another thread has allocated it

void ThreadLocals() {
  constexpr int kThreads = 200;
  for (int i = 0; i < kThreads; i++) {
    auto text = std::make_unique<std::string>(1000, 'z');
    std::thread([i, text = std::move(text)]() mutable {
      for (int j = 1; j < 50; j++)
        keeper.texts.emplace_back(static_cast<size_t>(i + j * 11), static_cast<char>('a' + j % 26));
      given = std::move(text);
    }).join();
  }
  Check(destroyed == kThreads, "destructors of thread_local variables");
}

// --- plugins ---------------------------------------------------------------------------------------------------------

void Plugin(const char* path) {
  std::vector<char*> left;  // what plugins that are gone have allocated
  for (int round = 0; round < 20; round++) {
    void* plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    Check(plugin != nullptr, "dlopen of the plugin");
    const auto make = reinterpret_cast<MakePluginObject>(dlsym(plugin, "make_plugin_object"));
    std::unique_ptr<PluginObject> object(make("a text that is too long to lie in the string itself"));
    Check(object->Text().size() == 51, "the plugin's text");
    bool caught = false;
    try {
      object->Throw();
    } catch (const std::runtime_error& error) {
      caught = std::string(error.what()) == object->Text();
    }
    Check(caught, "the plugin's exception");
    for (size_t size : {size_t{1}, size_t{100}, size_t{5000}, size_t{100000}}) left.push_back(object->Allocate(size));
    object.reset();
    Check(dlclose(plugin) == 0, "dlclose of the plugin");
  }
  for (char* block : left) {
    Check(block[0] == 'p', "a block outlives its plugin");
    delete[] block;
  }
}

// A second copy of the library, and the end of it: it stays, and so do its blocks.
void LibraryAsPlugin(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  Check(library != nullptr, "dlopen of the library");
  const auto allocate = reinterpret_cast<void* (*)(size_t)>(dlsym(library, "malloc"));
  const auto release = reinterpret_cast<void (*)(void*)>(dlsym(library, "free"));
  auto* block = static_cast<char*>(allocate(100));
  memset(block, 'b', 100);
  dlclose(library);
  Check(block[99] == 'b', "a block outlives dlclose");
  release(block);
  release(allocate(100000));
}

// --- pthread_cancel --------------------------------------------------------------------------------------------------

std::atomic<bool> is_cancelled;
std::atomic<bool> has_allocated;

// malloc is no cancellation point: a thread that is to be cancelled comes through it, and leaves no lock behind.
void* AllocatesUntilTheEnd(void*) {
  while (!is_cancelled) free(malloc(100));
  std::vector<void*> blocks;
  for (size_t i = 0; i < 20000; i++) blocks.push_back(malloc(i * 7 % 100000));
  for (void* block : blocks) free(block);
  has_allocated = true;
  pthread_testcancel();
  return nullptr;
}

void Cancel() {
  for (int i = 0; i < 20; i++) {
    is_cancelled = has_allocated = false;
    pthread_t thread;
    Check(pthread_create(&thread, nullptr, AllocatesUntilTheEnd, nullptr) == 0, "pthread_create");
    Check(pthread_cancel(thread) == 0, "pthread_cancel");
    is_cancelled = true;
    void* result = nullptr;
    Check(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED, "the thread is cancelled");
    Check(has_allocated, "and not within malloc");
    free(malloc(100000));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  ThreadLocals();
  Plugin(argv[1]);
  LibraryAsPlugin(argv[2]);
  Cancel();
  printf("cxx_behaviour: ok\n");
  return 0;
}
