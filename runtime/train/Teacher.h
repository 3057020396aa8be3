// The distributions of a teacher, from which a student learns (word-level distillation; Kim and Rush, 2016).
#pragma once

#include "corpora/PairReader.h"
#include "engine/Engine.h"

namespace xfc {

inline constexpr int64_t teacherBatchTokens = 1024; // the default: the logits of a batch are in memory

// Pairs as a PairReader gives them, and where in the text each target is, for messages.
struct TaughtPairs {
  std::vector<std::vector<int32_t>> sources, targets; // targets have their start and eos
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<Link>> links;
  std::vector<std::string> places;
  size_t size() const { return sources.size(); }
  void add(std::span<const int32_t> source, std::span<const int32_t> target, Weights ofPair, Links aligned,
           std::string place);
  void clear();
};

class Teacher {
public:
  // Gives `tokens` tokens for each label. Throws Error if the model has fewer, or no decoder with a head.
  Teacher(Engine &engine, int64_t tokens, int64_t batchTokens);
  // For each pair, the distributions of its labels, one after the other: the tokens to which the model gives the
  // highest probability after the source and the tokens before the label, best first; of equally probable ones, the
  // lower token comes first. The probabilities are those of the softmax over the whole vocabulary, without dropout, so
  // they add up to at most 1. They do not depend on batchTokens, nor on the number of threads. Throws Error where
  // they are not finite.
  std::vector<std::vector<TokenProbability>> distributions(const TaughtPairs &pairs);

private:
  Engine &engine;
  size_t tokens;
  int64_t batchTokens;
};

} // namespace xfc
