/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between a sampled allocator and a collector that lives in another process.
 *
 * The allocator marks a statistical sample of its allocations with USDT probes and publishes one control block.
 * The collector attaches to the probes, keeps the books in the kernel, and reads and writes the control block and
 * dump requests in the process's memory. Neither depends on the other's good behaviour: the allocator waits for the
 * collector only with a time limit, and the collector checks every number and opens no path that it reads here.
 *
 * PROBES. Each site of a probe is one `nop` in its own function with its own ELF note. The arguments are in the
 * SysV argument registers (rdi, rsi, rdx), as the note says. A USDT semaphore counts the listeners.
 *
 *   otel_memory:alloc(ptr, size, weighted_bytes)
 *       A sampled allocation, usable, no allocator lock held. `size` is the usable size in bytes. `weighted_bytes`
 *       is size / (1 - exp(-size / R)) rounded to the nearest integer, R the mean bytes between samples, so that
 *       the expected sum of weighted_bytes is the sum of the usable sizes of all allocations. With R = 1
 *       (lg_sample 0) every allocation is a sample and weighted_bytes == size.
 *   otel_memory:free(ptr)
 *       A sampled allocation is about to be freed; its memory is not yet reusable; no allocator lock held.
 *   heaptap:frees(frees, where)
 *       Sampled allocations have been freed: the address of an array of struct heaptap_free, and its HEAPTAP_WHERE.
 *       A breakpoint costs much more than noting a free, so a thread holds frees back: in a slot of a struct
 *       heaptap_pending, until it passes them on with its next sample. It fires this probe when the slot is full, when
 *       it ends, before a fork and before a request for a dump. With `frees` 0 the process says that it no longer
 *       holds back anything. An allocator with this probe numbers its samples, and otel_memory:alloc has further
 *       arguments, which its note does not mention: the serial number of the sample (rcx); `frees` and `where` of what
 *       the thread has held back (r8, r9); and if there is any, the first entry itself, its address (r10) and serial
 *       number (r11). A thread holds frees back only while somebody listens to heaptap:frees.
 *   heaptap:start(control)
 *       Fires once for each process image, and once in each forked child: the address of the control block.
 *   heaptap:dump(request)
 *       The process requests a dump or another service: the address of a struct heaptap_dump_request.
 *   heaptap:thread_name(name)
 *       The name that the program gave to the calling thread (thread.prof.name of mallctl), HEAPTAP_THREAD_NAME_BYTES
 *       bytes with a NUL. Fires when the name is set, and before the thread's next sample if a listener may not know
 *       the name.
 *   heaptap:heap_alloc(ptr, size, weighted_bytes, heap, name)
 *   heaptap:heap_free(ptr, heap)
 *       Further notes at the sites of an otel_memory pair, with the same semaphores: the sample belongs to a heap of
 *       the program's own, a pool or an arena (sample.h). `heap` is the number of the heap (HEAPTAP_HEAP_TAG,
 *       HEAPTAP_HEAP_NAME_ID), and `name` its name, HEAPTAP_HEAP_NAME_BYTES bytes with a NUL at most. In a profile the
 *       samples of a named heap stand under a thread of their own, whose name is heap:"NAME". A heap without a name
 *       has the name id 0 (and `name` may be null), and its samples stand under the threads that allocate. Heaps may
 *       lie within each other: a pool takes its memory from malloc, and the first block of the pool begins where
 *       malloc's block begins. So a sample is known by its address and the tag of its heap.
 *
 *   heaptap:rate
 *       No code runs it: its semaphores tell an interval. The note names the first of HEAPTAP_RATE_SITES sites and
 *       the first of as many semaphores. Site N is N bytes after the first, its semaphore 2 * N bytes after the first.
 *       A collector of all processes that sets an interval attaches to HEAPTAP_RATE_SITE of the least lg_sample that
 *       it may set. The kernel raises the semaphore when it maps the file, so a process knows the interval before
 *       its first allocation, earlier than any collector could write it. When the allocator starts without a
 *       `collector_lg_sample`, it enters there the least interval whose semaphore is raised. If the process has no
 *       `collector_pid` when it takes sample HEAPTAP_UNCONFIRMED_SAMPLES, it goes back to its own interval.
 *       Site 0 has no meaning, since programs that attach to every note of a file attach to it.
 *
 * The otel_memory pair is OpenTelemetry's contract for sampled allocators (opentelemetry-ebpf-profiler,
 * design-docs/00003-memory-profiling); any allocator that fires it can be profiled, with or without the heaptap pair.
 *
 * SAMPLING IS ON while the semaphore of otel_memory:alloc is not zero and `active` is not zero. A thread notices a
 * change at its next slow path, at the latest when it has used up its ready blocks.
 */
