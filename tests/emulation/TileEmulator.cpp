// Executes the instructions of AMX (its tiles, bf16 and int8) on a CPU that lacks them, for tests.
//
// Code here runs in a signal handler: it allocates nothing and calls nothing that could wait for a lock.
#include "TileEmulator.h"
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <immintrin.h>
#include <memory>
#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

namespace xfc::test {

namespace {

constexpr int mostTiles = 8, mostRows = 16, mostBytes = 64;

// The 64 bytes that LDTILECFG loads and STTILECFG stores; all zero if no tiles are configured.
struct Configuration {
  uint8_t palette, startRow, reserved[14];
  uint16_t bytes[16]; // of a row, for each tile; eight exist
  uint8_t rows[16];
};
static_assert(sizeof(Configuration) == 64);

struct alignas(64) Tile {
  uint8_t row[mostRows][mostBytes];
};

struct State {
  Configuration configuration;
  Tile tiles[mostTiles];
};
// The initial-exec model keeps the first access in a thread from allocating memory in the handler.
__attribute__((tls_model("initial-exec"))) thread_local State state;

std::atomic<int64_t> configurations, loads, stores, zeros, products;
void count(std::atomic<int64_t> &counter) { counter.fetch_add(1, std::memory_order_relaxed); }

[[noreturn]] void refuse(const char *reason) {
  for (const char *text : {"tile emulator: ", reason, "\n"})
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
      break;
  abort();
}

//===--------------------------------------------------------------------------------------------------------===//
// What the instructions do
//===--------------------------------------------------------------------------------------------------------===//

Tile &configured(int tile) {
  if (state.configuration.palette == 0 || tile >= mostTiles || state.configuration.rows[tile] == 0)
    refuse("the instruction uses a tile that is not configured");
  return state.tiles[tile];
}

void loadConfiguration(const void *from) {
  Configuration loaded;
  memcpy(&loaded, from, sizeof loaded);
  if (loaded.palette > 1)
    refuse("LDTILECFG: the palette is neither 0 nor 1");
  if (loaded.palette == 0) {
    state = {};
    return;
  }
  if (loaded.startRow != 0)
    refuse("LDTILECFG: the start row, from which an interrupted load continues, is not 0");
  for (uint8_t byte : loaded.reserved)
    if (byte)
      refuse("LDTILECFG: a reserved byte is not 0");
  for (int tile = 0; tile < 16; ++tile) {
    if ((loaded.rows[tile] == 0) != (loaded.bytes[tile] == 0))
      refuse("LDTILECFG: a tile has rows without bytes, or bytes without rows");
    if (loaded.rows[tile] > (tile < mostTiles ? mostRows : 0) || loaded.bytes[tile] > mostBytes)
      refuse("LDTILECFG: a tile is larger than 16 rows of 64 bytes, or does not exist");
  }
  state = {loaded, {}};
}

// Loads or stores the rows of a tile at the distance `stride`. What lies beyond the configured shape has been zero
// since the configuration.
void load(int tile, const uint8_t *from, uint64_t stride) {
  Tile &to = configured(tile);
  for (int row = 0; row < state.configuration.rows[tile]; ++row)
    memcpy(to.row[row], from + row * stride, state.configuration.bytes[tile]);
}
void store(int tile, uint8_t *to, uint64_t stride) {
  const Tile &from = configured(tile);
  for (int row = 0; row < state.configuration.rows[tile]; ++row)
    memcpy(to + row * stride, from.row[row], state.configuration.bytes[tile]);
}

// The operands of a product: sum[rows][columns] += left[rows][depth] right[depth][columns], in words of 4 bytes.
struct Operands {
  Tile &sum;
  const Tile &left, &right;
  int rows, depth, columns;
};

Operands operandsOf(int sum, int left, int right) {
  if (sum == left || sum == right || left == right)
    refuse("a product's tiles are not distinct");
  Tile &c = configured(sum);
  const Tile &a = configured(left), &b = configured(right);
  const auto &[palette, start, reserved, bytes, rows] = state.configuration;
  if (bytes[sum] % 4 || bytes[left] % 4 || bytes[right] % 4)
    refuse("a product's tile has rows that are no whole words");
  if (rows[left] != rows[sum] || bytes[left] / 4 != rows[right] || bytes[right] != bytes[sum])
    refuse("the shapes of a product's tiles do not match");
  return {c, a, b, rows[sum], bytes[left] / 4, bytes[sum] / 4};
}

// TDPBF16PS of one row. The manual keeps the sums of even and of odd products apart until the row's end, adds the two,
// and adds the result to the sum; multiply-adds are fused, rounded to the nearest even, and treat denormal operands and
// results as zeros (the caller sets this in MXCSR).
__attribute__((target("avx2,fma"), noinline)) void multiplyRow(float *sum, const uint32_t *left, const Tile &right,
                                                               int depth) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
  __m256 even[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, odd[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int k = 0; k < depth; ++k) {
    const __m256i x = _mm256_set1_epi32(static_cast<int>(left[k]));
    const __m256 xEven = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),
                 xOdd = _mm256_castsi256_ps(_mm256_and_si256(x, high));
    for (int half = 0; half < 2; ++half) {
      const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i *>(right.row[k]) + half);
      even[half] = _mm256_fmadd_ps(xEven, _mm256_castsi256_ps(_mm256_slli_epi32(w, 16)), even[half]);
      odd[half] = _mm256_fmadd_ps(xOdd, _mm256_castsi256_ps(_mm256_and_si256(w, high)), odd[half]);
    }
  }
  for (int half = 0; half < 2; ++half)
    _mm256_store_ps(sum + half * 8,
                    _mm256_add_ps(_mm256_load_ps(sum + half * 8), _mm256_add_ps(even[half], odd[half])));
}

