// A library to preload: it counts what a process does to the files of one folder, and at a chosen operation it kills
// the process, lets the operation fail, or cuts it short; or it writes all of them down, so that faults.py can replay
// them.
//
//   XFC_FAULTS_FOLDER   the folder, as an absolute path without links; operations elsewhere are not looked at
//   XFC_FAULTS_AT       the number of the operation at which something happens, from 1
//   XFC_FAULTS_KIND     what: kill-before, kill-within (half of it is written), kill-after; signal (before it);
//                       ENOSPC (the disk is full from here on), EIO, EINTR (once); short (half of it is read or
//                       written)
//   XFC_FAULTS_SIGNAL   the number of the signal (default: SIGTERM)
//   XFC_FAULTS_RECORD   a file that takes the operations in their order. Each is a line: name, result, descriptor,
//                       flags or offset, path, second path, between tabs; the bytes of a write follow it
//   XFC_FAULTS_UNSYNCED a part of a path: fsync does nothing there, and is not written down. With it faults.py has to
//                       find something
//
// The calls go to the kernel directly; what of the C library is not replaced here is found by faults.py, which compares
// the folder with what was written down.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { descriptors = 1024, longest = 4096 };

static char folder[longest], *opened[descriptors];
static const char *kind = "", *unsynced;
static int signalSent = SIGTERM;
static long chosen = -1, counted = 0;
static int record = -1;

__attribute__((constructor)) static void begin(void) {
  const char *value = getenv("XFC_FAULTS_FOLDER");
  if (value)
    snprintf(folder, sizeof folder, "%s", value);
  if ((value = getenv("XFC_FAULTS_AT")))
    chosen = atol(value);
  if ((value = getenv("XFC_FAULTS_KIND")))
    kind = value;
  if ((value = getenv("XFC_FAULTS_SIGNAL")))
    signalSent = atoi(value);
  unsynced = getenv("XFC_FAULTS_UNSYNCED");
  if ((value = getenv("XFC_FAULTS_RECORD")))
    record = (int)syscall(SYS_openat, AT_FDCWD, value, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  unsetenv("LD_PRELOAD"); // a process that this one starts is not looked at
}

// The absolute path of a name, in `path`; false where it lies outside of the folder.
static bool isInside(int base, const char *name, char *path) {
  if (!folder[0] || !name)
    return false;
  int length;
  if (name[0] == '/') {
    length = snprintf(path, longest, "%s", name);
  } else if (base != AT_FDCWD) {
    if (base < 0 || base >= descriptors || !opened[base])
      return false;
    length = snprintf(path, longest, "%s/%s", opened[base], name);
  } else {
    char here[longest];
    if (!getcwd(here, sizeof here))
      return false;
    length = snprintf(path, longest, "%s/%s", here, name);
  }
  size_t prefix = strlen(folder);
  return length < longest && strncmp(path, folder, prefix) == 0 && (path[prefix] == '/' || path[prefix] == '\0') &&
         !strstr(path + prefix, "/../");
}

static const char *pathOf(int descriptor) {
  return descriptor >= 0 && descriptor < descriptors ? opened[descriptor] : NULL;
}

static void die(void) {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;)
    pause();
}

struct operation {
  const char *name, *path, *second;
  int descriptor;
  long detail;       // flags or an offset
  size_t *size;      // bytes to be read or written; NULL otherwise
  const void *bytes; // to be written
  bool takesSpace;
  long number; // set by before()
};

static bool is(const char *name) { return strcmp(kind, name) == 0; }

static void after(struct operation *operation, long result) {
  if (record >= 0) {
    char line[3 * longest];
    int length =
        snprintf(line, sizeof line, "%s\t%ld\t%d\t%ld\t%s\t%s\n", operation->name, result, operation->descriptor,
                 operation->detail, operation->path ? operation->path : "", operation->second ? operation->second : "");
    syscall(SYS_write, record, line, length);
    if (operation->bytes)
      for (long done = 0; done < result;) {
        long wrote = syscall(SYS_write, record, (const char *)operation->bytes + done, result - done);
        if (wrote <= 0)
          _exit(99);
        done += wrote;
      }
  }
  if (operation->number == chosen && (is("kill-after") || is("kill-within")))
    die();
}

