// A library to preload: it counts what a process allocates, and lets chosen allocations fail as if memory had run out.
//
//   XFC_ALLOCATIONS_AT    the number of the allocation that fails, from 1
//   XFC_ALLOCATIONS_KIND  what: once (that one alone), on (that one and all later ones of at least its size)
//   XFC_ALLOCATIONS_COUNT a file that takes the number of allocations when the process ends
//
// Allocations are calls of malloc(), calloc(), realloc(), posix_memalign(), aligned_alloc() and memalign(), and of
// mmap() for memory that is of no file; operator new calls malloc(). Those that the C library makes for itself without
// these functions, as for the stacks of threads, are not seen.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// The C library's own functions under the names that nobody replaces.
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static long chosen = -1, counted = 0;
static bool goesOn = false;
static size_t least = 0;
static int record = -1;

__attribute__((constructor)) static void begin(void) {
  const char *value = getenv("XFC_ALLOCATIONS_AT"), *kind = getenv("XFC_ALLOCATIONS_KIND"),
             *name = getenv("XFC_ALLOCATIONS_COUNT");
  if (name) // now, since a process may confine itself
    record = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  goesOn = kind && strcmp(kind, "on") == 0;
  __atomic_store_n(&counted, 0, __ATOMIC_SEQ_CST); // what was allocated to start the process does not count
  if (value)
    chosen = atol(value);
}

__attribute__((destructor)) static void end(void) {
  if (record >= 0)
    dprintf(record, "%ld\n", counted);
}

static bool fails(size_t size) {
  const long number = __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
  if (number == chosen) {
    __atomic_store_n(&least, size, __ATOMIC_SEQ_CST);
    return true;
  }
  return goesOn && chosen > 0 && number > chosen && size >= __atomic_load_n(&least, __ATOMIC_SEQ_CST);
}

static void *none(void) {
  errno = ENOMEM;
  return NULL;
}

void *malloc(size_t size) { return fails(size) ? none() : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails(count * size) ? none() : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return size > 0 && fails(size) ? none() : __libc_realloc(old, size); }
void *memalign(size_t alignment, size_t size) { return fails(size) ? none() : __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **result, size_t alignment, size_t size) {
  if (fails(size))
    return ENOMEM;
  *result = __libc_memalign(alignment, size);
  return *result ? 0 : ENOMEM;
}

void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset) {
  if ((flags & MAP_ANONYMOUS) && fails(size)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return (void *)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}
