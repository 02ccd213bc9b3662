/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The eBPF programs, compiled for the host, with their maps and some of their functions.
 */
/* clang-format off: the kernel comes first. */
#include "tests/unit/bpf_host.h"
/* clang-format on */

#include "bpf/heaptap.bpf.c"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MAP(map) \
  { &(map), #map, COUNT_OF(*(map).type), sizeof(*(map).key), sizeof(*(map).value), COUNT_OF(*(map).max_entries) }
#define RING(map) \
  { &(map), #map, COUNT_OF(*(map).type), 0, 0, COUNT_OF(*(map).max_entries) }

const struct host_map host_maps[] = {
    MAP(processes),   MAP(counters),    MAP(stacks),  MAP(live),     MAP(tallies),       MAP(losses),
    MAP(unnoticed),   MAP(forgotten),   MAP(files),   MAP(rows),     MAP(scratch),       MAP(rule_cache),
    MAP(row_cache),   RING(raw_stacks), RING(events), MAP(settings), MAP(thread_stacks), MAP(names),
    MAP(name_places), MAP(records),     MAP(users),   MAP(owners),
};
const __u32 host_map_count = COUNT_OF(host_maps);
const void* const host_areas = &areas;

__u64 host_take_stack(struct host_context* context, struct heaptap_stack* stack) {
  struct scratch* scratch =
      take_stack(&context->registers, context->process, context->tgid, context->process->identity.id);
  if (!scratch) return 0;
  const __u64 id = scratch->stack_id;
  *stack = scratch->stack;
  release_scratch(scratch);
  return id;
}

struct heaptap_tally* host_find_tally(struct host_context* context, struct heaptap_tally_key* key, __u64 weight) {
  struct scratch* scratch =
      take_stack(&context->registers, context->process, context->tgid, context->process->identity.id);
  const struct reuse none = {};
  const struct found_tally found = find_tally(context->process, scratch, &none, key);
  if (found.stack_loss != HEAPTAP_NO_LOSS) count_loss(key->process_id, found.stack_loss, weight);
  return found.tally;
}

int host_is_control_block(const struct heaptap_control* control) { return is_control_block(control); }

enum heaptap_loss_reason host_insert_live(struct host_context* context, const struct heaptap_live_key* key,
                                          const struct heaptap_live* object) {
  struct removed removed = {};
  return insert_live(context->process, key, object, 0, &removed);
}

int host_remove_live(struct host_context* context, const struct heaptap_live_key* key) {
  struct heaptap_live* entry = bpf_map_lookup_elem(&live, key);
  struct heaptap_tally* tally;
  struct removed removed = {};
  if (!entry || !is_serial(entry->serial)) return 1;
  const int error = remove_live(key->process_id, entry, entry->serial, HEAPTAP_LIVE_NONE, &removed, &tally);
  count_removed(context->process, key->process_id, &removed);
  return error;
}

__u64 host_find_rule(struct host_context* context, __u64 pc) {
  struct scratch* scratch = claim_scratch();
  if (!scratch) return RULE_LATE;
  scratch->process_id = context->process->identity.id;
  scratch->tgid = context->tgid;
  set_salt(scratch, make_salt(context->process, stack_seed));
  __u64 rule = find_rule(scratch, pc);
  release_scratch(scratch);
  return rule & RULE_MISSING ? rule : (__u32)rule;
}

__u32 host_frames_found(const void* entry) { return ((const struct scratch*)entry)->stack.count; }

void host_forget_mappings(void* entry) {
  struct scratch* scratch = entry;
  __builtin_memset(scratch->mappings, 0, sizeof(scratch->mappings));
}

__u64 host_find_in_table(const struct heaptap_file* file, __u64 offset) { return find_in_table(file, offset); }
