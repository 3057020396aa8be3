// Sums the gradients of ranks whose devices have memory of their own, and exchange it (Peers).
#pragma once

#include "engine/Engine.h"
#include "ranks/Ranks.h"
#include "train/SumOfRanks.h"
#include <memory>
#include <vector>

namespace xfc {

// The host only says what to do; everything is done by the device, in order. It sends each bucket while it computes the
// gradients that follow, and adds once all of a round's have arrived.
class DeviceSum : public SumOfRanks {
public:
  // `sharding` must outlive this object, and so must the engine. Nothing but bytes() may be used before join().
  DeviceSum(Ranks &ranks, Engine &engine, const Sharding &sharding);
  // Makes the device exchange memory with those of the other ranks, which all call this. Throws CommonError if two of
  // them use the same GPU.
  void join();

  void begin(int count, bool first) override;
  void before(const ProgramRun &run, int64_t step) override;
  std::span<const int64_t> stops() const override { return steps; }
  void end(void *gradients) override;
  void finish(void *gradients) override;
  void gather(void *block) override;
  void gatherParts(void *block, int64_t count) override;
  // A share for the sum, and one for each rank's gradients.
  int64_t bytes() const override { return sharding.largestShare() * (ranks.size() + 1) * element; }

private:
  // The program that adds the terms of `count` ranks to the sum, or, in the first round, makes the sum of them.
  const ProgramRun &additionOf(int count, bool first);
  void send(size_t bucket, char *gradients);
  void gather(const BlockOfElements &block);
  char *termOf(int rank) const { return static_cast<char *>(memory->data()) + (1 + rank) * share * element; }

  Ranks &ranks;
  Engine &engine;
  const Sharding &sharding;
  const int64_t element;                // the size of one, in bytes
  int64_t share = 0;                    // elements that this rank owns
  std::vector<int64_t> places;          // of each bucket in the sum and in a term, in elements
  std::vector<int64_t> steps;           // those before which buckets are complete
  std::unique_ptr<DeviceMemory> memory; // this rank's share of the sum, then of each rank's gradients
  std::unique_ptr<Peers> peers;         // ends exchanges, for which freeing memory would wait
  struct Addition {
    Program program;
    ProgramRun run;
  };
  std::vector<std::unique_ptr<Addition>> additions; // by count, for the first round and for others
  xfc_shape shape{};                                // of no batch
  int count = 0;
  bool isFirst = false;
  size_t sent = 0; // buckets of the present round, in order
  std::vector<Peers::Part> sends, receives;
};

} // namespace xfc
