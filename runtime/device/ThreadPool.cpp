// The pool: a share of consecutive chunks per thread; idle workers spin briefly, then wait on a futex.
#include "device/ThreadPool.h"
#include "support/Error.h"
#include <algorithm>
#include <atomic>
#include <exception>
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace xfc {

void flushDenormals() { _mm_setcsr(_mm_getcsr() | 0x8040); } // FTZ and DAZ

struct ThreadPool::State {
  using Body = void (*)(void *, int64_t, int);
  std::vector<std::thread> workers;
  // The current region. Written before `gate` opens, read by the workers that entered.
  Body body = nullptr;
  void *context = nullptr;
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::vector<Share> shares; // one per thread
  // Bit 31: the region is open. Lower bits: the number of workers inside. A late worker finds it closed and stays out.
  alignas(64) std::atomic<uint32_t> gate{0};
  alignas(64) std::atomic<uint32_t> epoch{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  // The first exception of a region; after it no further chunks are started.
  std::atomic<bool> failed{false};
  std::exception_ptr failure;

  static constexpr uint32_t open = 1u << 31;

  explicit State(int threads) : shares(threads) {}

  // Runs a thread's own share first, then what is left of the others' shares.
  void drain(int thread) noexcept {
    try {
      drainShares(thread);
    } catch (...) {
      if (!failed.exchange(true))
        failure = std::current_exception();
      for (Share &share : shares)
        share.next.store(share.end, std::memory_order_relaxed);
    }
  }

  void drainShares(int thread) {
    const int threads = static_cast<int>(shares.size());
    for (int i = 0; i < threads; ++i) {
      Share &share = shares[(thread + i) % threads];
      for (int64_t chunk; (chunk = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
        body(context, chunk, thread);
    }
  }

  void work(int thread) {
    flushDenormals();
    uint32_t seen = 0;
    for (;;) {
      for (int spins = 0; epoch.load(std::memory_order_acquire) == seen; ++spins) {
        if (stop.load(std::memory_order_relaxed))
          return;
        if (spins < 2000) {
          _mm_pause();
        } else if (spins < 2004) {
          sched_yield();
        } else {
          sleepers.fetch_add(1);
          syscall(SYS_futex, &epoch, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
          sleepers.fetch_sub(1);
          spins = 0;
        }
      }
      seen = epoch.load(std::memory_order_acquire);
      uint32_t state = gate.load(std::memory_order_acquire);
      bool in = false;
      while (!in && (state & open))
        in = gate.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel, std::memory_order_acquire);
      if (!in)
        continue;
      drain(thread);
      gate.fetch_sub(1, std::memory_order_release);
    }
  }

  void wake() {
    epoch.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) > 0)
      syscall(SYS_futex, &epoch, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
  }

  ~State() {
    stop.store(true);
    wake();
    for (std::thread &worker : workers)
      worker.join();
  }
};

ThreadPool::ThreadPool(int threads) : state(std::make_unique<State>(std::max(threads, 1))) {
  flushDenormals();
  state->workers.reserve(state->shares.size() - 1);
  try {
    for (int thread = 1; thread < threads; ++thread)
      state->workers.emplace_back([state = state.get(), thread] { state->work(thread); });
  } catch (const std::system_error &refused) {
    throw Error("thread " + std::to_string(state->workers.size() + 2) + " of " + std::to_string(threads) +
                " cannot be started: " + refused.code().message() + "; use fewer (--threads)");
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return static_cast<int>(state->shares.size()); }

void ThreadPool::run(void (*body)(void *, int64_t, int), void *context, int64_t chunks) {
  if (state->workers.empty() || chunks <= 1) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      body(context, chunk, 0);
    return;
  }
  state->body = body;
  state->context = context;
  const int64_t threads = this->threads();
  for (int64_t i = 0; i < threads; ++i) {
    state->shares[i].next.store(chunks * i / threads, std::memory_order_relaxed);
    state->shares[i].end = chunks * (i + 1) / threads;
  }
  state->gate.store(State::open, std::memory_order_release);
  state->wake();
  state->drain(0);
  // No chunk is left: closes the region and waits for workers that still run one.
  state->gate.fetch_and(~State::open, std::memory_order_acq_rel);
  for (int spins = 0; state->gate.load(std::memory_order_acquire) != 0; ++spins)
    spins < 1000 ? _mm_pause() : static_cast<void>(sched_yield());
  if (state->failed.exchange(false))
    std::rethrow_exception(std::exchange(state->failure, nullptr));
}

} // namespace xfc
