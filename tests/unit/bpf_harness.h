// SPDX-License-Identifier: Apache-2.0
//
// Runs the eBPF programs in this process, without a kernel: their own code on simulated helpers, maps and a simulated
// process. All state is public, so that tests can inspect and corrupt it. bpf_helpers.cc has the helpers.
#ifndef HEAPTAP_TESTS_UNIT_BPF_HARNESS_H_
#define HEAPTAP_TESTS_UNIT_BPF_HARNESS_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/books.h"
#include "bpf/commands.h"
#include "bpf/events.h"
#include "bpf/unwind.h"
#include "heaptap/contract.h"
#include "tests/unit/bpf_host.h"

namespace heaptap::harness {

inline constexpr uint64_t kPage = 4096;
// MAPPING_TRIES of bpf/memory.bpf.h.
inline constexpr int kMappingTries = 500;

// A mapping of the simulated process: whole pages.
struct Mapping {
  uint64_t start = 0;
  uint64_t end = 0;
  bool executable = false;
  std::optional<heaptap_file_key> file = {};
  uint64_t file_offset = 0;
  bool is_vdso = false;
};

// The registers of a thread when the probe fires.
struct Registers {
  uint64_t numbers[16] = {};  // by DWARF number
  uint64_t rip = 0;

  uint64_t& rbp() { return numbers[6]; }
  uint64_t& rsp() { return numbers[7]; }
};

// How often the programs called these helpers.
struct Calls {
  uint64_t find_mapping = 0;
  uint64_t read_user = 0;
  uint64_t lookup = 0;
};

class Map {
 public:
  explicit Map(const host_map& declared) : declared_(&declared), max_entries(declared.max_entries) {}

  // Fail as the helpers do: with null, or a negative errno.
  void* Find(const void* key);
  long Update(const void* key, const void* value, uint64_t flags);
  long Delete(const void* key);
  void Clear();

  uint64_t size() const { return values_.size(); }
  // The bytes of all keys.
  std::vector<std::string> Keys() const;
  // Calls visit(value) for each entry.
  template <typename Value, typename Visit>
  void ForEach(Visit visit) {
    for (auto& [key, value] : values_) visit(*reinterpret_cast<Value*>(value.bytes.get()));
  }
  // Calls visit(key, value) for each entry.
  template <typename Key, typename Value, typename Visit>
  void ForEachEntry(Visit visit) {
    for (auto& [bytes, value] : values_) {
      Key key;
      memcpy(&key, bytes.data(), sizeof(key));
      visit(key, *reinterpret_cast<Value*>(value.bytes.get()));
    }
  }

 private:
  using Bytes = std::unique_ptr<uint64_t[]>;
  struct Value {
    Bytes bytes;
    uint64_t last_use = 0;
  };
  bool IsArray() const { return declared_->type == BPF_MAP_TYPE_ARRAY || declared_->type == BPF_MAP_TYPE_PERCPU_ARRAY; }
  Bytes MakeValue() const { return std::make_unique<uint64_t[]>((declared_->value_bytes + 7) / 8); }
  // Makes room in a map that drops what was unused for longest.
  void DropOldest();

  const host_map* declared_;
  std::map<std::string, Value> values_;
  uint64_t uses_ = 0;
  std::vector<Bytes> deleted_;  // programs may still read them

 public:
  uint64_t max_entries;
};

class Ring {
 public:
  explicit Ring(uint64_t bytes) : bytes(bytes) {}

  void* Reserve(uint64_t size);
  bool Submit(void* record);
  uint64_t used() const;
  // The positions of consumer and producer, in bytes.
  uint64_t consumed() const { return consumed_; }
  uint64_t produced() const { return consumed_ + used(); }
  // Returns the oldest records, and removes them. REQUIRES: they are submitted.
  std::vector<std::string> Take(size_t most = SIZE_MAX);

  uint64_t bytes;  // its size