void multiplyBF16(const Operands &o) {
  constexpr unsigned nearestWithoutDenormals = 0x9fc0; // all exceptions masked, FTZ and DAZ
  const unsigned before = _mm_getcsr();
  _mm_setcsr(nearestWithoutDenormals);
  for (int row = 0; row < o.rows; ++row) {
    alignas(32) uint32_t left[mostBytes / 4];
    alignas(32) float sum[mostBytes / 4];
    memcpy(left, o.left.row[row], sizeof left);
    memcpy(sum, o.sum.row[row], sizeof sum);
    multiplyRow(sum, left, o.right, o.depth);
    memcpy(o.sum.row[row], sum, o.columns * sizeof(float)); // the tile's other columns stay zeros
  }
  _mm_setcsr(before);
}

// TDPBSSD and the others: each word's four products of bytes, either of which may be signed, are added to the sum,
// which wraps around. Bytes beyond a tile's columns are zeros.
__attribute__((target("avx2"))) void multiplyBytes(const Operands &o, bool leftSigned, bool rightSigned) {
  constexpr int words = mostBytes / 4;
  auto value = [](uint8_t byte, bool isSigned) {
    return isSigned ? static_cast<int8_t>(byte) : static_cast<int>(byte);
  };
  int32_t right[mostRows][4][words];
  for (int k = 0; k < o.depth; ++k)
    for (int i = 0; i < mostBytes; ++i)
      right[k][i % 4][i / 4] = value(o.right.row[k][i], rightSigned);
  for (int row = 0; row < o.rows; ++row) {
    uint32_t sum[words];
    memcpy(sum, o.sum.row[row], sizeof sum);
    for (int k = 0; k < o.depth; ++k)
      for (int i = 0; i < 4; ++i) {
        const int left = value(o.left.row[row][4 * k + i], leftSigned);
        for (int column = 0; column < words; ++column)
          sum[column] += static_cast<uint32_t>(left * right[k][i][column]);
      }
    memcpy(o.sum.row[row], sum, sizeof sum);
  }
}

//===--------------------------------------------------------------------------------------------------------===//
// How they are encoded
//===--------------------------------------------------------------------------------------------------------===//

// All of them have a VEX prefix of three bytes (C4): that of two (C5) implies another opcode map. Bits R, X, B and vvvv
// are stored inverted.
struct Encoding {
  int prefix; // 0: none, 1: 66, 2: F3, 3: F2
  int opcode; // in the map 0F 38
  int third;  // the register in VEX.vvvv
  int mod, reg, rm;
  // Where a memory operand begins, and the register with the index of a SIB byte, which is the stride; the index is 0
  // if there is none.
  uint64_t address, stride;
  bool hasIndexByte;
  int64_t length;
};

bool decode(const uint8_t *code, const uint64_t registers[16], Encoding &e) {
  if (code[0] != 0xC4)
    return false;
  const int high = code[1] ^ 0xE0, wide = code[2] >> 7, vector = code[2] >> 2 & 1;
  if ((high & 0x1F) != 2 || wide || vector) // map 0F 38, W = 0, L = 0
    return false;
  const int r = high >> 7 & 1, x = high >> 6 & 1, b = high >> 5 & 1;
  e = {code[2] & 3,
       code[3],
       (code[2] >> 3 & 15) ^ 15,
       code[4] >> 6,
       (code[4] >> 3 & 7) | r << 3,
       (code[4] & 7) | b << 3,
       0,
       0,
       false,
       5};
  if (e.opcode != 0x49 && e.opcode != 0x4B && e.opcode != 0x5C && e.opcode != 0x5E)
    return false;
  if (e.mod == 3)
    return true;
  int base = e.rm;
  bool hasBase = true;
  if ((e.rm & 7) == 4) {
    const int sib = code[e.length++], index = (sib >> 3 & 7) | x << 3;
    base = (sib & 7) | b << 3;
    e.hasIndexByte = true;
    e.stride = index == 4 ? 0 : registers[index] << (sib >> 6);
    hasBase = !(e.mod == 0 && (base & 7) == 5);
  }
  const bool ofInstruction = e.mod == 0 && (e.rm & 7) == 5; // relative to the next instruction
  int32_t displacement = 0;
  if (e.mod == 1) {
    displacement = static_cast<int8_t>(code[e.length++]);
  } else if (e.mod == 2 || ofInstruction || !hasBase) {
    memcpy(&displacement, code + e.length, sizeof displacement);
    e.length += sizeof displacement;
  }
  e.address = displacement + (ofInstruction ? reinterpret_cast<uint64_t>(code) + e.length
                              : hasBase     ? registers[base]
                                            : 0);
  return true;
}

