// Converts text to a file of pairs of ids, which training maps into memory.
#pragma once

#include "corpora/PairReader.h"
#include "decode/ModelOptions.h"
#include "engine/Engine.h"
#include "support/Progress.h"
#include "train/Teacher.h"
#include <string>
#include <vector>

namespace xfc {

struct PrepareOptions {
  PairFiles text;
  PairFilter filter;
  ModelOptions model; // without distributions, only its vocabularies, its format, and on how many threads
  std::string out;
  int64_t distribution = 0; // how many tokens of the model's distribution to store for each label; 0: none
  int64_t batchTokens = teacherBatchTokens;
  bool keepText = false; // not with distributions
};

// Writes the file atomically. Throws Error.
void prepare(const PrepareOptions &options);
// Writes the file of one text; with a teacher, with its distributions of so many tokens, or else with the lines of the
// text, if they are to be kept.
void preparePairs(const std::string &out, const PairFiles &text, const PairFilter &filter,
                  const VocabularyPair &vocabularies, Engine &engine, Format format, ProgressBar &bar,
                  bool keepText = false, Teacher *teacher = nullptr, int64_t distribution = 0);

// Runs a reader's work on the engine's threads.
Parallel onThreadsOf(Engine &engine);

} // namespace xfc