#ifndef HEAPTAP_CONTRACT_H_
#define HEAPTAP_CONTRACT_H_

#ifdef __bpf__
/* eBPF programs have no libc. */
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
#define UINT32_MAX __UINT32_MAX__
#define UINT64_C(number) number##ULL
#else
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HEAPTAP_PROVIDER_OTEL "otel_memory"
#define HEAPTAP_PROVIDER "heaptap"
#define HEAPTAP_PROBE_ALLOC "alloc"
#define HEAPTAP_PROBE_FREE "free"
#define HEAPTAP_PROBE_FREES "frees"
#define HEAPTAP_PROBE_START "start"
#define HEAPTAP_PROBE_DUMP "dump"
#define HEAPTAP_PROBE_THREAD_NAME "thread_name"
#define HEAPTAP_PROBE_RATE "rate"

#define HEAPTAP_PROBE_HEAP_ALLOC "heap_alloc"
#define HEAPTAP_PROBE_HEAP_FREE "heap_free"

#define HEAPTAP_THREAD_NAME_BYTES 16
/* Longer names of heaps are cut. */
#define HEAPTAP_HEAP_NAME_BYTES 32

/* Parts of the number of a heap. The tag tells its blocks from the blocks of other heaps at the same address; the name
 * id tells its name from other names. */
#define HEAPTAP_HEAP_TAG(heap) ((heap)&0xffff000000000000ULL)
#define HEAPTAP_HEAP_NAME_ID(heap) ((uint32_t)(heap)&0x7fffffffu)

/*
 * Options that the collector sets for a process that it starts, and options that only this allocator has: an
 * environment variable in MALLOC_CONF's grammar, read after MALLOC_CONF and ignored in a secure execution (AT_SECURE).
 * Keys:
 *   - lg_prof_sample:N    sets `collector_lg_sample` (below)
 *   - collector:PID       sets `collector_pid` (below), and `collector_follows` to 1
 *   - areas:BOOL          adds HEAPTAP_COLLECTOR_GIVES_AREAS to `collector_follows`
 *   - verify_counts:BOOL  compares each stack that is known with the kernel's (for tests)
 *   - prof_seed:N         makes the sampler's random numbers repeatable (for tests)
 *   - drop_deepbind:BOOL  whether dlopen ignores RTLD_DEEPBIND (true): a library opened with it would free this
 *                          allocator's blocks with libc's free
 */
#define HEAPTAP_CONF_VARIABLE "HEAPTAP_CONF"

/* The default sampling interval, jemalloc's: 2^19 bytes (512 KiB) between samples on average. */
#define HEAPTAP_DEFAULT_LG_SAMPLE 19
/* The largest interval; larger values are clipped, as jemalloc does at 63. The weight of a sample is at most its size
 * plus 2^lg_sample, and the collector's sums accept weights of up to 2^47. */
#define HEAPTAP_MAX_LG_SAMPLE 46

/* The sites of heaptap:rate. */
#define HEAPTAP_RATE_SITE(lg_sample) ((lg_sample) + 1)
#define HEAPTAP_RATE_SITES (HEAPTAP_RATE_SITE(HEAPTAP_MAX_LG_SAMPLE) + 1)
/* A collector that records the process writes the control block within milliseconds, on a busy machine within some
 * hundred milliseconds. A process that no collector records (a rule may exclude it) takes this many samples in vain. A
 * thread that only allocates takes them in 50 ms if every allocation is a sample. */
