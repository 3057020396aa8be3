// Parallel text into the id sequences a model trains on.
#pragma once

#include "plan/Plan.h"
#include "text/Vocabulary.h"
#include <span>

namespace xfc {

class Corpus {
public:
  struct Vocabularies {
    const Vocabulary &source, &target;
  };

  // Line i of the source files together belongs to line i of the target files together. Pairs longer than the model's
  // max_length, and pairs with an empty side, are skipped and counted. Throws Error: unequal line counts, invalid
  // UTF-8 or ids (file:line), nothing to train on.
  Corpus(const std::vector<std::string> &sourceFiles, const std::vector<std::string> &targetFiles,
         const Vocabularies &vocabularies, const Module &module, Format format);
  // Takes sources as the encoder reads them, and targets without start and eos.
  Corpus(const std::vector<std::vector<int32_t>> &sources, const std::vector<std::vector<int32_t>> &targets,
         const Module &module);

  size_t size() const { return sequences.size() / 2; }
  // As the encoder reads it: eos included if the model wants one (ids are taken verbatim).
  std::span<const int32_t> source(size_t pair) const { return tokens(2 * pair); }
  // What the decoder reads: start and the tokens.
  std::span<const int32_t> target(size_t pair) const { return tokens(2 * pair + 1).first(targetLength(pair)); }
  // What it should say: the tokens and eos.
  std::span<const int32_t> labels(size_t pair) const { return tokens(2 * pair + 1).last(targetLength(pair)); }
  int64_t sourceLength(size_t pair) const { return sequences[2 * pair].length; }
  int64_t targetLength(size_t pair) const { return sequences[2 * pair + 1].length - 1; }

  int64_t skippedLong = 0, skippedEmpty = 0;
  int64_t sourceTokens = 0, targetTokens = 0; // eos counted
  // A hash of all ids, which tells whether the data of a resumed run is still the same.
  uint64_t hash = 0xcbf29ce484222325;

private:
  struct Stored {
    int64_t begin;
    int32_t length;
  };
  std::span<const int32_t> tokens(size_t i) const {
    return {ids.data() + sequences[i].begin, static_cast<size_t>(sequences[i].length)};
  }
  void store(const std::vector<int32_t> &sequence);
  void add(const std::vector<int32_t> &source, std::vector<int32_t> target, const Module &module);

  std::vector<int32_t> ids;
  std::vector<Stored> sequences; // source, then start + target + eos, of each pair
};

} // namespace xfc
