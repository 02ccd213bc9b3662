// SPDX-License-Identifier: Apache-2.0
//
// The helpers that the eBPF programs call, on the simulated kernel.
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "tests/unit/bpf_harness.h"

using heaptap::harness::Failure;
using heaptap::harness::Kernel;
using heaptap::harness::Map;
using heaptap::harness::Mapping;
using heaptap::harness::Ring;

namespace {

const char* NameOf(const void* map) {
  for (uint32_t i = 0; i < host_map_count; i++) {
    if (host_maps[i].map == map) return host_maps[i].name;
  }
  abort();
}

// Counts an update of a map. 0, or the error with which it must fail.
long NextFailure(const char* map) {
  Kernel& kernel = Kernel::Current();
  const Failure& failure = kernel.failure;
  if (!failure.map.empty() && failure.map != map) return 0;
  const uint64_t number = ++kernel.updates;
  return failure.first != 0 && number >= failure.first && number - failure.first < failure.count ? failure.error : 0;
}

// The entries that host_begin_for_each() has noted.
Map* g_visited = nullptr;
std::vector<std::string> g_keys;

}  // namespace

// --- maps ------------------------------------------------------------------------------------------------------------

void* host_map_lookup_elem(const void* map, const void* key) {
  Kernel& kernel = Kernel::Current();
  kernel.calls.lookup++;
  const uint32_t number = *static_cast<const uint32_t*>(key);
  if (map == host_areas) {
    const auto found = kernel.areas.find(number);
    return found == kernel.areas.end() ? nullptr : &found->second;
  }
  for (auto& [slot, pages] : kernel.areas) {
    if (map == &pages) return number < pages.size() ? &pages[number] : nullptr;
  }
  if (kernel.before_lookup) kernel.before_lookup(NameOf(map));
  return kernel.FindMap(map)->Find(key);
}

long host_map_update_elem(const void* map, const void* key, const void* value, __u64 flags) {
  Kernel& kernel = Kernel::Current();
  if (kernel.before_update) kernel.before_update(NameOf(map));
  const long error = NextFailure(NameOf(map));
  return error != 0 ? error : kernel.FindMap(map)->Update(key, value, flags);
}

long host_map_delete_elem(const void* map, const void* key) { return Kernel::Current().FindMap(map)->Delete(key); }

__u32 host_begin_for_each(const void* map) {
  g_visited = Kernel::Current().FindMap(map);
  g_keys = g_visited->Keys();
  return static_cast<__u32>(g_keys.size());
}

long host_entry_at(__u32 index, void** key, void** value) {
  *key = g_keys.at(index).data();
  *value = g_visited->Find(*key);
  return *value == nullptr ? -ENOENT : 0;
}

long host_tail_call(void* context, __u32 index, int* result) {
  const auto& programs = Kernel::Current().programs;
  const auto found = programs.find(index);
  if (found == programs.end()) return -ENOENT;
  *result = found->second(static_cast<pt_regs*>(context));
  return 0;
}

// --- ring buffers ----------------------------------------------------------------------------------------------------

void* host_ringbuf_reserve(const void* map, __u64 size, __u64) {
  return Kernel::Current().FindRing(map)->Reserve(size);
}

void host_ringbuf_submit(void* record, __u64) {
  for (const char* name : {"events", "raw_stacks"}) {
    if (Kernel::Current().ring(name).Submit(record)) return;
  }
  abort();
}

__u64 host_ringbuf_query(const void* map, __u64 what) {
  const Ring* ring = Kernel::Current().FindRing(map);
  if (what == BPF_RB_AVAIL_DATA) return ring->used();
  if (what == BPF_RB_RING_SIZE) return ring->bytes;
  if (what == BPF_RB_CONS_POS) return ring->consumed();
  if (what == BPF_RB_PROD_POS) return ring->produced();
  abort();
}

// --- memory ----------------------------------------------------------------------------------------------------------

long host_probe_read_user(void* to, __u32 size, const void* from) {
  Kernel& kernel = Kernel::Current();
  kernel.calls.read_user++;
  if (kernel.ReadMemory(reinterpret_cast<uint64_t>(from), to, size)) return 0;
  memset(to, 0, size);
  return -EFAULT;
}

