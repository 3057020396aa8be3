// The labels of a batch as a training program reads them that was compiled with --distillation.
#pragma once

#include "corpora/PairBlock.h"
#include "engine/Engine.h"
#include "plan/Programs.h"
#include <vector>

namespace xfc {

// How the loss of a label is divided. Of the whole, `distillation` follows the teacher's distribution, in proportion to
// its probabilities, if the label has one; of the rest, `smoothing` is spread evenly over the vocabulary, and what
// remains belongs to the label.
struct LossShares {
  double smoothing = 0, distillation = 0;
  double alignment = 0; // by which the cross-entropy of a label's links is multiplied, if it has any
  bool operator==(const LossShares &) const = default;
};

// How many tokens of a teacher the training program takes for each label (`xfc compile --distillation`).
int64_t teacherTokens(const Module &module);

// Fills the inputs label_lists and label_shares, which take the place of labels and smoothing. If the executable has no
// such inputs, everything here does nothing.
class LabelLists {
public:
  void clear(const Module &module);
  // Adds the next label, and its distribution if there is one: of at most teacherTokens() tokens, unless
  // `shares` gives it no part. The label -1 has no loss.
  void add(int32_t label, const LossShares &shares, Distribution teacher = {});
  Binding lists() { return {names::labelLists, tokens.data()}; }
  Binding shares() {
    return {names::labelShares, isDouble ? static_cast<void *>(doubleShares.data()) : floatShares.data()};
  }

private:
  void addShare(double share);
  size_t others = 0;           // labels beside the first: teacherTokens()
  bool isDouble = false;       // of the two below, the executable's type
  std::vector<int32_t> tokens; // for each label: the label, then the teacher's tokens, then -1
  std::vector<float> floatShares;
  std::vector<double> doubleShares; // for each label: what is spread evenly, the label's, the tokens'
};

} // namespace xfc