// 0 to go on, or the error that the operation fails with.
static int before(struct operation *operation) {
  operation->number = __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
  int error = 0;
  if (is("ENOSPC") && chosen > 0 && operation->number >= chosen && operation->takesSpace)
    error = ENOSPC;
  else if (operation->number != chosen)
    return 0;
  else if (is("kill-before"))
    die();
  else if (is("signal"))
    raise(signalSent);
  else if (is("EIO"))
    error = EIO;
  else if (is("EINTR"))
    error = EINTR;
  else if ((is("short") || is("kill-within")) && operation->size)
    *operation->size /= 2;
  if (error)
    after(operation, -error);
  return error;
}

// Returns what a call returns for the kernel's result, which `syscall` has put into errno where it failed.
static long done(struct operation *operation, long result) {
  int error = errno;
  after(operation, result < 0 ? -error : result);
  errno = error;
  return result;
}

static long failed(int error) {
  errno = error;
  return -1;
}

static int openAt(int base, const char *name, int flags, mode_t mode) {
  char path[longest];
  if (!isInside(base, name, path))
    return (int)syscall(SYS_openat, base, name, flags, mode);
  struct operation operation = {.name = "open",
                                .path = path,
                                .descriptor = -1,
                                .detail = flags,
                                .takesSpace = (flags & O_CREAT) && access(path, F_OK) != 0};
  int error = before(&operation);
  if (error)
    return (int)failed(error);
  int descriptor = (int)syscall(SYS_openat, base, name, flags, mode);
  if (descriptor >= descriptors)
    _exit(99);
  if (descriptor >= 0) {
    free(opened[descriptor]);
    opened[descriptor] = strdup(path);
  }
  return (int)done(&operation, descriptor);
}

static mode_t modeOf(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) ? va_arg(arguments, mode_t) : 0;
}

int open(const char *name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = modeOf(flags, arguments);
  va_end(arguments);
  return openAt(AT_FDCWD, name, flags, mode);
}

int openat(int base, const char *name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = modeOf(flags, arguments);
  va_end(arguments);
  return openAt(base, name, flags, mode);
}

int creat(const char *name, mode_t mode) { return openAt(AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC, mode); }

int close(int descriptor) {
  const char *path = pathOf(descriptor);
  if (!path)
    return (int)syscall(SYS_close, descriptor);
  struct operation operation = {.name = "close", .path = path, .descriptor = descriptor};
  int error = before(&operation);
  long result = syscall(SYS_close, descriptor); // also where it says that it failed
  if (error)
    result = failed(error);
  else
    result = done(&operation, result);
  int reason = errno;
  free(opened[descriptor]);
  opened[descriptor] = NULL;
  errno = reason;
  return (int)result;
}

static long transfer(const char *name, long number, int descriptor, void *bytes, size_t size, long offset) {
  const char *path = pathOf(descriptor);
  bool writes = number == SYS_write || number == SYS_pwrite64;
  if (!path)
    return syscall(number, descriptor, bytes, size, offset);
  struct operation operation = {.name = name,
                                .path = path,
                                .descriptor = descriptor,
                                .detail = offset,
                                .size = &size,
                                .bytes = writes ? bytes : NULL,
                                .takesSpace = writes};
  int error = before(&operation);
  if (error)
    return failed(error);
  return done(&operation, syscall(number, descriptor, bytes, size, offset));
}

ssize_t read(int descriptor, void *bytes, size_t size) {
  return transfer("read", SYS_read, descriptor, bytes, size, 0);
}

ssize_t write(int descriptor, const void *bytes, size_t size) {
  return transfer("write", SYS_write, descriptor, (void *)bytes, size, 0);
}

ssize_t pread(int descriptor, void *bytes, size_t size, off_t offset) {
  return transfer("pread", SYS_pread64, descriptor, bytes, size, offset);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset) {
  return transfer("pwrite", SYS_pwrite64, descriptor, (void *)bytes, size, offset);
}

