/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * From an address of code to its unwind rule: a cache, and behind it the kernel's list of mappings and the tables of
 * the mapped files.
 *
 * The key of an entry of `rule_cache` is the pc, salted with the process id and the number of changes of the process's
 * mappings. So once a change is noticed (state_of_mappings), older entries are not found again. Many programs map and
 * unmap memory all the time. Then a walk looks for the mapping of each file that it passes (known_mapping), and finds
 * the rules in `row_cache`, whose keys are the table and the offset in it: its entries stay valid for ever.
 *
 * Both caches are direct-mapped and shared by all CPUs without a lock. An entry torn between two writers fails its
 * check.
 *
 * A rule comes with a tag of the file, so that stacks in two files that have been mapped at the same address differ.
 */
#ifndef HEAPTAP_CODE_BPF_H_
#define HEAPTAP_CODE_BPF_H_

#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"
#include "bpf/memory.bpf.h"
#include "bpf/order.bpf.h"
#include "bpf/scratch.bpf.h"

/* A multiplicative hash: 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4). */
#define HASH_MULTIPLIER 0x9e3779b97f4a7c15ULL

/* 2^17 entries take 2 MiB. A program like a compiler has some ten thousand return addresses on its stacks. */
#define CACHE_BITS 17

struct cached_rule {
  __u64 check; /* the key, xor rule */
  __u64 rule;  /* in rule_cache with the tag of the file */
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1 << CACHE_BITS);
  __type(key, __u32);
  __type(value, struct cached_rule);
} rule_cache SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1 << CACHE_BITS);
  __type(key, __u32);
  __type(value, struct cached_rule);
} row_cache SEC(".maps");

/* The mapping of an address. */
struct place {
  __u64 pc;
  __u64 begin;
  __u64 bytes;
  __u64 offset; /* of the pc in the file */
  struct heaptap_file_key file;
  __u32 is_code;
  __u32 has_file;
};

static long find_place(struct task_struct* task, struct vm_area_struct* mapping, struct place* place) {
  place->is_code = (mapping->vm_flags & VM_EXEC) != 0;
  place->begin = mapping->vm_start;
  place->bytes = mapping->vm_end - mapping->vm_start;
  __u64 offset = place->pc - mapping->vm_start;
  struct file* file = mapping->vm_file;
  if (file) {
    struct inode* inode = file->f_inode;
    place->file.inode = inode->i_ino;
    place->file.generation = inode->i_generation;
    place->file.device = inode->i_sb->s_dev;
    place->offset = offset + (mapping->vm_pgoff << PAGE_SHIFT);
    place->has_file = 1;
  } else if (mapping->vm_start == (__u64)mapping->vm_mm->context.vdso) {
    place->file.inode = HEAPTAP_VDSO_INODE;
    place->offset = offset;
    place->has_file = 1;
  }
  return 0;
}

/* The rule of the last row at or below `pc`; 0 if there is none. */
__noinline __u32 search_rows(const struct heaptap_rows* node, __u32 pc) {
  if (!node || node->rows[0].pc > pc) return 0;
  __u32 found = 0;
  for (__u32 step = 256; step > 0; step >>= 1) {
    __u32 next = found + step;
    if (next < HEAPTAP_ROWS_PER_NODE && node->rows[next].pc <= pc) found = next;
#ifdef __bpf__
    /* Changes nothing, but hides the number from the verifier, which would otherwise check the rest once for each. */
    asm volatile("%0 ^= %1\n%0 ^= %1" : "+r"(found) : "r"(pc));
#endif
  }
  return found < HEAPTAP_ROWS_PER_NODE ? node->rows[found].rule : 0;
}

/* A bit beyond the 32 bits of a rule: the table is not loaded. */
#define RULE_LATE (1ULL << 32)
/* The address lies in no executable mapping. */
#define RULE_NO_CODE (2ULL << 32)
/* The collector has not been asked for the table. */
#define RULE_UNASKED (RULE_LATE | RULE_NO_CODE)
/* There is no rule, for one of these reasons. */
#define RULE_MISSING (RULE_LATE | RULE_NO_CODE)
/* Above these bits: the tag of the file. */
#define RULE_TAG_SHIFT 40

