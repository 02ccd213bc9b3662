// SPDX-License-Identifier: Apache-2.0
#include "mallctl.h"

#include <errno.h>
#include <string.h>

#include "dump.h"
#include "process.h"
#include "statistics.h"

namespace heaptap {
namespace {

struct Arguments {
  void* old_value;
  size_t* old_length;
  void* new_value;
  size_t new_length;

  bool reads() const { return old_value != nullptr || old_length != nullptr; }
  bool writes() const { return new_value != nullptr || new_length != 0; }
};

// Hands out the old value, as much of it as fits.
template <typename Value>
int Read(const Arguments& arguments, Value value) {
  if (arguments.old_value == nullptr || arguments.old_length == nullptr) return 0;
  bool fits = *arguments.old_length == sizeof(value);
  if (*arguments.old_length > sizeof(value)) *arguments.old_length = sizeof(value);
  memcpy(arguments.old_value, &value, *arguments.old_length);
  return fits ? 0 : EINVAL;
}

int OptProf(const Arguments& arguments) {
  if (arguments.writes()) return EPERM;
  return Read(arguments, ProcessConfiguration().prof);
}

int ProfActive(const Arguments& arguments) {
  bool prof = ProcessConfiguration().prof;
  bool old = prof && __atomic_load_n(&::heaptap_control.active, __ATOMIC_RELAXED) != 0;
  if (arguments.new_value != nullptr) {
    if (arguments.new_length != sizeof(bool)) return EINVAL;
    bool active;
    memcpy(&active, arguments.new_value, sizeof(active));
    if (!prof && active) return ENOENT;
    if (prof) __atomic_store_n(&::heaptap_control.active, active, __ATOMIC_RELAXED);
  }
  return Read(arguments, old);
}

int ProfDump(const Arguments& arguments) {
  if (!ProcessConfiguration().prof) return ENOENT;
  if (arguments.reads()) return EPERM;
  const char* path = nullptr;
  if (arguments.new_value != nullptr) {
    if (arguments.new_length != sizeof(path)) return EINVAL;
    memcpy(&path, arguments.new_value, sizeof(path));
  }
  return Dump(HEAPTAP_DUMP_MANUAL, path);
}

struct Name {
  const char* name;
  int (*handler)(const Arguments& arguments);
};

constexpr Name kNames[] = {
    {"opt.prof", OptProf},
    {"prof.active", ProfActive},
    {"prof.dump", ProfDump},
};

}  // namespace

int Mallctl(const char* name, void* old_value, size_t* old_length, void* new_value, size_t new_length) {
  StartProcess();
  for (const Name& entry : kNames) {
    if (strcmp(entry.name, name) == 0) return entry.handler({old_value, old_length, new_value, new_length});
  }
  return ENOENT;
}

}  // namespace heaptap
