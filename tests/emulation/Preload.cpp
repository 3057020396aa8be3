// A library that gives an executable an emulated AMX (LD_PRELOAD). It also answers the two questions by which an
// executable finds out whether it may use tiles (runtime/device/cpu/Features.cpp): the features in /proc/cpuinfo, and
// Linux's permission. On a CPU with AMX it changes nothing. At the end of the process it appends a line to the file
// that XFC_TILES_LOG names: who executed the tiles and how many instructions there were.
#include "TileEmulator.h"
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace xfc::test;

namespace {

const TileUnit unit = prepareTiles();

using Open = FILE *(const char *, const char *);

Open *next(const char *name) { return reinterpret_cast<Open *>(dlsym(RTLD_NEXT, name)); }

// /proc/cpuinfo with AMX among the flags of every core, in memory. It is made when the library is loaded, because a
// command may confine itself before it opens the file.
FILE *featuresWithTiles() {
  if (unit != TileUnit::Emulator)
    return nullptr;
  FILE *from = next("fopen")("/proc/cpuinfo", "r"), *to = fdopen(memfd_create("cpuinfo", MFD_CLOEXEC), "w+");
  char *line = nullptr;
  size_t room = 0;
  for (ssize_t length; from && to && (length = getline(&line, &room, from)) > 0;) {
    const bool flags = strncmp(line, "flags", 5) == 0;
    if (flags)
      line[length - 1] = '\0';
    fputs(line, to);
    if (flags)
      fputs(" amx_bf16 amx_tile amx_int8\n", to);
  }
  free(line);
  if (from)
    fclose(from);
  if (to)
    fflush(to);
  return to;
}
FILE *const features = featuresWithTiles();

FILE *opened(const char *function, const char *path, const char *mode) {
  if (!features || strcmp(path, "/proc/cpuinfo") != 0)
    return next(function)(path, mode);
  const int copy = dup(fileno(features));
  lseek(copy, 0, SEEK_SET);
  return fdopen(copy, "r");
}

// Opened when the library is loaded, too, because a confined command cannot open it at its end.
FILE *openedLog() {
  const char *path = getenv("XFC_TILES_LOG");
  return path ? next("fopen")(path, "ae") : nullptr;
}
FILE *const counted = openedLog();

__attribute__((destructor)) void report() {
  if (!counted)
    return;
  const TileCounts counts = emulatedTiles();
  fprintf(counted, "tiles by %s; emulated: %lld products, %lld loads, %lld stores\n", executorOf(unit),
          static_cast<long long>(counts.products), static_cast<long long>(counts.loads),
          static_cast<long long>(counts.stores));
  fclose(counted);
}

} // namespace

extern "C" {

FILE *fopen(const char *path, const char *mode) { return opened("fopen", path, mode); }
FILE *fopen64(const char *path, const char *mode) { return opened("fopen64", path, mode); }

long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long &argument : a)
    argument = va_arg(list, long);
  va_end(list);
  if (unit == TileUnit::Emulator && number == SYS_arch_prctl && a[0] == requestPermission && a[1] == tileData)
    return 0;
  register long fourth asm("r10") = a[3], fifth asm("r8") = a[4], sixth asm("r9") = a[5];
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(fourth), "r"(fifth), "r"(sixth)
               : "rcx", "r11", "memory");
  if (result >= -4095 && result < 0) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}
}