/* A tag that stands for the file and where it is mapped. 0: no file. */
static __always_inline __u64 tag_of_place(const struct place* place) {
  if (!place->has_file) return 0;
  __u64 hash = (place->file.inode ^ (__u64)place->file.device << 32) * HASH_MULTIPLIER ^ place->file.generation;
  hash = (hash ^ hash >> 32 ^ (place->offset - place->pc)) * HASH_MULTIPLIER;
  return hash >> RULE_TAG_SHIFT << RULE_TAG_SHIFT;
}

static __noinline __u64 find_in_table(const struct heaptap_file* file, __u64 offset) {
  offset -= file->base;
  if (offset >= ~(__u32)0) return 0; /* ~0 is the pc of an unused row */
  struct heaptap_rows_key key = {.table = file->table};
  __u32 levels = file->levels;
  for (__u32 level = 1; level <= HEAPTAP_ROW_LEVELS; level++) {
    const struct heaptap_rows* node = bpf_map_lookup_elem(&rows, &key);
    if (!node) return RULE_LATE; /* being unloaded */
    __u32 rule = search_rows(node, offset);
    if (level >= levels) return rule;
    key.node = rule;
  }
  return 0;
}

/* The number of the known mapping of an address; KNOWN_MAPPINGS: there is none. */
static __always_inline __u32 number_of_mapping(const struct scratch* scratch, __u64 pc) {
  __u32 number = KNOWN_MAPPINGS;
#pragma unroll
  for (__u32 i = 0; i < KNOWN_MAPPINGS; i++)
    if (pc - scratch->mappings[i].begin < scratch->mappings[i].bytes) number = i;
  return number;
}

static __always_inline struct known_mapping* mapping_by_number(struct scratch* scratch, __u32 number) {
#ifdef __bpf__
  /* The verifier need not follow each number, but must see the bound. */
  asm volatile("%0 &= %1" : "+r"(number) : "i"(KNOWN_MAPPINGS - 1));
#endif
  return &scratch->mappings[number];
}

/* Asks the collector for the table of an unknown file. REQUIRES: the mapping of the address is known. */
static __noinline __u64 want_table(struct scratch* scratch, __u64 pc) {
  const struct heaptap_file_key key = mapping_by_number(scratch, number_of_mapping(scratch, pc))->file;
  struct heaptap_file wanted = {.state = HEAPTAP_FILE_WANTED, .last_used = bpf_ktime_get_ns()};
  long error = bpf_map_update_elem(&files, &key, &wanted, BPF_NOEXIST);
  if (error == -EEXIST /* another program was faster */) return RULE_LATE;
  if (error) {
    count_loss(scratch->process_id, HEAPTAP_LOSS_FILES_FULL, 0);
    return 0;
  }
  if (send_event_about(HEAPTAP_EVENT_TABLE_WANTED, scratch->tgid, scratch->process_id, pc, NULL, 0, &key))
    bpf_map_delete_elem(&files, &key);
  return RULE_LATE;
}

struct search {
  struct place place;
  long error;
};

static long try_to_find_place(__u32 index, struct search* search) {
  search->error = bpf_find_vma(bpf_get_current_task_btf(), search->place.pc, find_place, &search->place, 0);
  return search->error != -EBUSY;
}

/* Makes the mapping of an address a known one, in place of another. Returns 0, or one of RULE_MISSING. */
static __noinline __u64 find_mapping(struct scratch* scratch, __u64 pc) {
  if (number_of_mapping(scratch, pc) < KNOWN_MAPPINGS) return 0;
  struct search search = {.place = {.pc = pc}, .error = -1};
  bpf_loop(MAPPING_TRIES, try_to_find_place, &search, 0);
  const struct place* place = &search.place;
  if (search.error == -EBUSY) return RULE_LATE;
  if (search.error || !place->is_code) return RULE_NO_CODE;
  struct known_mapping* const known = mapping_by_number(scratch, scratch->next_mapping++ % KNOWN_MAPPINGS);
  known->begin = place->begin;
  known->bytes = place->bytes;
  known->to_offset = place->offset - pc;
  known->tag = tag_of_place(place);
  known->file = place->file;
  known->has_file = place->has_file;
  known->levels = 0;
  return 0;
}

