// Sums the gradients of all ranks: what is common to ranks on CPUs and on GPUs.
#pragma once

#include "device/Device.h"
#include "plan/Sharding.h"
#include <algorithm>
#include <vector>

namespace xfc {

// What a block holds of the elements of the parameter block: `bytes` bytes for every `unit` elements, and `count` of
// these.
struct BlockOfElements {
  void *data;
  int64_t bytes, unit, count;
};
// The parts that this rank sends to others, and receives, so that each has the whole block, of which each has its
// shares.
template <typename Part>
void exchangeToGather(const Sharding &sharding, int rank, int ranks, const BlockOfElements &block,
                      std::vector<Part> &sends, std::vector<Part> &receives) {
  sends.clear();
  receives.clear();
  for (int owner = 0; owner < ranks; ++owner)
    for (const Range &range : sharding.rangesOf(owner)) {
      const int64_t begin = range.begin / block.unit,
                    end = std::min((range.end + block.unit - 1) / block.unit, block.count);
      if (begin >= end)
        continue;
      const Part part{owner, static_cast<char *>(block.data) + begin * block.bytes, (end - begin) * block.bytes};
      if (owner != rank)
        receives.push_back(part);
      else
        for (int other = 0; other < ranks; ++other)
          if (other != owner)
            sends.push_back({other, part.data, part.bytes});
    }
}

// Each rank sums its share of the elements for all ranks. The batches of a step are dealt to the ranks in rounds, and
// each element is summed over the batches in order: the result is bit-identical to the sum that a single process
// computes over all of them with the program `accumulate`.
//
// Gradients are exchanged while they are computed: this object observes the program loss_and_gradients, and sends each
// bucket once it is complete.
class SumOfRanks : public StepObserver {
public:
  // Begins the next round: a batch on each of the first `count` ranks. `first`: whether this is the first round of the
  // step. Then, a rank with a batch runs loss_and_gradients with this observer.
  virtual void begin(int count, bool first) = 0;
  // Sends the rest of this round's gradients, which the program has left in `gradients`, on the device. What the device
  // is given later may overwrite them.
  virtual void end(void *gradients) = 0;
  // Puts the sum of the step into this rank's share of the gradients; the others' shares are those of a batch.
  virtual void finish(void *gradients) = 0;
  // Gathers a block on the device, laid out like the parameters, of which each rank has its shares, on every rank.
  virtual void gather(void *block) = 0;
  // Gathers a block on the device with an f64 for each of `count` parts of the parameter block.
  virtual void gatherParts(void *block, int64_t count) = 0;
  // The bytes that this takes on one rank, up to rounding.
  virtual int64_t bytes() const = 0;
};

} // namespace xfc
