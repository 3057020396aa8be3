// Measures the peak rates of the machine: independent multiply-adds in registers, and passes over memory larger than
// its caches.
#include "app/Peak.h"
#include <algorithm>
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

struct Work {
  int64_t threads;
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

void readMemory(void *context, int64_t chunk, int) {
  auto *work = static_cast<Work *>(context);
  const uint64_t *begin = work->memory.get() + chunk * work->share();
  uint64_t sum[8] = {};
  for (int64_t i = 0; i < work->share(); i += 8)
    for (int64_t j = 0; j < 8; ++j)
      sum[j] += begin[i + j];
  for (uint64_t part : sum)
    work->result += part;
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

Peak measurePeak(ThreadPool &pool) {
  Work work{.threads = pool.threads()};
  const double flops = 2.0 * sums * rounds * (work.wide ? 16 : 8) * static_cast<double>(work.threads);
  const double bytes = static_cast<double>(work.share() * work.threads * sizeof(uint64_t));
  return {best(pool, work, compute, flops), best(pool, work, readMemory, bytes), best(pool, work, copyMemory, bytes)};
}

} // namespace xfc
