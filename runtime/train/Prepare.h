// Converts text to a file of pairs of ids, which training maps into memory.
#pragma once

#include "engine/Engine.h"
#include "text/PairReader.h"
#include <string>
#include <vector>

namespace xfc {

struct PrepareOptions {
  PairFiles text;
  PairFilter filter;
  std::string vocabulary, targetVocabulary, out;
  Format format = Format::Text;
  int threads = 0;
  bool quiet = false;
};

// Writes the file atomically. Throws Error.
void prepare(const PrepareOptions &options);

// Runs a reader's work on the engine's threads.
Parallel onThreadsOf(Engine &engine);

} // namespace xfc