static int onDescriptor(const char *name, long number, int descriptor, long detail) {
  const char *path = pathOf(descriptor);
  if (!path)
    return (int)syscall(number, descriptor, detail);
  struct operation operation = {.name = name, .path = path, .descriptor = descriptor, .detail = detail};
  if (unsynced && (number == SYS_fsync || number == SYS_fdatasync) && strstr(path, unsynced))
    operation.name = "unsynced";
  int error = before(&operation);
  if (error)
    return (int)failed(error);
  return (int)done(&operation, strcmp(operation.name, "unsynced") ? syscall(number, descriptor, detail) : 0);
}

int fsync(int descriptor) { return onDescriptor("fsync", SYS_fsync, descriptor, 0); }
int fdatasync(int descriptor) { return onDescriptor("fsync", SYS_fdatasync, descriptor, 0); }
int ftruncate(int descriptor, off_t size) { return onDescriptor("ftruncate", SYS_ftruncate, descriptor, size); }
int fchmod(int descriptor, mode_t mode) { return onDescriptor("fchmod", SYS_fchmod, descriptor, mode); }
int flock(int descriptor, int what) { return onDescriptor("flock", SYS_flock, descriptor, what); }

static int renameAt(int fromBase, const char *from, int toBase, const char *to, unsigned flags) {
  char path[longest], second[longest];
  bool fromInside = isInside(fromBase, from, path), toInside = isInside(toBase, to, second);
  if (!fromInside && !toInside)
    return (int)syscall(SYS_renameat2, fromBase, from, toBase, to, flags);
  struct operation operation = {
      .name = "rename", .path = path, .second = second, .descriptor = -1, .detail = (long)flags};
  int error = before(&operation);
  if (error)
    return (int)failed(error);
  return (int)done(&operation, syscall(SYS_renameat2, fromBase, from, toBase, to, flags));
}

int rename(const char *from, const char *to) { return renameAt(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int fromBase, const char *from, int toBase, const char *to) {
  return renameAt(fromBase, from, toBase, to, 0);
}
int renameat2(int fromBase, const char *from, int toBase, const char *to, unsigned flags) {
  return renameAt(fromBase, from, toBase, to, flags);
}

static int onName(const char *name, long number, int base, const char *file, long detail) {
  char path[longest];
  if (!isInside(base, file, path))
    return (int)syscall(number, base, file, detail);
  struct operation operation = {
      .name = name, .path = path, .descriptor = -1, .detail = detail, .takesSpace = number == SYS_mkdirat};
  int error = before(&operation);
  if (error)
    return (int)failed(error);
  return (int)done(&operation, syscall(number, base, file, detail));
}

int unlink(const char *file) { return onName("unlink", SYS_unlinkat, AT_FDCWD, file, 0); }
int unlinkat(int base, const char *file, int flags) { return onName("unlink", SYS_unlinkat, base, file, flags); }
int rmdir(const char *file) { return onName("unlink", SYS_unlinkat, AT_FDCWD, file, AT_REMOVEDIR); }
int remove(const char *file) {
  int result = unlink(file);
  return result != 0 && (errno == EISDIR || errno == EPERM) ? rmdir(file) : result;
}
int mkdir(const char *file, mode_t mode) { return onName("mkdir", SYS_mkdirat, AT_FDCWD, file, mode); }
int mkdirat(int base, const char *file, mode_t mode) { return onName("mkdir", SYS_mkdirat, base, file, mode); }

// Other names of the same calls, which depend on how the caller was compiled.
int open64(const char *name, int flags, ...) __attribute__((alias("open")));
int openat64(int base, const char *name, int flags, ...) __attribute__((alias("openat")));
int creat64(const char *name, mode_t mode) __attribute__((alias("creat")));
int ftruncate64(int descriptor, off_t size) __attribute__((alias("ftruncate")));
ssize_t pread64(int descriptor, void *bytes, size_t size, off_t offset) __attribute__((alias("pread")));
ssize_t pwrite64(int descriptor, const void *bytes, size_t size, off_t offset) __attribute__((alias("pwrite")));
int __open_2(const char *name, int flags) { return openAt(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) __attribute__((alias("__open_2")));
ssize_t __read_chk(int descriptor, void *bytes, size_t size, size_t room) {
  return size > room ? (abort(), -1) : read(descriptor, bytes, size);
}