#define HEAPTAP_UNCONFIRMED_SAMPLES 65536

/* Name of the exported data symbol that is the control block. */
#define HEAPTAP_CONTROL_SYMBOL "heaptap_control"
/* "heaptap" and a NUL, as a little-endian number. */
#define HEAPTAP_CONTROL_MAGIC UINT64_C(0x0070617470616568)
#define HEAPTAP_CONTROL_VERSION 5

/* Bits of heaptap_control.options: what MALLOC_CONF asked for. */
#define HEAPTAP_OPTION_PROF (1u << 0)
#define HEAPTAP_OPTION_PROF_ACTIVE (1u << 1)
#define HEAPTAP_OPTION_PROF_LEAK (1u << 2)
#define HEAPTAP_OPTION_PROF_FINAL (1u << 3)
/* Dumps that the process requests contain the sampled values, not values from which readers compute the estimates. */
#define HEAPTAP_OPTION_PROF_RAW (1u << 4)

/* Value of heaptap_control.collector_lg_sample: the collector has set no interval. */
#define HEAPTAP_NO_RATE UINT32_MAX

/* The allocator's own figures, in bytes unless a comment says otherwise. Each is read without a lock, and may be
 * slightly out of date. */
struct heaptap_statistics {
  uint64_t mapped;          /* address space that the allocator holds */
  uint64_t active;          /* memory in slabs and large blocks that are in use, without pages that were returned */
  uint64_t dirty;           /* free memory that has not yet been returned to the system */
  uint64_t large;           /* live blocks with their own mapping or run */
  uint64_t sampled_objects; /* the number of live sampled blocks */
  uint64_t foreign_frees;   /* the number of invalid frees, which were ignored */
  uint64_t metadata;        /* descriptors of chunks and huge blocks, and the heaps of threads */
};

/* Bytes of heaptap_control.host, with a NUL. */
#define HEAPTAP_HOST_BYTES 48

/* Bits of heaptap_control.collector_follows. */
#define HEAPTAP_COLLECTOR_FOLLOWS 1u     /* it records forked children too */
#define HEAPTAP_COLLECTOR_LEFT 2u        /* alone: it no longer records this process; collector_pid is 0 */
#define HEAPTAP_COLLECTOR_GIVES_AREAS 4u /* it answers HEAPTAP_ASK_AREA */

/*
 * The control block. Constant after the first allocation, except for fields with another comment. Every field is
 * naturally aligned, and is read and written as one unit.
 */
struct heaptap_control {
  uint64_t magic;               /* HEAPTAP_CONTROL_MAGIC */
  uint32_t version;             /* HEAPTAP_CONTROL_VERSION */
  uint32_t size;                /* sizeof(struct heaptap_control) */
  uint32_t pid;                 /* getpid() in the process's own PID namespace; changes in a forked child */
  uint32_t options;             /* HEAPTAP_OPTION_* */
  uint32_t active;              /* prof.active: 0 or 1; written by the process and by the collector */
  uint32_t lg_sample;           /* the process's own interval: MALLOC_CONF, the default, or prof.reset */
  uint32_t collector_lg_sample; /* written by the collector: overrides lg_sample; HEAPTAP_NO_RATE if none. At
                                   its start the process itself may enter what heaptap:rate tells */
  uint32_t collector_pid;       /* written by the collector: its PID in the initial PID namespace; 0 if none */
  uint64_t text_begin;          /* the allocator's own code: a frame in [text_begin, text_end) is the allocator's */
  uint64_t text_end;
  uint64_t alloc_semaphore;             /* address of the uint16_t semaphore of otel_memory:alloc */
  uint32_t max_frames;                  /* prof_bt_max: the most frames of the program that a stack in a dump has */
  uint32_t collector_follows;           /* written by the collector: HEAPTAP_COLLECTOR_* */
  struct heaptap_statistics statistics; /* written by the process */
  uint32_t tables_asked;                /* the number of the latest HEAPTAP_ASK_TABLES */
  uint32_t tables_ready;                /* written by the collector: the number of the latest one that it answered */
  char host[HEAPTAP_HOST_BYTES]; /* libheaptap-guest.so: the allocator whose guest it is, like "jemalloc 5.3.0", or "?"
                                    until that is known; written when the libraries start. libheaptap-sample.a: a text
                                    that is not empty. libheaptap.so: empty */
};

