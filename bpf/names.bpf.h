/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Room in `names`: each user has a share. When the share is used up, a new name takes the place of the user's oldest
 * name. So an endless series of threads costs its own user's names, and not the names of others. Root has no such
 * bound.
 */
#ifndef HEAPTAP_NAMES_BPF_H_
#define HEAPTAP_NAMES_BPF_H_

#include "bpf/books.h"
#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"
#include "bpf/users.bpf.h"

/* How many names one user may have. */
const volatile __u32 names_of_user = HEAPTAP_DEFAULT_NAMES / HEAPTAP_USER_NAMES_PART;

/* To be called before a name is kept. Returns 0. */
__noinline int make_room_for_name(__u32 slot, __u64 process_id, __u32 tid) {
  struct user* user = user_at(slot);
  if (!user || slot == ROOT) return 0;
  struct heaptap_thread_key key = {.process_id = process_id, .tid = tid};
  if (bpf_map_lookup_elem(&names, &key)) return 0;
  struct heaptap_name_place place = {.user = slot, .number = __sync_fetch_and_add(&user->names, 1) % names_of_user};
  const struct heaptap_thread_key* found = bpf_map_lookup_elem(&name_places, &place);
  if (found) {
    struct heaptap_thread_key oldest = *found;
    bpf_map_delete_elem(&names, &oldest);
  }
  bpf_map_update_elem(&name_places, &place, &key, BPF_ANY);
  return 0;
}

#endif /* HEAPTAP_NAMES_BPF_H_ */