enum Prefix { NP, P66, PF3, PF2 };

// LDTILECFG, STTILECFG, TILERELEASE, TILEZERO.
bool executeConfiguration(const Encoding &e) {
  if (e.third != 0)
    return false;
  if (e.mod == 3) {
    if (e.prefix == PF2 && (e.rm & 7) == 0) {
      configured(e.reg) = {};
      count(zeros);
      return true;
    }
    if (e.prefix == NP && e.reg == 0 && e.rm == 0) {
      state = {};
      return true;
    }
    return false;
  }
  if (e.reg != 0 || (e.prefix != NP && e.prefix != P66))
    return false;
  // The address of LDTILECFG and STTILECFG includes the index, as in other instructions.
  auto *memory = reinterpret_cast<uint8_t *>(e.address + e.stride);
  if (e.prefix == NP) {
    loadConfiguration(memory);
    count(configurations);
  } else {
    memcpy(memory, &state.configuration, sizeof state.configuration);
  }
  return true;
}

// TILELOADD, TILELOADDT1, TILESTORED.
bool executeMove(const Encoding &e) {
  if (e.mod == 3 || !e.hasIndexByte || e.third != 0 || e.prefix == NP)
    return false;
  auto *memory = reinterpret_cast<uint8_t *>(e.address);
  if (e.prefix == PF3) {
    store(e.reg, memory, e.stride);
    count(stores);
  } else {
    load(e.reg, memory, e.stride);
    count(loads);
  }
  return true;
}

bool executeProduct(const Encoding &e) {
  if (e.mod != 3 || (e.opcode == 0x5C && e.prefix != PF3))
    return false;
  const Operands operands = operandsOf(e.reg, e.rm, e.third);
  if (e.opcode == 0x5C)
    multiplyBF16(operands);
  else
    multiplyBytes(operands, /*leftSigned=*/e.prefix == PF2 || e.prefix == PF3,
                  /*rightSigned=*/e.prefix == PF2 || e.prefix == P66);
  count(products);
  return true;
}

struct sigaction previous;

void handle(int, siginfo_t *, void *context) {
  auto &general = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
  static constexpr int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  uint64_t registers[16];
  for (int i = 0; i < 16; ++i)
    registers[i] = general[order[i]];
  // A signal takes far longer than an instruction, so those that follow directly are executed at once.
  auto at = [&] { return reinterpret_cast<const uint8_t *>(general[REG_RIP]); };
  int64_t length = emulateTileInstruction(at(), registers);
  // Any other instruction is executed again, and its exception goes to whoever would have got it without the emulator.
  if (length == 0)
    sigaction(SIGILL, &previous, nullptr);
  while (length > 0) {
    general[REG_RIP] += length;
    length = emulateTileInstruction(at(), registers);
  }
}

//===--------------------------------------------------------------------------------------------------------===//
// How threads and processes begin
//===--------------------------------------------------------------------------------------------------------===//

struct Beginning {
  void *(*routine)(void *);
  void *argument;
  Configuration configuration;
};

void *beginThread(void *given) {
  const std::unique_ptr<Beginning> beginning(static_cast<Beginning *>(given));
  state.configuration = beginning->configuration;
  return beginning->routine(beginning->argument);
}

void beginProcess() { memset(state.tiles, 0, sizeof state.tiles); }

bool permitted() { return syscall(SYS_arch_prctl, requestPermission, tileData) == 0; }

} // namespace

int64_t emulateTileInstruction(const uint8_t *code, const uint64_t registers[16]) {
  Encoding encoding;
  if (!decode(code, registers, encoding))
    return 0;
  const bool executed = encoding.opcode == 0x49   ? executeConfiguration(encoding)
                        : encoding.opcode == 0x4B ? executeMove(encoding)
                                                  : executeProduct(encoding);
  return executed ? encoding.length : 0;
}

TileUnit prepareTiles(bool emulate) {
  static const bool cpu = permitted();
  if (cpu)
    return TileUnit::CPU;
  if (!emulate)
    return TileUnit::None;
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO;
    return pthread_atfork(nullptr, nullptr, beginProcess) == 0 && sigaction(SIGILL, &action, &previous) == 0;
  }();
  return installed ? TileUnit::Emulator : TileUnit::None;
}

const char *executorOf(TileUnit unit) {
  return unit == TileUnit::CPU ? "the CPU" : unit == TileUnit::Emulator ? "an emulator" : "nobody";
}

TileCounts emulatedTiles() { return {configurations, loads, stores, zeros, products}; }

} // namespace xfc::test

// Hides the system's function from everything that is linked or preloaded with the emulator.
extern "C" int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *),
                              void *argument) {
  using namespace xfc::test;
  static auto *const create = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  auto beginning = std::make_unique<Beginning>(Beginning{routine, argument, state.configuration});
  const int failure = create(thread, attributes, beginThread, beginning.get());
  if (failure == 0)
    beginning.release(); // the thread deletes it
  return failure;
}