/* The free of a sample. The serial number is unique in the process image, so a free that is taken late, or twice, is
 * never mistaken for the free of a later sample at the same address. */
struct heaptap_free {
  uint64_t address;
  uint64_t serial; /* never 0 nor UINT64_MAX */
};

/* The most frees that one thread holds back: a slot is 1 KiB. */
#define HEAPTAP_SLOT_FREES 63
/* The most bytes that the frees in a slot stand for, so that the estimate of an idle thread's live bytes stays close.
 * At the default rate that is some eight frees, so that nearly all wait for the thread's next sample. */
#define HEAPTAP_SLOT_WEIGHT (4u << 20)
/* Threads beyond this number hold nothing back. */
#define HEAPTAP_SLOTS 256

/* Written by one thread. Any entry may be read at any time: an entry that is half written belongs to no sample. */
struct heaptap_slot {
  uint32_t count; /* the number of the frees */
  uint32_t reserved;
  uint64_t weight; /* the weight of the frees, bytes */
  struct heaptap_free frees[HEAPTAP_SLOT_FREES];
};

/* What the threads of a process hold back. */
struct heaptap_pending {
  uint64_t used; /* slots that were ever used, from the first on */
  uint64_t reserved[7];
  struct heaptap_slot slots[HEAPTAP_SLOTS];
};

/* The number of frees, and the number of their slot: from 1 on; 0: they are in no slot. */
#define HEAPTAP_WHERE(slot, count) ((uint64_t)(slot) << 32 | (count))
/* With a sample also the number of the thread's mailbox; 0: it has none. */
#define HEAPTAP_WHERE_MAILBOX_SHIFT 48
#define HEAPTAP_WHERE_SLOT(where) ((uint32_t)((where) >> 32) & 0xffffu)

/*
 * AREAS. Where every allocation is a sample, the trap into the kernel takes nearly all of the time. So a process may
 * count most samples itself, in memory that it shares with the kernel and the collector, and that outlives it: areas,
 * which it asks the collector for (HEAPTAP_ASK_AREA).
 *
 * An area consists of pages. In the first area, page 0 is the head, the next HEAPTAP_MAILBOXES pages are mailboxes, and
 * all others hold counts. In further areas all pages hold counts. The process numbers its mailboxes and counts.
 *
 * A thread that has a mailbox passes its number with each sample that it reports. If the stack of the sample is one
 * that can be known again, the kernel writes into the mailbox which words of the thread's stack have decided the walk.
 * Where a later sample of the thread begins in the same frame, and these words have the same values, it has the same
 * stack. The thread counts such a sample, and the free of its block, in a struct heaptap_counts, and reports neither.
 * So each sample is either in the kernel's tallies or in the counts, and the sum of both is what the thread has
 * allocated.
 *
 * What a process writes there is trusted for its own books only.
 */
#define HEAPTAP_AREA_PAGE_BYTES UINT64_C(4096)
#define HEAPTAP_AREA_PAGES 256
#define HEAPTAP_AREA_BYTES (HEAPTAP_AREA_PAGES * HEAPTAP_AREA_PAGE_BYTES)
#define HEAPTAP_MAILBOXES 63
/* The most areas of a process. */
#define HEAPTAP_AREAS 64

/* Page 0 of the first area. Written by the collector. */
struct heaptap_area_head {
  /* The PID of the collector that reads the counts; 0: none. While it differs from heaptap_control.collector_pid, the
   * process reports its samples. */
  uint32_t collector_pid;
  uint32_t reserved;
};

