// Checks the instructions of AMX, executed by the CPU or by the emulator, against values computed by hand from Intel's
// manual. Where the CPU has tiles, its results are compared with the emulator's too.
#include "TileEmulator.h"
#include <bit>
#include <csignal>
#include <cstring>
#include <gtest/gtest.h>
#include <immintrin.h>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace xfc::test;

// The compiler itself must not use tiles elsewhere.
#define WITH_TILES __attribute__((target("amx-tile,amx-int8,amx-bf16"), noinline))

namespace {

struct Configuration {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
  Configuration() = default;
  // The shapes of tiles 0, 1, ..: rows and bytes per row.
  Configuration(std::initializer_list<std::pair<int, int>> shapes) {
    int tile = 0;
    for (auto [count, size] : shapes) {
      rows[tile] = count;
      bytes[tile++] = size;
    }
  }
  bool operator==(const Configuration &) const = default;
};

// Not by intrinsics: GCC's do not tell the compiler which memory they read.
WITH_TILES void configure(const Configuration &configuration) {
  asm volatile("ldtilecfg %0" : : "m"(configuration) : "memory");
}
WITH_TILES Configuration configuration() {
  Configuration found;
  asm volatile("sttilecfg %0" : "=m"(found));
  return found;
}
WITH_TILES void release() { asm volatile("tilerelease"); }
template <int tile> WITH_TILES void load(const void *from, int64_t stride) {
  asm volatile("tileloadd (%0,%1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
}
template <int tile> WITH_TILES void store(void *to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
}

uint16_t bf16(float x) { return std::bit_cast<uint32_t>(x) >> 16; } // of numbers that need no rounding
// Two neighbors along the inner dimension: the even one in the low half.
uint32_t pairOf(float even, float odd) { return bf16(even) | static_cast<uint32_t>(bf16(odd)) << 16; }
uint32_t quad(int a, int b, int c, int d) {
  return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | static_cast<uint32_t>(d & 255) << 24;
}

enum class Product { BF16, BSSD, BSUD, BUSD, BUUD };

// sum += left right, with tiles of `rows` x `depth` and `depth` x `columns` words.
WITH_TILES void multiply(Product product, int rows, int depth, int columns, const void *left, const void *right,
                         void *sum) {
  configure({{rows, 4 * columns}, {rows, 4 * depth}, {depth, 4 * columns}});
  load<0>(sum, 4 * columns);
  load<1>(left, 4 * depth);
  asm volatile("tileloaddt1 (%0,%1), %%tmm2" : : "r"(right), "r"(4L * columns) : "memory");
  switch (product) {
  case Product::BF16:
    asm volatile("tdpbf16ps %tmm2, %tmm1, %tmm0");
    break;
  case Product::BSSD:
    asm volatile("tdpbssd %tmm2, %tmm1, %tmm0");
    break;
  case Product::BSUD:
    asm volatile("tdpbsud %tmm2, %tmm1, %tmm0");
    break;
  case Product::BUSD:
    asm volatile("tdpbusd %tmm2, %tmm1, %tmm0");
    break;
  case Product::BUUD:
    asm volatile("tdpbuud %tmm2, %tmm1, %tmm0");
    break;
  }
  store<0>(sum, 4 * columns);
  release();
}

// One element: its sum after pairs of bf16 are multiplied.
float oneSum(float sum, const std::vector<uint32_t> &left, const std::vector<uint32_t> &right) {
  multiply(Product::BF16, 1, static_cast<int>(left.size()), 1, left.data(), right.data(), &sum);
  return sum;
}

class Tiles : public testing::Test {
protected:
  void SetUp() override {
    unit = prepareTiles();
    ASSERT_NE(unit, TileUnit::None);
    RecordProperty("tiles", executorOf(unit));
  }
  void TearDown() override { release(); }
  TileUnit unit;
};

//===--------------------------------------------------------------------------------------------------------===//
// Products
//===--------------------------------------------------------------------------------------------------------===//

TEST_F(Tiles, MultiplyPairsOfBF16) {
  EXPECT_EQ(oneSum(100, {pairOf(1, 3)}, {pairOf(2, 4)}), 114); // 100 + 1 * 2 + 3 * 4
  EXPECT_EQ(oneSum(0.5, {pairOf(1, 3), pairOf(-2, 0.25)}, {pairOf(2, 4), pairOf(8, 16)}), 2.5);
}

// 2^24 + 1 is no f32. The even products add up to 2^24 (the 1 is lost), the odd ones to 2, and the sum is added last;
// one chain of sums from -2^24 on would give 3.
TEST_F(Tiles, AddEvenAndOddProductsApart) {
  EXPECT_EQ(oneSum(-16777216, {pairOf(4096, 1), pairOf(1, 1)}, {pairOf(4096, 1), pairOf(1, 1)}), 2);
  // Even products add up to 1 in their order, -2^24 + (2^24 + 1) would lose it.
  EXPECT_EQ(
      oneSum(0, {pairOf(4096, 0), pairOf(-4096, 0), pairOf(1, 0)}, {pairOf(4096, 0), pairOf(4096, 0), pairOf(1, 0)}),
      1);
  EXPECT_EQ(
      oneSum(0, {pairOf(4096, 0), pairOf(1, 0), pairOf(-4096, 0)}, {pairOf(4096, 0), pairOf(1, 0), pairOf(4096, 0)}),
      0);
}

TEST_F(Tiles, TreatDenormalNumbersAsZeros) {
  const float denormal = 0x1p-130f;
  // An operand, the sum before, an even sum (2^-30, 2^-130 and 2^-127 otherwise), and the result (2^-127).
  EXPECT_EQ(oneSum(0, {pairOf(denormal, 0)}, {pairOf(0x1p100f, 0)}), 0);
  EXPECT_EQ(oneSum(denormal, {pairOf(0, 0)}, {pairOf(0, 0)}), 0);
  EXPECT_EQ(oneSum(0, {pairOf(0x1p-64f, 0)}, {pairOf(0x1p-63f, 0)}), 0);
  EXPECT_EQ(oneSum(0x1p-125f, {pairOf(-0x1.8p-63f, 0)}, {pairOf(0x1p-63f, 0)}), 0);
}

// Whatever the rounding that MXCSR asks for, which stays as it is.
TEST_F(Tiles, RoundToTheNearestEven) {
  const unsigned before = _mm_getcsr();
  for (unsigned direction : {0x0000, 0x2000, 0x4000, 0x6000}) { // nearest, down, up, toward zero
    _mm_setcsr((before & ~0x6000U) | direction);
    const float up = oneSum(1, {pairOf(0x1.8p-24f, 0)}, {pairOf(1, 0)}),
                even = oneSum(1, {pairOf(0x1p-24f, 0)}, {pairOf(1, 0)}),
                odd = oneSum(0x1.000002p0f, {pairOf(0x1p-24f, 0)}, {pairOf(1, 0)});
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(after & 0x6000, direction);
    EXPECT_EQ(up, 0x1.000002p0f);
    EXPECT_EQ(even, 1);
    EXPECT_EQ(odd, 0x1.000004p0f);
  }
}

TEST_F(Tiles, PassOnNaNAndInfinity) {
  EXPECT_EQ(oneSum(0, {pairOf(INFINITY, 1)}, {pairOf(2, 1)}), INFINITY);
  EXPECT_TRUE(std::isnan(oneSum(0, {pairOf(INFINITY, 0)}, {pairOf(0, 0)})));
  EXPECT_TRUE(std::isnan(oneSum(NAN, {pairOf(1, 1)}, {pairOf(1, 1)})));
}

TEST_F(Tiles, MultiplyBytes) {
  const uint32_t left = quad(200, 1, 2, 255), right = quad(-1, 127, -128, 2);
  auto sum = [&](Product product) {
    int32_t result = 1000;
    multiply(product, 1, 1, 1, &left, &right, &result);
    return result - 1000;
  };
  EXPECT_EQ(sum(Product::BUSD), -200 + 127 - 256 + 510);
  EXPECT_EQ(sum(Product::BSSD), 56 + 127 - 256 - 2);        // 200 is -56, and 255 is -1
  EXPECT_EQ(sum(Product::BSUD), -56 * 255 + 127 + 256 - 2); // -1 is 255, and -128 is 128
  EXPECT_EQ(sum(Product::BUUD), 200 * 255 + 127 + 256 + 510);
  int32_t largest = 0x7fffffff;
  const uint32_t one = quad(1, 0, 0, 0);
  multiply(Product::BSSD, 1, 1, 1, &one, &one, &largest);
  EXPECT_EQ(largest, std::numeric_limits<int32_t>::min());
}

// Whole tiles and smaller ones, of integers, whose sums are exact in any order.
TEST_F(Tiles, HaveAnyShape) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> number(-8, 8);
  for (auto [rows, depth, columns] : {std::tuple{16, 16, 16}, {1, 16, 16}, {5, 3, 7}, {16, 1, 2}}) {
    std::vector<float> left(rows * 2 * depth), right(2 * depth * columns), sum(rows * columns);
    for (std::vector<float> *values : {&left, &right, &sum})
      for (float &x : *values)
        x = static_cast<float>(number(random));
    std::vector<uint32_t> pairs, weights;
    for (size_t i = 0; i < left.size(); i += 2)
      pairs.push_back(pairOf(left[i], left[i + 1]));
    for (int unit = 0; unit < depth; ++unit)
      for (int column = 0; column < columns; ++column)
        weights.push_back(pairOf(right[2 * unit * columns + column], right[(2 * unit + 1) * columns + column]));
    std::vector<float> want = sum;
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column)
        for (int k = 0; k < 2 * depth; ++k)
          want[row * columns + column] += left[row * 2 * depth + k] * right[k * columns + column];
    multiply(Product::BF16, rows, depth, columns, pairs.data(), weights.data(), sum.data());
    EXPECT_EQ(sum, want) << rows << " x " << depth << " x " << columns;
  }
}

