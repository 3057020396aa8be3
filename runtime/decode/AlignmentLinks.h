// The links of a batch as a training program reads them that was compiled with --guided-alignment.
#pragma once

#include "corpora/PairBlock.h"
#include "engine/Engine.h"
#include "plan/Programs.h"
#include <vector>

namespace xfc {

// Fills the inputs alignment_links and alignment_shares (xfc.alignment_loss). If the executable has no such inputs,
// everything here does nothing.
class AlignmentLinks {
public:
  void clear(const Module &module);
  // Adds the rows of the next pair's `labels` labels, whose links are in ascending order of labels. The cross-entropy
  // of each label with links is multiplied by `weight`, of which its links have equal shares.
  void add(size_t labels, double weight, Links links = {});
  Binding links() { return {names::alignmentLinks, keys.data()}; }
  Binding shares() {
    return {names::alignmentShares, isDouble ? static_cast<void *>(doubleShares.data()) : floatShares.data()};
  }

private:
  size_t width = 0;          // linksPerLabel()
  bool isDouble = false;     // of the two below, the executable's type
  std::vector<int32_t> keys; // for each label: the positions of its links in the source, then -1
  std::vector<float> floatShares;
  std::vector<double> doubleShares;
};

} // namespace xfc
