// SPDX-License-Identifier: Apache-2.0
//
// What operator new owes to its callers when there is no memory, in every form it has. A plugin of a C program
// (plugin_host.c), or a program of its own.
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <new>

namespace {

// The compiler may leave out what it can see to the end.
volatile std::size_t too_much = PTRDIFF_MAX;
void* volatile sink;
int failures;
int calls;

void Check(bool condition, const char* what) {
  if (condition) return;
  failures++;
  fprintf(stderr, "new_plugin: %s\n", what);
}

constexpr std::align_val_t kAlignment{64};
constexpr int kCalls = 3;

void CallsAndGivesUp() {
  if (++calls == kCalls) std::set_new_handler(nullptr);
}

void CallsAndThrows() {
  if (++calls == kCalls) throw std::bad_alloc();
}

struct Form {
  const char* name;
  void* (*allocate)(std::size_t size);
};

const Form kThrowing[] = {
    {"new", [](std::size_t size) { return ::operator new(size); }},
    {"new[]", [](std::size_t size) { return ::operator new[](size); }},
    {"aligned new", [](std::size_t size) { return ::operator new(size, kAlignment); }},
    {"aligned new[]", [](std::size_t size) { return ::operator new[](size, kAlignment); }},
};

const Form kNothrow[] = {
    {"nothrow new", [](std::size_t size) { return ::operator new(size, std::nothrow); }},
    {"nothrow new[]", [](std::size_t size) { return ::operator new[](size, std::nothrow); }},
    {"aligned nothrow new", [](std::size_t size) { return ::operator new(size, kAlignment, std::nothrow); }},
    {"aligned nothrow new[]", [](std::size_t size) { return ::operator new[](size, kAlignment, std::nothrow); }},
};

bool Throws(const Form& form) {
  try {
    sink = form.allocate(too_much);
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

bool IsNull(const Form& form) {
  sink = form.allocate(too_much);
  return sink == nullptr;
}

void Try(const Form& form, bool (*fails)(const Form&)) {
  Check(fails(form), form.name);
  for (std::new_handler handler : {CallsAndGivesUp, CallsAndThrows}) {
    calls = 0;
    std::set_new_handler(handler);
    Check(fails(form), form.name);
    Check(calls == kCalls, "calls of the new handler");
    std::set_new_handler(nullptr);
  }
}

}  // namespace

extern "C" int plugin() {
  for (const Form& form : kThrowing) Try(form, Throws);
  for (const Form& form : kNothrow) Try(form, IsNull);
  delete new int;
  return failures;
}

int main() { return plugin(); }