long host_probe_read_user_str(void* to, __u32 size, const void* from) {
  auto* text = static_cast<char*>(to);
  for (__u32 i = 0; i < size; i++) {
    if (!Kernel::Current().ReadMemory(reinterpret_cast<uint64_t>(from) + i, text + i, 1)) {
      memset(to, 0, size);
      return -EFAULT;
    }
    if (text[i] == 0) return i + 1;
  }
  text[size - 1] = 0;
  return size;
}

long host_probe_write_user(void* to, const void* from, __u32 size) {
  Kernel& kernel = Kernel::Current();
  if (kernel.is_locked_down) return -EPERM;
  return kernel.WriteMemory(reinterpret_cast<uint64_t>(to), from, size) ? 0 : -EFAULT;
}

long host_probe_read_kernel(void* to, __u32 size, const void* from) {
  memcpy(to, from, size);
  return 0;
}

// --- the caller ------------------------------------------------------------------------------------------------------

long host_get_current_comm(void* to, __u32 size) {
  memset(to, 0, size);
  Kernel::Current().comm.copy(static_cast<char*>(to), size - 1);
  return 0;
}

__u64 host_get_current_pid_tgid(void) { return uint64_t{Kernel::Current().tgid} << 32 | Kernel::Current().tid; }

__u64 host_get_current_uid_gid(void) { return Kernel::Current().uid; }

__u64 host_get_attach_cookie(void*) { return Kernel::Current().cookie; }

long host_current_task_under_cgroup(const void*, __u32 index) { return Kernel::Current().groups.count(index) != 0; }

__u64 host_ktime_get_ns(void) { return ++Kernel::Current().time; }

__u64 host_jiffies64(void) { return Kernel::Current().tick; }

int host_field_exists(const char* field) { return Kernel::Current().no_fields.count(field) == 0; }

struct task_struct* host_get_current_task_btf(void) {
  // As kernels of different versions have it.
  static union {
    mm_struct size_of_code;
    mm_struct___int number;
    mm_struct___seqcount sequence;
  } memory;
  static task_struct task;
  // The listeners of the site: a ring, or in older kernels a list. Here `arch` lies at the beginning of struct uprobe.
  static uprobe___list with_ring;
  static uprobe___pointer with_list;
  static list_head ring[2];
  static uprobe_consumer list[2];
  static uprobe_task running;
  const bool is_only = Kernel::Current().listeners == 1;
  with_ring.consumers.next = &ring[0];
  ring[0].next = is_only ? &with_ring.consumers : &ring[1];
  ring[1].next = &with_ring.consumers;
  with_list.consumers = &list[0];
  list[0].next = is_only ? nullptr : &list[1];
  running.auprobe = host_field_exists("any_list->consumers.next") ? reinterpret_cast<arch_uprobe*>(&with_ring)
                                                                  : reinterpret_cast<arch_uprobe*>(&with_list);
  task.utask = &running;
  static cred credentials;
  credentials.cap_effective.val = Kernel::Current().is_privileged ? 1ULL << CAP_SYS_ADMIN : 0;
  task.cred = &credentials;
  task.mm = &memory.size_of_code;
  memory.size_of_code.exec_vm = Kernel::Current().lock_sequence;
  return &task;
}

long host_find_vma(__u64 address, struct vm_area_struct** found) {
  Kernel& kernel = Kernel::Current();
  kernel.calls.find_mapping++;
  if (kernel.before_lookup) kernel.before_lookup("mappings");
  if (kernel.busy > 0) {
    kernel.busy--;
    return -EBUSY;
  }
  static super_block block;
  static inode node;
  static file mapped;
  static mm_struct memory;
  static vm_area_struct area;
  for (const Mapping& mapping : kernel.mappings) {
    if (address < mapping.start || address >= mapping.end) continue;
    if (mapping.file.has_value()) {
      block = {mapping.file->device};
      node = {mapping.file->inode, mapping.file->generation, &block};
      mapped = {&node};
    }
    memory.start_stack = kernel.arguments;
    memory.context.vdso = mapping.is_vdso ? reinterpret_cast<void*>(mapping.start) : nullptr;
    area = {.vm_start = mapping.start,
            .vm_end = mapping.end,
            .vm_flags = mapping.executable ? uint64_t{4} : 0,
            .vm_pgoff = mapping.file_offset / heaptap::harness::kPage,
            .vm_mm = &memory,
            .vm_file = mapping.file.has_value() ? &mapped : nullptr};
    *found = &area;
    return 0;
  }
  return -ENOENT;
}
