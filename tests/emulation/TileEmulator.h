// Executes the instructions of AMX (its tiles, bf16 and int8) on a CPU that lacks them, for tests.
//
// Such a CPU raises an invalid-opcode exception, which Linux delivers as SIGILL. The handler decodes the instruction,
// computes what Intel's manual (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2) defines for it,
// and continues after it.
//
// What code may rely on, of a CPU and of this emulator: each thread has a configuration and eight tiles of its own,
// which no other thread and no system call changes; LDTILECFG of palette 1 replaces the configuration and zeroes all
// tiles; TILERELEASE ends with palette 0, in which no tile can be used. Nothing is promised about the state in which a
// thread begins. Linux copies the configuration of the thread that creates it (XTILECFG is part of the state that
// clone() and fork() hand on) but not the tiles (XTILEDATA is not), so it begins with the creator's palette and with
// tiles of zeros; the emulator does the same for threads made by pthread_create() and for processes made by fork(). So
// code that uses tiles configures them itself, and releases them so that no thread begins with what is left of it
// (compiler/CPU/Products/MicroKernel.h, configureTiles). A signal handler begins with palette 0 under Linux, but in the
// emulator with the tiles of the code that it interrupts: it must leave them alone.
#pragma once

#include <cstdint>

namespace xfc::test {

// How Linux is asked for permission to use tiles: ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of asm/prctl.h.
inline constexpr long requestPermission = 0x1023, tileData = 18;

// Who executes the instructions of AMX in this process.
enum class TileUnit {
  None,     // nobody: they end the process
  CPU,      // the CPU, for which Linux has given this process its permission
  Emulator, // the handler of SIGILL
};

// Asks Linux for permission to use tiles and, if this CPU has none, installs the handler (`emulate`), once. Returns who
// executes tiles from then on.
TileUnit prepareTiles(bool emulate = true);
const char *executorOf(TileUnit unit);

// How many instructions the emulator has executed, of all threads.
struct TileCounts {
  int64_t configurations, loads, stores, zeros, products;
  friend TileCounts operator-(const TileCounts &a, const TileCounts &b) {
    return {a.configurations - b.configurations, a.loads - b.loads, a.stores - b.stores, a.zeros - b.zeros,
            a.products - b.products};
  }
};
TileCounts emulatedTiles();

// Executes the instruction of AMX at `code` with general registers in the order of their numbers (rax, rcx, rdx, rbx,
// rsp, rbp, rsi, rdi, r8 .. r15) on this thread's emulated tiles. Returns its length in bytes, or 0 for any other
// instruction. An instruction that a CPU would refuse (an invalid configuration, tiles whose shapes do not match) ends
// the process with a message.
int64_t emulateTileInstruction(const uint8_t *code, const uint64_t registers[16]);

} // namespace xfc::test