/* The key of a row in `row_cache`. Not 0, because no table has the number 0. */
static __always_inline __u64 key_of_row(__u32 table, __u64 offset) { return (__u64)table << 32 | offset; }

static __always_inline struct cached_rule* find_cached_row(__u64 key) {
  const __u32 table = key >> 32;
  __u32 index = (((__u32)key >> 2) + table * (__u32)(HASH_MULTIPLIER >> 32)) & ((1 << CACHE_BITS) - 1);
  return bpf_map_lookup_elem(&row_cache, &index);
}

/* The rule of a row. 0: the row is not in the cache. */
static __always_inline __u64 find_row(__u32 table, __u64 offset) {
  const __u64 key = key_of_row(table, offset);
  const struct cached_rule* cached = find_cached_row(key);
  if (!cached || offset >= ~(__u32)0) return 0;
  const __u64 rule = cached->rule;
  return (cached->check ^ rule) == key ? rule : 0;
}

/* REQUIRES: the mapping of the address is known. */
static __noinline __u64 find_rule_uncached(struct scratch* scratch, __u64 pc) {
  struct known_mapping* const known = mapping_by_number(scratch, number_of_mapping(scratch, pc));
  if (!known->has_file) return 0;
  /* The key is on the stack, where the verifier of 6.1 allows it. */
  const struct heaptap_file_key key = known->file;
  struct heaptap_file* file = bpf_map_lookup_elem(&files, &key);
  if (!file) return RULE_UNASKED;
  file->last_used = bpf_ktime_get_ns();
  if (file->state == HEAPTAP_FILE_WITHOUT_TABLE) return known->tag;
  if (file->state != HEAPTAP_FILE_LOADED) return RULE_LATE;
  /* While this searches, nodes may be deleted and their memory used again. But a file is OUTSIDE before its table is
   * unloaded, and no two tables ever have the same number: if the file is still LOADED with this number, its table was
   * loaded all the time. */
  const __u32 table = file->table;
  const __u64 offset = pc + known->to_offset;
  known->table = table;
  known->base = file->base;
  known->levels = file->levels;
  __u64 row = find_row(table, offset - known->base);
  if (row != 0) return row | known->tag;
  row = find_in_table(file, offset);
  __u64 rule = row;
  if (rule == 0 && scratch->rip_bits) rule = heaptap_unwind_start_rule(find_in_table(file, offset + 1));
  file = bpf_map_lookup_elem(&files, &key);
  if (!file || file->state != HEAPTAP_FILE_LOADED || file->table != table) {
    known->levels = 0;
    return RULE_LATE;
  }
  if (rule & RULE_MISSING) return rule;
  if (row != 0) {
    const __u64 row_key = key_of_row(table, offset - known->base);
    struct cached_rule* const cached = find_cached_row(row_key);
    if (!cached) return 0; /* never */
    cached->check = row_key ^ row;
    cached->rule = row;
  }
  return rule | known->tag;
}

/* Indexed by low bits of the address, so that rules of near code are near. A call has at least two bytes. */
static __always_inline struct cached_rule* find_cached(__u64 key) {
  __u32 index = key >> 2 & ((1 << CACHE_BITS) - 1);
  return bpf_map_lookup_elem(&rule_cache, &index);
}

/* With the tag of the file. 0: the rule is not in the cache. */
static __always_inline __u64 find_cached_rule(__u64 salt, __u64 pc) {
  __u64 key = pc ^ salt;
  const struct cached_rule* cached = find_cached(key);
  if (!cached) return 0; /* never */
  __u64 rule = cached->rule;
  return (cached->check ^ rule) == key ? rule : 0;
}