// The emulator's bits are the CPU's, for numbers of any size.
TEST_F(Tiles, GiveTheSameBitsInTheEmulator) {
  if (unit != TileUnit::CPU)
    GTEST_SKIP() << "this CPU has no tiles to compare the emulator with";
  std::mt19937 random(5);
  for (int turn = 0; turn < 100; ++turn) {
    alignas(64) uint32_t left[256], right[256], byCPU[256], byEmulator[256];
    for (int i = 0; i < 256; ++i) {
      left[i] = random();
      right[i] = random();
      byCPU[i] = byEmulator[i] = random();
    }
    multiply(Product::BF16, 16, 16, 16, left, right, byCPU);
    const Configuration shapes({{16, 64}, {16, 64}, {16, 64}});
    uint64_t registers[16] = {};
    auto execute = [&](std::initializer_list<int> code, const void *memory) {
      registers[0] = reinterpret_cast<uint64_t>(memory);
      registers[1] = 64;
      std::vector<uint8_t> bytes(code.begin(), code.end());
      bytes.resize(16);
      ASSERT_EQ(emulateTileInstruction(bytes.data(), registers), static_cast<int64_t>(code.size()));
    };
    execute({0xc4, 0xe2, 0x78, 0x49, 0x00}, &shapes);          // ldtilecfg (%rax)
    execute({0xc4, 0xe2, 0x7b, 0x4b, 0x04, 0x08}, byEmulator); // tileloadd (%rax,%rcx), %tmm0
    execute({0xc4, 0xe2, 0x7b, 0x4b, 0x0c, 0x08}, left);       // %tmm1
    execute({0xc4, 0xe2, 0x7b, 0x4b, 0x14, 0x08}, right);      // %tmm2
    execute({0xc4, 0xe2, 0x6a, 0x5c, 0xc1}, nullptr);          // tdpbf16ps %tmm2, %tmm1, %tmm0
    execute({0xc4, 0xe2, 0x7a, 0x4b, 0x04, 0x08}, byEmulator); // tilestored %tmm0, (%rax,%rcx)
    for (int i = 0; i < 256; ++i) {
      const bool bothNaN =
          std::isnan(std::bit_cast<float>(byCPU[i])) && std::isnan(std::bit_cast<float>(byEmulator[i]));
      ASSERT_TRUE(bothNaN || byCPU[i] == byEmulator[i]) << "element " << i << " of turn " << turn;
    }
  }
}

