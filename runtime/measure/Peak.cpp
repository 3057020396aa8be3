// Measures the peak rates of the machine: independent products in registers, and passes over memory larger than its
// caches.
#include "measure/Peak.h"
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <immintrin.h>
#include <memory>

namespace xfc {

namespace {

// Twelve independent accumulators hide the latency of two multiply-adds per cycle.
constexpr int64_t sums = 12, rounds = 500'000;

[[gnu::target("avx2,fma")]] float multiplyAdd256() {
  __m256 sum[sums], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
  for (int64_t i = 0; i < sums; ++i)
    sum[i] = _mm256_set1_ps(static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 12
    for (int64_t i = 0; i < sums; ++i)
      sum[i] = _mm256_fmadd_ps(sum[i], x, y);
  for (int64_t i = 1; i < sums; ++i)
    sum[0] = _mm256_add_ps(sum[0], sum[i]);
  return _mm256_cvtss_f32(sum[0]);
}

[[gnu::target("avx512f")]] float multiplyAdd512() {
  __m512 sum[sums], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
  for (int64_t i = 0; i < sums; ++i)
    sum[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 12
    for (int64_t i = 0; i < sums; ++i)
      sum[i] = _mm512_fmadd_ps(sum[i], x, y);
  for (int64_t i = 1; i < sums; ++i)
    sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return _mm512_cvtss_f32(sum[0]);
}

// A function that repeats an instruction, or several, for twelve sums \\i in vector registers; registers 12 and 13 are
// its operands, 14 and 15 are free. In assembly, because the compilers that build the runtime do not all know the
// instructions.
// NOLINTBEGIN(cppcoreguidelines-macro-usage): a function cannot be given the text of its instructions.
#define XFC_REPEATED(name, features, instructions)                                                                     \
  [[gnu::target(features)]] void name(int64_t count) {                                                                 \
    const int32_t ones = 0x3f803f80; /* two bf16 of 1 */                                                               \
    asm volatile("vbroadcastss %1, %%ymm12\n vbroadcastss %1, %%ymm13\n"                                               \
                 ".irp i,0,1,2,3,4,5,6,7,8,9,10,11\n vxorps %%ymm\\i, %%ymm\\i, %%ymm\\i\n .endr\n"                    \
                 "1:\n .irp i,0,1,2,3,4,5,6,7,8,9,10,11\n" instructions ".endr\n dec %0\n jnz 1b\n vzeroupper"         \
                 : "+r"(count)                                                                                         \
                 : "m"(ones)                                                                                           \
                 : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",      \
                   "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                                                       \
  }
XFC_REPEATED(pairs, "avx512f,avx512bf16", "vdpbf16ps %%zmm13, %%zmm12, %%zmm\\i\n")
XFC_REPEATED(dots512, "avx512f,avx512vnni", "vpdpbusd %%zmm13, %%zmm12, %%zmm\\i\n")
XFC_REPEATED(dots256, "avx2,avxvnni", "%{vex%} vpdpbusd %%ymm13, %%ymm12, %%ymm\\i\n")
// As compiler/CPU/Products/Int8.cpp multiplies without VNNI: flips signs, multiplies in two steps and adds.
XFC_REPEATED(quads512, "avx512f,avx512bw",
             "vpxord %%zmm13, %%zmm12, %%zmm14\n vpmaddubsw %%zmm14, %%zmm12, %%zmm14\n"
             "vpmaddwd %%zmm13, %%zmm14, %%zmm14\n vpaddd %%zmm14, %%zmm\\i, %%zmm\\i\n")
XFC_REPEATED(quads256, "avx2",
             "vpxor %%ymm13, %%ymm12, %%ymm14\n vpmaddubsw %%ymm14, %%ymm12, %%ymm14\n"
             "vpmaddwd %%ymm13, %%ymm14, %%ymm14\n vpaddd %%ymm14, %%ymm\\i, %%ymm\\i\n")
#undef XFC_REPEATED

// Six tiles of sums, and one of each operand; `product` is the instruction.
struct TileShapes {
  uint8_t palette = 1, reserved[15] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
#define XFC_REPEATED(name, product)                                                                                    \
  [[gnu::target("amx-tile,amx-bf16,amx-int8")]] void name(int64_t count) {                                             \
    const TileShapes shapes;                                                                                           \
    asm volatile("ldtilecfg %1\n .irp i,0,1,2,3,4,5,6,7\n tilezero %%tmm\\i\n .endr\n"                                 \
                 "1:\n .irp i,0,1,2,3,4,5\n" product                                                                   \
                 " %%tmm7, %%tmm6, %%tmm\\i\n .endr\n dec %0\n jnz 1b\n tilerelease"                                   \
                 : "+r"(count)                                                                                         \
                 : "m"(shapes)                                                                                         \
                 : "cc");                                                                                              \
  }
XFC_REPEATED(tilesOfPairs, "tdpbf16ps")
XFC_REPEATED(tilesOfBytes, "tdpbusd")
#undef XFC_REPEATED
// NOLINTEND(cppcoreguidelines-macro-usage)

// How an instruction set multiplies in a type, and the operations of one iteration.
struct Form {
  void (*repeat)(int64_t count) = nullptr;
  int64_t operations = 0, count = rounds;
};

// The forms of compiler/CPU/Products/MicroKernel.h; without instructions for pairs, bf16 is multiplied as f32.
Form formOfBF16(const std::string &cpu) {
  if (cpu.find("+amx") != std::string::npos)
    return {tilesOfPairs, int64_t{6} * 2 * 16 * 16 * 32, rounds / 64};
  if (cpu.find("+bf16") != std::string::npos)
    return {pairs, sums * 2 * 32};
  return {};
}

Form formOfInt8(const std::string &cpu) {
  const bool wide = cpu.find("v4") != std::string::npos;
  if (cpu.find("+amx") != std::string::npos)
    return {tilesOfBytes, int64_t{6} * 2 * 16 * 16 * 64, rounds / 64};
  if (cpu.find("+vnni") != std::string::npos || cpu.find("+bf16") != std::string::npos)
    return wide ? Form{dots512, sums * 2 * 64} : Form{dots256, sums * 2 * 32};
  return wide ? Form{quads512, sums * 2 * 64} : Form{quads256, sums * 2 * 32};
}

struct Work {
  int64_t threads;
  Form form = {};
  bool wide = __builtin_cpu_supports("avx512f");
  static constexpr int64_t words = 1 << 25; // 256 MB
  std::unique_ptr<uint64_t[]> memory = std::make_unique<uint64_t[]>(words);
  std::atomic<uint64_t> result = 0; // keeps the compiler from removing the work

  int64_t share() const { return words / threads / 16 * 16; }
};

void compute(void *context, int64_t, int) {
  auto *work = static_cast<Work *>(context);
  work->result += static_cast<uint64_t>(work->wide ? multiplyAdd512() : multiplyAdd256());
}

void multiply(void *context, int64_t, int) {
  const Form &form = static_cast<Work *>(context)->form;
  form.repeat(form.count);
}

// Reads four places at a time, as kernels read several rows: more lines are on their way than those of one place, for
// which the hardware looks ahead only up to the end of a page.
[[gnu::target("avx2")]] void readMemory(void *context, int64_t chunk, int) {
  constexpr int64_t places = 4, line = 8;
  auto *work = static_cast<Work *>(context);
  const int64_t apart = work->share() / places / line * line;
  const uint64_t *begin = work->memory.get() + chunk * work->share();
  __m256i sum[places][2] = {};
  for (int64_t i = 0; i < apart; i += line)
#pragma GCC unroll 4
    for (int64_t p = 0; p < places; ++p)
#pragma GCC unroll 2
      for (int64_t half = 0; half < 2; ++half) {
        const auto *at = reinterpret_cast<const __m256i *>(begin + p * apart + i + half * line / 2);
        sum[p][half] = _mm256_add_epi64(sum[p][half], _mm256_loadu_si256(at));
      }
  __m256i all = _mm256_setzero_si256();
  for (auto &ofPlace : sum)
    for (__m256i part : ofPlace)
      all = _mm256_add_epi64(all, part);
  alignas(32) std::array<uint64_t, 4> parts;
  _mm256_store_si256(reinterpret_cast<__m256i *>(parts.data()), all);
  work->result += parts[0] + parts[1] + parts[2] + parts[3];
}

void copyMemory(void *context, int64_t chunk, int) {
  auto *work = static_cast<Work *>(context);
  uint64_t *begin = work->memory.get() + chunk * work->share();
  std::memcpy(begin, begin + work->share() / 2, static_cast<size_t>(work->share() / 2) * sizeof *begin);
}

// Runs `body` eight times; returns the best rate, in 1e9 units of `amount` per second.
double best(ThreadPool &pool, Work &work, void (*body)(void *, int64_t, int), double amount) {
  double least = 1e9;
  for (int run = 0; run < 8; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    pool.run(body, &work, work.threads);
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return amount / least * 1e-9;
}

} // namespace

double Peak::rateOf(const std::string &kernel) const {
  // The name of a product's kernel says which type it multiplies in (compiler/Analysis/Kernels.cpp).
  auto named = [&](const char *type) { return (kernel + "_").find(type) != std::string::npos; };
  return named("_bf16_") ? bf16 : named("_int8_") ? int8 : gflops;
}

Peak measurePeak(ThreadPool &pool, const std::string &cpu) {
  Work work{.threads = pool.threads()};
  auto rateOf = [&](const Form &form, double otherwise) {
    work.form = form;
    return form.repeat ? best(pool, work, multiply, static_cast<double>(form.operations * form.count * work.threads))
                       : otherwise;
  };
  const double flops = 2.0 * sums * rounds * (work.wide ? 16 : 8) * static_cast<double>(work.threads);
  const double bytes = static_cast<double>(work.share() * work.threads * sizeof(uint64_t));
  Peak peak;
  peak.gflops = best(pool, work, compute, flops);
  peak.bf16 = rateOf(formOfBF16(cpu), peak.gflops);
  peak.int8 = rateOf(formOfInt8(cpu), peak.gflops);
  peak.readBandwidth = best(pool, work, readMemory, bytes);
  peak.copyBandwidth = best(pool, work, copyMemory, bytes);
  return peak;
}

} // namespace xfc