/* The most words of a stack that the kernel tells. */
#define HEAPTAP_MAILBOX_WORDS 507
/* Somebody else listens to samples too, and must get each one. */
#define HEAPTAP_MAILBOX_OTHERS UINT32_MAX

/* A page. Written by the kernel during a sample of the thread. */
struct heaptap_mailbox {
  uint64_t serial;                       /* of the sample that the rest is about */
  uint64_t stack_id;                     /* for heaptap_counts.stack_id */
  uint64_t begin;                        /* the address from which distances count */
  uint64_t end;                          /* of the mapping that holds the stack */
  uint32_t count;                        /* words; 0: the stack cannot be known again; or HEAPTAP_MAILBOX_OTHERS */
  uint32_t tid;                          /* for heaptap_counts.tid */
  uint64_t words[HEAPTAP_MAILBOX_WORDS]; /* HEAPTAP_WORD_*, from the inner end of the stack outwards */
};

/* A word of a stack: its value, and in the upper bits its distance from heaptap_mailbox.begin in words. */
#define HEAPTAP_WORD_DISTANCE_SHIFT 48
#define HEAPTAP_WORD_VALUE ((UINT64_C(1) << HEAPTAP_WORD_DISTANCE_SHIFT) - 1)

/* Samples of one thread at one stack. Written by the process. Their weights are their sizes. */
struct heaptap_counts {
  uint64_t stack_id; /* written before anything is counted; 0: not used yet */
  uint32_t tid;      /* of the thread that allocates */
  uint32_t reserved;
  uint64_t objects; /* allocated */
  uint64_t bytes;
  uint64_t freed_objects; /* by this thread */
  uint64_t freed_bytes;
  uint64_t others_objects; /* freed by other threads */
  uint64_t others_bytes;
};

/* The reason for a dump, as the letter in its name. */
enum heaptap_dump_kind {
  HEAPTAP_DUMP_FINAL = 'f',
  HEAPTAP_DUMP_INTERVAL = 'i',
  HEAPTAP_DUMP_MANUAL = 'm',
  HEAPTAP_DUMP_HIGH_WATER = 'u',
};

/* Bit of the argument of HEAPTAP_DUMP_FINAL: the process wants its leaks printed (prof_leak) and cannot print them
 * itself, because its stderr is closed. The collector prints them. */
#define HEAPTAP_FINAL_PRINT_LEAKS 1

/* Requests for something other than a profile. */
enum heaptap_ask_kind {
  /* Records of the latest samples, at most `argument` of them, as JSON. */
  HEAPTAP_ASK_RECENT = 'R',
  /* The same records in the format of a log. */
  HEAPTAP_ASK_LOG = 'L',
  /* These three need no file and no answer; they take effect before the probe returns. */
  HEAPTAP_ASK_RESET = 'r',  /* forget all samples so far; `argument` is the lg_sample from now on */
  HEAPTAP_ASK_RECORD = 'k', /* keep a record of each sample from now on; with `argument` 0: keep none */
  HEAPTAP_ASK_LOST = 'x',   /* count a sample as lost: there was no memory for its block, and the program got an
                               ordinary one; `argument` is the weight */
  /* Needs no file: load the unwind tables of all code that the process has mapped so far. `argument` is
   * heaptap_control.tables_asked; the collector answers by writing it to tables_ready. If every allocation is a sample
   * (lg_sample 0), the process sends this request when it starts and when it has opened a library, and waits for the
   * answer for at most HEAPTAP_TABLES_TIMEOUT_MILLISECONDS. */
  HEAPTAP_ASK_TABLES = 't',
  /* Needs no file: `file_fd` is one end of a pair of sockets (AF_UNIX, SOCK_SEQPACKET), `sequence` its cookie
   * (SO_COOKIE), and `argument` the number of areas that the process has for its books. The collector sends a packet of
   * one byte, with the descriptor of a new area, which the process maps (HEAPTAP_AREA_BYTES), or without one if the
   * process gets none. If the process did not wait for an area, the next request gets the same one. */
  HEAPTAP_ASK_AREA = 'a',
};

