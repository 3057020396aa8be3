// Text into a file of pairs of ids that training maps into memory.
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

// Throws Error; the file is there whole or as it was before.
void prepare(const PrepareOptions &options);

// The work of a reader, on the engine's threads.
Parallel onThreadsOf(Engine &engine);

} // namespace xfc