 private:
  struct Record {
    std::unique_ptr<uint64_t[]> memory;
    uint64_t size = 0;
    bool is_submitted = false;
  };
  std::vector<Record> records_;
  uint64_t consumed_ = 0;
};

// Some updates of maps by the programs fail: those with the numbers from `first` on, `count` of them.
struct Failure {
  uint64_t first = 0;  // the first update of all has the number 1; 0: none fails
  uint64_t count = 1;
  long error = 0;        // a negative errno
  std::string map = {};  // only updates of this map count and fail; empty: those of all maps
};

// A raw stack as the collector receives it.
struct RawStack {
  heaptap_raw_stack header;
  std::vector<uint8_t> memory;
};

// Only one exists at a time: the helpers use the one that was created last.
class Kernel {
 public:
  Kernel();
  ~Kernel();
  static Kernel& Current();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // The process. `memory`: its bytes by start address; the pieces do not overlap.
  heaptap_process process = {};
  uint32_t tgid = 100;
  uint32_t tid = 100;  // the calling thread
  uint32_t uid = 1000;
  bool is_privileged = false;  // has the rights of root
  std::vector<Mapping> mappings;
  std::map<uint64_t, std::vector<uint8_t>> memory;
  uint64_t lock_sequence = 1;
  uint64_t arguments = 0;                                  // their address, as given to the first stack's program
  std::map<uint32_t, std::vector<heaptap_mailbox>> areas;  // their pages, by slot

  int listeners = 1;  // of the site: 1 or 2

  // What a program learns of its call.
  uint64_t cookie = 0;
  std::string comm;
  std::set<uint32_t> groups;  // indices of the control groups that the caller is in
  // The programs that `probe_any` and others call, by index. At first as on a kernel without links to many sites.
  std::map<uint32_t, int (*)(pt_regs*)> programs = {{HEAPTAP_PROBE_SAMPLE_SITE, probe_sample}};

  uint64_t time = 0;  // grows by one each time it is read
  uint64_t tick = 1;
  int busy = 0;                     // how many more times the list of mappings is found locked
  bool is_locked_down = false;      // programs may not write the memory of processes
  std::set<std::string> no_fields;  // that the kernel does not have, as the programs name them
  Failure failure;
  uint64_t updates = 0;  // that count for `failure`, so far
  Calls calls;
  // Called before each lookup, with the name of the map, or "mappings".
  std::function<void(std::string_view)> before_lookup;
  // Called before a map is changed, with its name.
  std::function<void(std::string_view)> before_update;

  Map& map(std::string_view name);
  Ring& ring(std::string_view name);
  // By the address of the programs' variable.
  Map* FindMap(const void* address);
  Ring* FindRing(const void* address);

  template <typename Key, typename Value>
  void Put(std::string_view name, const Key& key, const Value& value) {
    map(name).Update(&key, &value, BPF_ANY);
  }
  template <typename Value, typename Key>
  Value* Find(std::string_view name, const Key& key) {
    return static_cast<Value*>(map(name).Find(&key));
  }
  template <typename Key>
  void Remove(std::string_view name, const Key& key) {
    map(name).Delete(&key);
  }

  // For the functions of bpf_host.h.
  host_context Context(const Registers& registers);
  void WriteWord(uint64_t address, uint64_t word);
  bool ReadMemory(uint64_t address, void* to, uint64_t size) const;
  bool WriteMemory(uint64_t address, const void* from, uint64_t size);

  // Walks the stack as the programs do.
  heaptap_stack Walk(const Registers& registers, uint64_t* id = nullptr);
  // Takes a sample. Returns the stack that is stored for it.
  std::optional<heaptap_stack> Sample(const Registers& registers, uint64_t* id = nullptr);
  uint64_t FindRule(uint64_t pc);

  std::vector<heaptap_event> TakeEvents();
  std::vector<RawStack> TakeRawStacks();

 private:
  std::map<const void*, Map> maps_;
  std::map<const void*, Ring> rings_;
};

}  // namespace heaptap::harness

#endif  // HEAPTAP_TESTS_UNIT_BPF_HARNESS_H_
