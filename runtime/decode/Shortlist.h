// Which tokens a translation may have, by those of its source: a lexical shortlist (Schwenk et al. 2007, L'Hostis et
// al. 2016), as Marian takes it.
#pragma once

#include "corpora/Lexicon.h"
#include "decode/Constraints.h"
#include "vocabularies/Vocabulary.h"
#include <span>
#include <string>
#include <vector>

namespace xfc {

struct ShortlistOptions {
  std::string file; // empty: there is no shortlist
  int64_t first = 100, best = 100;
};

// What `translator shortlist` writes, and Marian reads: a line "TARGET SOURCE PROBABILITY" for each pair of tokens, as
// the vocabularies write them. Of each source token, the `best` most probable targets; of equal ones, the lower token.
std::string textOf(const Lexicon &lexicon, const LoadedVocabularies &vocabularies, int64_t best);

class Shortlist {
public:
  // Throws Error (file:line) if the file holds anything else, or tokens that the vocabularies do not have.
  Shortlist(const ShortlistOptions &options, const LoadedVocabularies &vocabularies);
  // In ascending order: eos, the first tokens of the vocabulary, which are the most frequent ones, the best of each
  // source token, the source's own tokens if both sides have one vocabulary, and those that the settings, the
  // prefix or the constraints force or require.
  std::vector<int32_t> tokensFor(std::span<const int32_t> source, const Generation &generation,
                                 std::span<const int32_t> prefix, std::span<const Constraint> constraints,
                                 int32_t eos) const;

private:
  int32_t first, vocabulary;
  bool shared;                            // whether both sides have one vocabulary
  std::vector<std::vector<int32_t>> best; // by source token
};

} // namespace xfc