//===--------------------------------------------------------------------------------------------------------===//
// Tiles in memory
//===--------------------------------------------------------------------------------------------------------===//

TEST_F(Tiles, AreConfiguredAndReleased) {
  EXPECT_EQ(configuration().palette, 0);
  const Configuration shapes({{16, 64}, {3, 20}});
  configure(shapes);
  EXPECT_EQ(configuration(), shapes);
  release();
  Configuration none;
  none.palette = 0;
  EXPECT_EQ(configuration(), none);
}

WITH_TILES void zeroTile() { asm volatile("tilezero %tmm1"); }

// Three rows of 20 bytes, 24 bytes apart in memory, 28 bytes apart where they are stored; bytes between stay.
TEST_F(Tiles, MoveRowsOfAnyStride) {
  configure({{16, 64}, {3, 20}});
  uint8_t from[100], loaded[100], zeroed[100], configured[100];
  for (int i = 0; i < 100; ++i) {
    from[i] = i;
    loaded[i] = zeroed[i] = configured[i] = 0xff;
  }
  load<1>(from, 24);
  store<1>(loaded, 28);
  zeroTile();
  store<1>(zeroed, 28);
  load<1>(from, 24);
  configure({{16, 64}, {3, 20}}); // zeroes all tiles
  store<1>(configured, 28);
  for (int i = 0; i < 100; ++i) {
    const bool inside = i / 28 < 3 && i % 28 < 20;
    EXPECT_EQ(loaded[i], inside ? i / 28 * 24 + i % 28 : 0xff) << i;
    EXPECT_EQ(zeroed[i], inside ? 0 : 0xff) << i;
    EXPECT_EQ(configured[i], inside ? 0 : 0xff) << i;
  }
}