/* How long the process waits for unwind tables before it continues without them. The largest take half a second. */
#define HEAPTAP_TABLES_TIMEOUT_MILLISECONDS 2000

/* How long the process waits for a dump before it gives up with EAGAIN, unless heaptap_waits.dump_patience says
 * otherwise. */
#define HEAPTAP_DUMP_TIMEOUT_MILLISECONDS 10000

/* Name of the exported data symbol that is the process's struct heaptap_waits. Libraries of earlier releases have none.
 */
#define HEAPTAP_WAITS_SYMBOL "heaptap_waits"

/*
 * What the threads of a process wait for, and how long. For debuggers and tests: the collector neither reads nor writes
 * it, so it may grow at its end without a new HEAPTAP_CONTROL_VERSION. The numbers only grow, until they wrap, and a
 * forked child continues with its parent's. Before a thread that has been counted goes on, it needs the lock or the
 * answer that it waits for. It may find this at its next look.
 */
struct heaptap_waits {
  uint32_t size;       /* sizeof(struct heaptap_waits) */
  uint32_t dump_turns; /* how often a thread has begun to wait for its turn to make a request: dumps, and mallctl names
                          that must not change during one */
  uint32_t dump_answers;  /* how often one has sent a request and begun to wait for the answer */
  uint32_t table_answers; /* how often one has asked for unwind tables and begun to wait for them */
  /* Milliseconds that a request waits for its answer. A debugger may write it at any time: threads that already wait
   * look at it every 50 ms. The other limits of a dump are fixed parts and multiples of it
   * (allocator/profiling/dump.cc). */
  uint32_t dump_patience;
};

/*
 * A dump that the process requests. The process opens the file itself, with its own rights and in its own namespace,
 * and passes descriptors, never paths. The request is in static storage of the allocator, so a late answer does no
 * harm. There is one request at a time. (Requests that need no answer may be anywhere, and have sequence 0.)
 *
 * The process fills in the first part, fires heaptap:dump, and polls event_fd. The collector takes file_fd and
 * event_fd (pidfd_getfd), replaces the contents of the file by the profile, writes the answer, `answered` last, and
 * adds 1 to event_fd. The process ignores a late answer, whose `answered` is not the current `sequence`.
 */
struct heaptap_dump_request {
  /* By the process. */
  uint64_t sequence; /* unique in the process image; 0: withdrawn, the descriptors are closed. HEAPTAP_ASK_AREA has
                        another number here */
  uint64_t argument; /* depends on the kind (HEAPTAP_FINAL_PRINT_LEAKS, enum heaptap_ask_kind); else 0 */
  uint32_t kind;     /* enum heaptap_dump_kind or heaptap_ask_kind */
  int32_t file_fd;   /* a regular file, open for writing */
  int32_t event_fd;  /* an eventfd */
  /* By the collector. */
  int32_t error;       /* 0, or an errno value: ESRCH if the collector does not follow this process */
  uint64_t leak_bytes; /* estimates over all contexts with live objects */
  uint64_t leak_objects;
  uint64_t leak_contexts;
  uint64_t answered; /* == sequence: the answer is complete */
};

#ifdef __cplusplus
} /* extern "C" */
#endif

