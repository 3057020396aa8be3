// Sums the gradients of all ranks.
#include "train/GradientSum.h"
#include <algorithm>
#include <cstring>

namespace xfc {

GradientSum::GradientSum(Ranks &ranks, ThreadPool &pool, const Module &module)
    : ranks(ranks), pool(pool), elements(module.parameterElements), element(bytesOf(module.type)),
      isDouble(module.type == DType::F64) {
  const int64_t share = ranks.size() > 1 ? sizeOf(ranks.rank()) * element : 0;
  sum.resize(share);
  received.resize(share * (ranks.size() - 1));
}

// Shares are aligned to cache lines.
int64_t GradientSum::beginOf(int rank) const {
  constexpr int64_t line = 16;
  return rank == ranks.size() ? elements : elements / line * rank / ranks.size() * line;
}

char *GradientSum::receivedFrom(int rank) {
  return received.data() + (rank < ranks.rank() ? rank : rank - 1) * static_cast<int64_t>(sum.size());
}

template <typename T> void GradientSum::addShares(const void *gradients, int count, bool first) {
  constexpr int64_t chunk = 1 << 13;
  struct Work {
    T *sum;
    std::vector<const T *> terms;
    int64_t size;
    bool first;
  } work{reinterpret_cast<T *>(sum.data()), {}, sizeOf(ranks.rank()), first};
  for (int rank = 0; rank < count; ++rank)
    work.terms.push_back(rank == ranks.rank() ? static_cast<const T *>(gradients) + beginOf(rank)
                                              : reinterpret_cast<const T *>(receivedFrom(rank)));
  // Run in the pool, whose threads treat denormals as those that run programs do.
  pool.run(
      [](void *context, int64_t number, int) {
        const Work &work = *static_cast<const Work *>(context);
        const int64_t begin = number * chunk, end = std::min(begin + chunk, work.size);
        size_t term = 0;
        if (work.first)
          std::copy(work.terms[term] + begin, work.terms[term] + end, work.sum + begin);
        for (term += work.first; term < work.terms.size(); ++term)
          for (int64_t i = begin; i < end; ++i)
            work.sum[i] += work.terms[term][i];
      },
      &work, (work.size + chunk - 1) / chunk);
}

void GradientSum::add(void *gradients, int count, bool first) {
  auto *mine = static_cast<char *>(gradients);
  const int me = ranks.rank();
  sends.clear();
  receives.clear();
  for (int rank = 0; rank < ranks.size(); ++rank)
    if (rank != me && me < count)
      sends.push_back({rank, mine + beginOf(rank) * element, sizeOf(rank) * element});
  for (int rank = 0; rank < count; ++rank)
    if (rank != me)
      receives.push_back({rank, receivedFrom(rank), static_cast<int64_t>(sum.size())});
  ranks.exchange(sends, receives);
  isDouble ? addShares<double>(gradients, count, first) : addShares<float>(gradients, count, first);
}

void GradientSum::finish(void *gradients) {
  auto *all = static_cast<char *>(gradients);
  sends.clear();
  receives.clear();
  for (int rank = 0; rank < ranks.size(); ++rank)
    if (rank != ranks.rank()) {
      sends.push_back({rank, sum.data(), static_cast<int64_t>(sum.size())});
      receives.push_back({rank, all + beginOf(rank) * element, sizeOf(rank) * element});
    }
  ranks.exchange(sends, receives);
  std::memcpy(all + beginOf(ranks.rank()) * element, sum.data(), sum.size());
}

} // namespace xfc