// Each form of an address: other registers, scales, displacements of one and of four bytes, no index (every row is the
// same), and relative to the instruction.
WITH_TILES void loadByAllForms(const uint32_t *from, uint32_t *to) {
  static const Configuration shapes({{2, 4}});
  asm volatile("ldtilecfg %0" : : "m"(shapes));
  const long stride = 4;
#define FORM(i, registers, address, ...)                                                                               \
  asm volatile(registers "\n\ttileloadd " address ", %%tmm0\n\ttilestored %%tmm0, (%2,%1)"                             \
               :                                                                                                       \
               : "r"(from), "r"(stride), "r"(to + 2 * (i))                                                             \
               : "memory", __VA_ARGS__)
  FORM(0, "mov %0, %%rax\n\tmov %1, %%rbx", "(%%rax,%%rbx)", "rax", "rbx");
  FORM(1, "mov %0, %%r13\n\tmov %1, %%r12", "(%%r13,%%r12)", "r12", "r13");
  FORM(2, "mov %0, %%r12\n\tmov $1, %%r9d", "(%%r12,%%r9,4)", "r9", "r12");
  FORM(3, "mov %0, %%r15\n\tmov $2, %%ecx", "12(%%r15,%%rcx,2)", "r15", "rcx");
  FORM(4, "lea -1000(%0), %%rdx\n\tmov $1, %%r8d", "1000(%%rdx,%%r8,8)", "rdx", "r8");
  FORM(5, "lea 100(%0), %%rbx\n\tmov $-8, %%r10", "-96(%%rbx,%%r10)", "rbx", "r10");
  FORM(6, "mov %0, %%r14", "8(%%r14)", "r14");
  FORM(7, "mov %0, %%r11\n\tmov %1, %%rdi", "-4(%%r11,%%rdi)", "r11", "rdi");
#undef FORM
}

TEST_F(Tiles, AreAddressedInEveryForm) {
  uint32_t words[32], loaded[16];
  for (int i = 0; i < 32; ++i)
    words[i] = i;
  loadByAllForms(words + 8, loaded);
  const std::vector<uint32_t> want = {8, 9, 8, 9, 8, 9, 11, 12, 8, 10, 9, 7, 10, 10, 7, 8};
  EXPECT_EQ(std::vector<uint32_t>(loaded, loaded + 16), want);
}

// Through an index register, from one of the upper eight registers, and from the stack.
WITH_TILES void configureFrom(const Configuration *shapes, int form) {
  const Configuration copy = *shapes;
  if (form == 0)
    asm volatile("ldtilecfg 64(%0,%1,8)" : : "r"(shapes - 2), "r"(8L) : "memory");
  else if (form == 1)
    asm volatile("mov %0, %%r9\n\txor %%ecx, %%ecx\n\tldtilecfg (%%r9)" : : "r"(shapes) : "rcx", "r9", "memory");
  else
    asm volatile("ldtilecfg %0" : : "m"(copy) : "memory");
}
TEST_F(Tiles, AreConfiguredFromAnyAddress) {
  const Configuration shapes({{7, 8}});
  for (int form = 0; form < 3; ++form) {
    configureFrom(&shapes, form);
    EXPECT_EQ(configuration(), shapes);
    release();
  }
}