/* Finds a rule that is not in `rule_cache`, if a known mapping leads to an entry of `row_cache`, and enters it in
 * `rule_cache`. Returns the rule with the tag of the file; 0: no known mapping leads to one. Global, so that the
 * verifier looks at it once in each program. */
__noinline __u64 find_known_rule(struct scratch* scratch, __u64 pc) {
  if (!scratch) return 0; /* never */
  const __u32 number = number_of_mapping(scratch, pc);
  if (number >= KNOWN_MAPPINGS) return 0;
  const struct known_mapping* const known = mapping_by_number(scratch, number);
  if (known->levels == 0) return 0;
  __u64 rule = find_row(known->table, pc + known->to_offset - known->base);
  if (rule == 0) return 0;
  rule |= known->tag;
  const __u64 key = pc ^ scratch->salt;
  struct cached_rule* const cached = find_cached(key);
  if (!cached) return 0; /* never */
  cached->check = key ^ rule;
  cached->rule = rule;
  return rule;
}

/* The rule with the tag of the file, or one of RULE_MISSING. */
static __always_inline __u64 find_rule(struct scratch* scratch, __u64 pc) {
  __u64 key = pc ^ scratch->salt;
  struct cached_rule* cached = find_cached(key);
  if (!cached) return 0; /* never */
  __u64 rule = cached->rule;
  if ((cached->check ^ rule) == key) return rule;
  rule = find_mapping(scratch, pc);
  if (rule == 0) rule = find_rule_uncached(scratch, pc);
  if (rule == RULE_UNASKED) rule = want_table(scratch, pc);
  if (!(rule & RULE_MISSING)) {
    cached->check = key ^ rule;
    cached->rule = rule;
  }
  return rule;
}

/* Whether the kernel reports each change of the mappings: since Linux 6.4. */
static __always_inline int tells_mappings(void) {
  const struct mm_struct___seqcount* with_seqcount = NULL;
  const struct mm_struct___int* with_int = NULL;
  (void)with_seqcount;
  (void)with_int;
  return bpf_core_field_exists(with_seqcount->mm_lock_seq.sequence) || bpf_core_field_exists(with_int->mm_lock_seq);
}

/* A number that changes with the mappings of the current process. Before Linux 6.4 it is the size of all code, which
 * does not show that a library took the place of another of the same size (process_map sees that), or was mapped right
 * over it (the collector hears of that later). Global, so that the verifier looks at it once in each program
 * (has_rights_of_root). */
__noinline __u64 state_of_mappings(void) {
  const struct mm_struct* const memory = bpf_get_current_task_btf()->mm;
  if (!memory) return 0;
  const struct mm_struct___seqcount* with_seqcount = (const struct mm_struct___seqcount*)memory;
  if (bpf_core_field_exists(with_seqcount->mm_lock_seq.sequence)) return with_seqcount->mm_lock_seq.sequence;
  const struct mm_struct___int* with_int = (const struct mm_struct___int*)memory;
  if (bpf_core_field_exists(with_int->mm_lock_seq)) return with_int->mm_lock_seq;
  return memory->exec_vm;
}

/* Called before each walk: notices changes of the process's mappings. */
static __always_inline __u64 make_salt(struct heaptap_process* process, __u64 seed) {
  const __u64 state = state_of_mappings();
  /* Acquire and release: a program that sees the new state must see the new number of changes. */
  if (state != load_acquire(&process->state_of_mappings)) {
    __sync_fetch_and_add(&process->mappings, 1);
    store_release(&process->state_of_mappings, state);
  }
  __u64 salt = (process->identity.id ^ seed) * HASH_MULTIPLIER;
  salt ^= salt >> 32;
  salt = (salt ^ process->mappings) * HASH_MULTIPLIER;
  salt ^= salt >> 32;
  return salt * HASH_MULTIPLIER | 1ULL << 63; /* no address has this bit, so no key is 0, the key of an empty entry */
}

#endif /* HEAPTAP_CODE_BPF_H_ */
