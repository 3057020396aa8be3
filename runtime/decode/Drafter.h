// Speculative decoding (Leviathan et al. 2023): a smaller model drafts the next few tokens of a hypothesis, each the
// one that it finds the most probable, and the model that translates reads them all in one step. A row of that step is
// what a step that reads this token alone would give, to the bit, so the search chooses from it as it always does; it
// goes on with the next row as long as it has chosen what was drafted. So a draft changes how many tokens a step
// decides, and nothing else.
#pragma once

#include "decode/Decoder.h"
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace xfc {

// What is to be drafted for a running sentence: the tokens that follow those of its only hypothesis.
struct DraftRequest {
  size_t place;
  const SentenceSearch *search;
  std::span<const int32_t> ids;     // of the hypothesis
  size_t most;                      // how many tokens, of which none is eos
  std::vector<int32_t> tokens = {}; // the answer
};

class Drafter {
public:
  // `computeTypes`: those in which the model multiplies. Each request is drafted in its own type, or in the model's
  // usual one if this is not among them. Running sentences stay within `capacity`, whose cache has a row for each token
  // of a hypothesis.
  Drafter(std::unique_ptr<SearchedModel> model, std::vector<std::string> computeTypes, const Counts &capacity);

  // The group to which requests with these options belong, from 0.
  size_t groupOf(const SearchOptions &options);
  void join(size_t group, std::span<const JoiningSentence> sentences);
  // Fills the answers. The requests are of one group.
  void draft(size_t group, std::span<DraftRequest> requests);
  void leave(size_t place);

private:
  // The tokens of a sentence's hypothesis that the model has read, start included, and the cache row of each.
  struct Reader {
    std::vector<int32_t> read, history;
  };

  void step(size_t group, std::span<DraftRequest> requests, std::span<const size_t> active);
  // The most probable token that may follow, by this row of the step's result; eos if it is that.
  int32_t bestOf(const StepResult &result, int64_t row) const;

  std::unique_ptr<SearchedModel> model;
  const SearchVocabulary vocabulary;
  const std::vector<std::string> computeTypes;
  CacheRows slots;
  std::vector<Reader> readers; // by place
  // The request of a step, kept so that steps do not allocate.
  std::vector<int32_t> ids, wanted, placeOf, positions, taken;
  std::vector<std::span<const int32_t>> history;
};

} // namespace xfc