// A thread, or a process, begins with no configuration or, under Linux, with its creator's, and with zeros in all
// tiles; what it does changes nothing in its creator.
class TilesAtTheBeginning : public Tiles {
protected:
  void SetUp() override {
    Tiles::SetUp();
    configure(shapes);
    load<0>(mine, 4);
  }
  // Whether a thread or process may begin in the present state, which it then changes.
  bool beginsWell() {
    const Configuration found = configuration();
    uint32_t tile[2] = {};
    if (found == shapes)
      store<0>(tile, 4);
    configure({{3, 8}});
    load<0>(other, 8);
    release();
    return (unit == TileUnit::CPU ? found.palette == 0 || found == shapes : found == shapes) && tile[0] == 0 &&
           tile[1] == 0;
  }
  void expectMine() {
    ASSERT_EQ(configuration(), shapes);
    uint32_t kept[2] = {};
    store<0>(kept, 4);
    EXPECT_EQ(kept[0], 5U);
    EXPECT_EQ(kept[1], 6U);
  }
  const Configuration shapes{{2, 4}};
  const uint32_t mine[2] = {5, 6}, other[6] = {7, 8, 9, 10, 11, 12};
};

TEST_F(TilesAtTheBeginning, BelongToTheirThread) {
  bool well = false;
  std::thread([&] { well = beginsWell(); }).join();
  EXPECT_TRUE(well);
  expectMine();
}

TEST_F(TilesAtTheBeginning, BelongToTheirProcess) {
  const pid_t child = fork();
  if (child == 0)
    _exit(beginsWell() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  expectMine();
}

//===--------------------------------------------------------------------------------------------------------===//
// What is refused
//===--------------------------------------------------------------------------------------------------------===//

WITH_TILES void multiplyConfigured() { asm volatile("tdpbf16ps %tmm2, %tmm1, %tmm0"); }

TEST_F(Tiles, EndTheProcessIfShapesAreWrong) {
  auto expectEnd = [&](const std::function<void()> &body, const char *message) {
    EXPECT_DEATH(body(), unit == TileUnit::Emulator ? message : "");
  };
  expectEnd([] { multiplyConfigured(); }, "a tile that is not configured");
  expectEnd([] { configure({{16, 64}, {16, 64}, {15, 64}}), multiplyConfigured(); }, "do not match");
  expectEnd([] { configure({{16, 64}, {15, 64}, {16, 64}}), multiplyConfigured(); }, "do not match");
  expectEnd([] { configure({{16, 60}, {16, 64}, {16, 64}}), multiplyConfigured(); }, "do not match");
  expectEnd([] { configure({{16, 62}, {16, 64}, {16, 62}}), multiplyConfigured(); }, "no whole words");
  expectEnd([] { configure({{16, 64}, {0, 64}}); }, "rows without bytes, or bytes without rows");
  expectEnd([] { configure({{17, 64}}); }, "larger than 16 rows");
  expectEnd([] { configure({{16, 65}}); }, "larger than 16 rows");
}

TEST_F(Tiles, LeaveOtherIllegalInstructionsToTheProcess) {
  EXPECT_EXIT(asm volatile("ud2"), testing::KilledBySignal(SIGILL), "");
  const uint64_t registers[16] = {};
  for (std::initializer_list<int> code : {std::initializer_list<int>{0x0f, 0x0b},
                                          {0xc4, 0xe2, 0xfb, 0x4b, 0x04, 0x08}, // W = 1
                                          {0xc4, 0xe2, 0x7f, 0x4b, 0x04, 0x08}, // L = 1
                                          {0xc4, 0xe1, 0x7b, 0x4b, 0x04, 0x08}, // another map
                                          {0xc4, 0xe2, 0x7b, 0x4b, 0x01},       // tileloadd without a SIB byte
                                          {0xc4, 0xe2, 0x6b, 0x5c, 0xc1},       // tdpfp16ps
                                          {0xc5, 0xfb, 0x5c, 0xc1}}) {          // vsubsd, with a prefix of two bytes
    std::vector<uint8_t> bytes(code.begin(), code.end());
    bytes.resize(16);
    EXPECT_EQ(emulateTileInstruction(bytes.data(), registers), 0) << "code " << bytes[0] << ' ' << +bytes[3];
  }
}

} // namespace
