/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Shares of users: what one user may have of the ring buffers, of `processes`, and of new process images per second.
 * The share of `names` is in names.bpf.h.
 *
 * A user is a slot of the array `users`. Slot 0 is root; the user ids of all others fall into the other slots in turn,
 * and users that meet in one slot share it. So the array is never full, and nobody gets a new share by having many ids:
 * subordinate ids (subuid(5)) count as their owner, by the map `owners`.
 *
 * Several programs change a slot at once. Adds are atomic; where a program begins to count anew, the add of another
 * program may be missing.
 */
#ifndef HEAPTAP_USERS_BPF_H_
#define HEAPTAP_USERS_BPF_H_

#include <linux/capability.h>

#include "bpf/books.h"
#include "bpf/kernel.h"

/* About 600 bytes each. */
#define USERS 1024
/* Root, with the rights that the collector needs. Root of a container without these rights is a user like any other. */
#define ROOT 0

/* The parts of a ring buffer in which a user's bytes are counted. A buffer has up to one part more in use, so twice as
 * many places are enough, and their number is a power of two. */
#define RING_PARTS 8
#define RING_PLACES 16
/* Multiples of the free bytes. When more than half of a ring buffer is in use, a user may have at most SHARE_OF_FREE
 * times as much of it as is free. So users that crowd the buffer leave a part of it to newcomers: one leaves a fifth,
 * two leave a ninth. */
#define SHARE_OF_FREE 4
/* The same for events that a process can repeat at will, so that other processes of its user find room:
 * SHARE_FOR_REQUESTS if a recorded process asks for dumps, SHARE_FOR_OTHERS if a process is not recorded, or begins new
 * books. */
#define SHARE_FOR_REQUESTS 3
#define SHARE_FOR_OTHERS 1

/* A user's bytes in one part of a ring buffer. Parts are counted from 1 on, as long as the buffer exists. */
struct ring_part {
  __u64 number;
  __u64 bytes;
};

struct ring_share {
  struct ring_part parts[RING_PLACES];
};

struct user {
  __u64 period;    /* of `images` */
  __u64 images;    /* process images that the user wanted to begin in the period */
  __u64 processes; /* entries of `processes` that programs have made for the user */
  __u64 names;     /* names that were kept for the user */
  struct ring_share events;
  struct ring_share raw_stacks;
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, USERS);
  __type(key, __u32);
  __type(value, struct user);
} users SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_LPM_TRIE);
  __uint(max_entries, HEAPTAP_DEFAULT_OWNERS);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct heaptap_owner_key);
  __type(value, __u32);
} owners SEC(".maps");

/* Reads by helpers: where a program follows a pointer itself, the verifier compares names with the names of all types
 * of the kernel, which takes a millisecond each time. */
static __always_inline int has_rights_of_root(void) {
  const struct cred* credentials = BPF_CORE_READ(bpf_get_current_task_btf(), cred);
  /* The numbers in the set have other names before Linux 6.3; the lower 32 bits come first. */
  __u32 lower = 0;
  bpf_probe_read_kernel(&lower, sizeof(lower), &credentials->cap_effective);
  return (lower & 1U << CAP_SYS_ADMIN) != 0;
}

/* The slot of the user that the calling process works for. */
static __always_inline __u32 find_user_slot(void) {
  __u32 uid = bpf_get_current_uid_gid();
  if (uid == 0 && has_rights_of_root()) return ROOT;
  struct heaptap_owner_key key = {.prefix_bits = 32, .uid = __builtin_bswap32(uid)};
  const __u32* owner = bpf_map_lookup_elem(&owners, &key);
  if (owner) uid = *owner;
  return 1 + uid % (USERS - 1);
}

static __always_inline struct user* user_at(__u32 slot) { return bpf_map_lookup_elem(&users, &slot); }

/* `position`: the position of the programs or of the collector in a ring buffer of `size` bytes. */
static __always_inline __u64 part_at(__u64 size, __u64 position) { return position / (size / RING_PARTS + 1) + 1; }

/* Whether a user may have more of a ring buffer, in which `used` bytes from the position `consumed` on are in use. A
 * user may have `most` times as much as is free. */
static __always_inline int may_fill(const struct ring_share* share, __u64 size, __u64 used, __u64 consumed,
                                    __u64 most) {
  const __u64 first = part_at(size, consumed);
  __u64 bytes = 0;
  for (int i = 0; i < RING_PLACES; i++) {
    if (share->parts[i].number >= first) bytes += share->parts[i].bytes;
  }
  return bytes < most * (size - used);
}

/* Counts what a user is about to write at the position `produced`. */
static __always_inline void count_filled(struct ring_share* share, __u64 size, __u64 produced, __u64 bytes) {
  const __u64 number = part_at(size, produced);
  struct ring_part* part = &share->parts[number % RING_PLACES];
  const __u64 before = part->number;
  if (before != number && __sync_val_compare_and_swap(&part->number, before, number) == before) part->bytes = 0;
  __sync_fetch_and_add(&part->bytes, bytes);
}

/* Counts `more` entries of `processes`; may be -1. */
static __always_inline void count_processes(__u32 slot, __u64 more) {
  struct user* user = user_at(slot);
  if (user) __sync_fetch_and_add(&user->processes, more);
}

/* The period is 2^PERIOD_BITS nanoseconds, about a second. */
#define PERIOD_BITS 30

/* Whether a user may begin one more process image, with `entries` new entries of `processes`. `room`: the entries for
 * all users. */
__noinline int may_begin(__u32 slot, __u64 now, __u64 room, __u64 entries) {
  struct user* user = user_at(slot);
  if (!user || slot == ROOT) return 1;
  const __u64 period = now >> PERIOD_BITS;
  const __u64 before = user->period;
  if (before != period && __sync_val_compare_and_swap(&user->period, before, period) == before) user->images = 0;
  if (__sync_fetch_and_add(&user->images, 1) >= HEAPTAP_USER_IMAGES) return 0;
  return room == 0 || entries == 0 || user->processes < room / HEAPTAP_USER_PROCESSES_PART;
}

#endif /* HEAPTAP_USERS_BPF_H_ */
