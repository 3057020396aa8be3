// A small pool: each thread starts with its own share of consecutive chunks, and helps the others when that is done. A
// kernel's chunks are rows in order, so what a thread reads it mostly wrote itself, a kernel before, and has in its own
// cache. The caller works too and closes the region, so a late worker never blocks it. Idle workers spin briefly, then
// sleep on a futex.
#pragma once

#include <cstdint>
#include <memory>

namespace xfc {

class ThreadPool {
public:
  // `threads` >= 1 counts the caller. Every thread flushes denormals to zero. Throws Error where the system refuses
  // one.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  int threads() const;
  // Calls body(context, chunk, thread) for each chunk in 0..chunks-1, and returns when all are done. What one throws is
  // thrown here when no thread is at work any more; chunks that were not begun then are left out.
  void run(void (*body)(void *context, int64_t chunk, int thread), void *context, int64_t chunks);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace xfc
