// Sums the gradients of ranks whose devices use host memory.
#include "train/GradientSum.h"
#include <algorithm>
#include <cstring>

namespace xfc {

GradientSum::GradientSum(Ranks &ranks, ThreadPool &pool, const Module &module, const Sharding &sharding)
    : ranks(ranks), pool(pool), sharding(sharding), elements(module.parameterElements), element(bytesOf(module.type)),
      isDouble(module.type == DType::F64), progress(sharding.buckets().size()) {
  int64_t share = 0;
  for (const Sharding::Bucket &bucket : sharding.buckets()) {
    places.push_back(share);
    share += sizeOf(bucket.shares[ranks.rank()]);
  }
  sum.resize(share * element);
  received.resize(sum.size() * (ranks.size() - 1));
}

char *GradientSum::receivedFrom(int rank) {
  return received.data() + (rank < ranks.rank() ? rank : rank - 1) * static_cast<int64_t>(sum.size());
}

void GradientSum::begin(int batches, bool first) {
  count = batches;
  isFirst = first;
  progress.assign(progress.size(), {});
  for (size_t bucket = 0; bucket < progress.size(); ++bucket) {
    receives.clear();
    for (int rank = 0; rank < count; ++rank) {
      char *to = receivedFrom(rank) + places[bucket] * element;
      for (const Range &range : sharding.buckets()[bucket].shares[ranks.rank()]) {
        if (rank != ranks.rank())
          receives.push_back({rank, to, range.size() * element});
        to += range.size() * element;
      }
    }
    progress[bucket].receiving = ranks.start({}, receives);
  }
}

void GradientSum::before(const ProgramRun &run, int64_t step) {
  gradients = static_cast<char *>(run.address({Place::Kind::Gradients}));
  for (size_t bucket = 0; bucket < progress.size() && sharding.buckets()[bucket].step <= step; ++bucket)
    send(bucket);
  advance(false);
}

void GradientSum::send(size_t bucket) {
  if (progress[bucket].sent)
    return;
  progress[bucket].sent = true;
  if (ranks.rank() >= count) // it has no batch
    return;
  sends.clear();
  for (int rank = 0; rank < ranks.size(); ++rank)
    if (rank != ranks.rank())
      for (const Range &range : sharding.buckets()[bucket].shares[rank])
        sends.push_back({rank, gradients + range.begin * element, range.size() * element});
  progress[bucket].sending = ranks.start(sends, {});
}

void GradientSum::end(void *of) {
  gradients = static_cast<char *>(of);
  for (size_t bucket = 0; bucket < progress.size(); ++bucket)
    send(bucket);
  advance(true);
}

void GradientSum::advance(bool waits) {
  for (size_t bucket = 0; bucket < progress.size(); ++bucket) {
    Progress &of = progress[bucket];
    const auto completes = [&](int &exchange) {
      if (exchange >= 0 && waits)
        ranks.wait(exchange);
      else if (exchange >= 0 && !ranks.isComplete(exchange))
        return;
      exchange = -1;
    };
    completes(of.receiving);
    completes(of.sending);
    if (of.sent && of.receiving < 0 && !of.added)
      add(bucket);
  }
}

void GradientSum::add(size_t bucket) {
  progress[bucket].added = true;
  isDouble ? addShares<double>(bucket) : addShares<float>(bucket);
}

template <typename T> void GradientSum::addTerms(T *sum, int64_t size) {
  static constexpr int64_t chunk = 1 << 13;
  struct Work {
    T *sum;
    std::span<const char *const> terms;
    int64_t size;
    bool first;
  } work{sum, terms, size, isFirst};
  // Run in the pool, whose threads treat denormals as those that run programs do.
  pool.run(
      [](void *context, int64_t number, int) {
        const Work &work = *static_cast<const Work *>(context);
        const int64_t begin = number * chunk, end = std::min(begin + chunk, work.size);
        const auto term = [&](size_t rank) { return reinterpret_cast<const T *>(work.terms[rank]); };
        if (work.first)
          std::copy(term(0) + begin, term(0) + end, work.sum + begin);
        for (size_t rank = work.first; rank < work.terms.size(); ++rank)
          for (int64_t i = begin; i < end; ++i)
            work.sum[i] += term(rank)[i];
      },
      &work, (work.size + chunk - 1) / chunk);
}

template <typename T> void GradientSum::addShares(size_t bucket) {
  int64_t place = places[bucket];
  for (const Range &range : sharding.buckets()[bucket].shares[ranks.rank()]) {
    terms.clear();
    for (int rank = 0; rank < count; ++rank)
      terms.push_back(rank == ranks.rank() ? gradients + range.begin * element : receivedFrom(rank) + place * element);
    addTerms(reinterpret_cast<T *>(sum.data()) + place, range.size());
    place += range.size();
  }
}

void GradientSum::finish(void *of) {
  for (size_t bucket = 0; bucket < progress.size(); ++bucket) {
    const char *from = sum.data() + places[bucket] * element;
    for (const Range &range : sharding.buckets()[bucket].shares[ranks.rank()]) {
      std::memcpy(static_cast<char *>(of) + range.begin * element, from, range.size() * element);
      from += range.size() * element;
    }
  }
}

void gatherOnHosts(Ranks &ranks, const Sharding &sharding, const BlockOfElements &block) {
  std::vector<Ranks::Part> sends, receives;
  exchangeToGather(sharding, ranks.rank(), ranks.size(), block, sends, receives);
  ranks.exchange(sends, receives);
}

} // namespace xfc
