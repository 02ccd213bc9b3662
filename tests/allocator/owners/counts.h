/* SPDX-License-Identifier: Apache-2.0 */
/* What an owner of a part of a family of functions counts. */
#ifndef HEAPTAP_TESTS_OWNERS_COUNTS_H_
#define HEAPTAP_TESTS_OWNERS_COUNTS_H_

struct counts {
  long allocated; /* blocks that the owner made */
  long freed;     /* blocks of the owner that came back */
  long foreign;   /* blocks of others that came to it */
};

/* The first call begins to count at 0: what libraries allocate before is their own affair. */
#ifdef __cplusplus
extern "C"
#endif
    struct counts
    Counts(void);

/* For Counts. `counted`: since the beginning. */
static inline struct counts SinceFirst(struct counts counted) {
  static struct counts first;
  static int is_known;
  if (!is_known) first = counted;
  is_known = 1;
  counted.allocated -= first.allocated;
  counted.freed -= first.freed;
  counted.foreign -= first.foreign;
  return counted;
}

#endif /* HEAPTAP_TESTS_OWNERS_COUNTS_H_ */
