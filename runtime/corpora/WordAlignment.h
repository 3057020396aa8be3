// Word alignments of parallel text, one line for each pair, as links between tokens of a source and labels of a target.
#pragma once

#include "corpora/PairBlock.h"
#include "vocabularies/Vocabulary.h"
#include <string_view>

namespace xfc {

// How many links of an alignment the training program takes for each label (`xfc compile --guided-alignment`).
int64_t linksPerLabel(const Module &module);

// Of a side of a pair: its ids as a model reads them, how many of them come before the tokens of the line itself, and
// how many these are.
struct AlignedSide {
  std::span<const int32_t> ids;
  size_t first = 0, tokens = 0;
  std::span<const int32_t> line() const { return ids.subspan(first, tokens); }
};

// Reads "0-0 1-2": for each link, the number of a source token and that of a target token, both from 0. Throws Error,
// which begins with `where`, if the line holds anything else.
std::vector<Link> readLinks(std::string_view line, const std::string &where);

// The tokens of each of a line's words, as ranges first .. end - 1: a word begins with a token whose piece begins with
// the word mark (U+2581), and with the first token. Empty if these are not as many words as blanks separate in `text`.
std::vector<std::pair<int32_t, int32_t>> wordsOf(std::string_view text, std::span<const int32_t> tokens,
                                                 const Vocabulary &vocabulary);

// All tokens of the words that are linked, each with each. Throws Error, which begins with `where`, for a word that is
// not there.
std::vector<Link> linksOfWords(const std::vector<Link> &links, const std::vector<std::pair<int32_t, int32_t>> &sources,
                               const std::vector<std::pair<int32_t, int32_t>> &targets, const std::string &where);

// Turns numbers of a line's tokens into positions of the source's ids and of the target's labels (its ids from the
// second on), in ascending order of labels, then of sources, without repetition. Throws Error, which begins with
// `where`, if a token is not there, if a label has more than `most` links, or if there are links although a line has
// pads, which no query sees and which are no labels.
std::vector<Link> placedLinks(std::vector<Link> links, const AlignedSide &source, const AlignedSide &target,
                              int64_t most, int32_t pad, const std::string &where);

} // namespace xfc