/* The layout is the same in every program that includes this header. A change needs a new HEAPTAP_CONTROL_VERSION. */
#ifdef __cplusplus
#define HEAPTAP_ASSERT_SHAPE static_assert
#else
#define HEAPTAP_ASSERT_SHAPE _Static_assert
#endif
#define HEAPTAP_ASSERT_AT(type, field, at) \
  HEAPTAP_ASSERT_SHAPE(__builtin_offsetof(struct type, field) == (at), #type "." #field " has another place")
HEAPTAP_ASSERT_SHAPE(sizeof(struct heaptap_statistics) == 56, "heaptap_statistics has another size");
HEAPTAP_ASSERT_SHAPE(sizeof(struct heaptap_control) == 184, "heaptap_control has another size");
HEAPTAP_ASSERT_SHAPE(sizeof(struct heaptap_dump_request) == 64, "heaptap_dump_request has another size");
HEAPTAP_ASSERT_AT(heaptap_control, magic, 0);
HEAPTAP_ASSERT_AT(heaptap_control, version, 8);
HEAPTAP_ASSERT_AT(heaptap_control, size, 12);
HEAPTAP_ASSERT_AT(heaptap_control, pid, 16);
HEAPTAP_ASSERT_AT(heaptap_control, options, 20);
HEAPTAP_ASSERT_AT(heaptap_control, active, 24);
HEAPTAP_ASSERT_AT(heaptap_control, lg_sample, 28);
HEAPTAP_ASSERT_AT(heaptap_control, collector_lg_sample, 32);
HEAPTAP_ASSERT_AT(heaptap_control, collector_pid, 36);
HEAPTAP_ASSERT_AT(heaptap_control, text_begin, 40);
HEAPTAP_ASSERT_AT(heaptap_control, text_end, 48);
HEAPTAP_ASSERT_AT(heaptap_control, alloc_semaphore, 56);
HEAPTAP_ASSERT_AT(heaptap_control, max_frames, 64);
HEAPTAP_ASSERT_AT(heaptap_control, collector_follows, 68);
HEAPTAP_ASSERT_AT(heaptap_control, statistics, 72);
HEAPTAP_ASSERT_AT(heaptap_control, tables_asked, 128);
HEAPTAP_ASSERT_AT(heaptap_control, tables_ready, 132);
HEAPTAP_ASSERT_AT(heaptap_control, host, 136);
HEAPTAP_ASSERT_AT(heaptap_waits, size, 0);
HEAPTAP_ASSERT_AT(heaptap_waits, dump_turns, 4);
HEAPTAP_ASSERT_AT(heaptap_waits, dump_answers, 8);
HEAPTAP_ASSERT_AT(heaptap_waits, table_answers, 12);
HEAPTAP_ASSERT_AT(heaptap_waits, dump_patience, 16);
HEAPTAP_ASSERT_SHAPE(sizeof(struct heaptap_mailbox) == HEAPTAP_AREA_PAGE_BYTES, "heaptap_mailbox is not a page");
HEAPTAP_ASSERT_AT(heaptap_mailbox, count, 32);
HEAPTAP_ASSERT_AT(heaptap_mailbox, words, 40);
HEAPTAP_ASSERT_SHAPE(sizeof(struct heaptap_counts) == 64, "heaptap_counts has another size");
HEAPTAP_ASSERT_AT(heaptap_counts, objects, 16);
HEAPTAP_ASSERT_AT(heaptap_counts, others_bytes, 56);
HEAPTAP_ASSERT_SHAPE(sizeof(struct heaptap_slot) == 1024, "heaptap_slot has another size");
HEAPTAP_ASSERT_AT(heaptap_slot, count, 0);
HEAPTAP_ASSERT_AT(heaptap_slot, frees, 16);
HEAPTAP_ASSERT_AT(heaptap_pending, used, 0);
HEAPTAP_ASSERT_AT(heaptap_pending, slots, 64);
HEAPTAP_ASSERT_AT(heaptap_dump_request, sequence, 0);
HEAPTAP_ASSERT_AT(heaptap_dump_request, argument, 8);
HEAPTAP_ASSERT_AT(heaptap_dump_request, kind, 16);
HEAPTAP_ASSERT_AT(heaptap_dump_request, file_fd, 20);
HEAPTAP_ASSERT_AT(heaptap_dump_request, event_fd, 24);
HEAPTAP_ASSERT_AT(heaptap_dump_request, error, 28);
HEAPTAP_ASSERT_AT(heaptap_dump_request, leak_bytes, 32);
HEAPTAP_ASSERT_AT(heaptap_dump_request, answered, 56);
#undef HEAPTAP_ASSERT_AT
#undef HEAPTAP_ASSERT_SHAPE

#endif /* HEAPTAP_CONTRACT_H_ */
