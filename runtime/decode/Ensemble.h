// Several models that decode together: an ensemble. A token has the mean of the probabilities that its members give it,
//
//   p(y | x, y<) = sum_m w_m p_m(y | x, y<) / sum_m w_m
//
// as in fairseq, OpenNMT-py and Sockeye, so that the probabilities of all tokens add up to 1. (Marian adds up weighted
// log-probabilities instead, and CTranslate2 has no ensembles.) Means are computed in double, in the order of the
// members. The mean of equal numbers is that number, to the bit, whatever the weights are.
#pragma once

#include "engine/Engine.h"
#include <span>
#include <string>
#include <vector>

namespace xfc {

// A smaller model that drafts what these may write, so many tokens at a time (decode/Drafter.h). Null: there is none.
struct DraftingModel {
  Engine *engine = nullptr;
  int64_t tokens = 0;
};

class Shortlist;

// The models that a search, a score or an attention asks. They have the same vocabularies and tokens, and none takes
// shorter sentences than the first, but each may be of another architecture, and of the code of another library. A
// single engine is the ensemble whose means are what it says itself. The engines must outlive it.
class Ensemble {
public:
  Ensemble(Engine &engine) : engines{&engine}, shares{1} {} // NOLINT(google-explicit-constructor)
  // `weights`: positive, one for each.
  Ensemble(std::vector<Engine *> engines, std::vector<double> weights, DraftingModel draft = {},
           const Shortlist *shortlist = nullptr)
      : engines(std::move(engines)), shares(std::move(weights)), drafting(draft), list(shortlist) {}
  // From now on, engines of their own search beside these (decode/Workers.h), for the same models.
  void add(Ensemble worker) { others.push_back(std::move(worker)); }

  Engine &first() const { return *engines.front(); }
  const Module &module() const { return first().module(); } // of the first
  std::span<Engine *const> members() const { return engines; }
  const std::vector<double> &weights() const { return shares; }
  // Whether a step of any of them reads the cache rows of all tokens before it (Module::readsHistory).
  bool readsHistory() const;
  const DraftingModel &draft() const { return drafting; }
  // What a search with them may write for a source (decode/Shortlist.h); null: all tokens.
  const Shortlist *shortlist() const { return list; }
  std::span<const Ensemble> workers() const { return others; }         // those that were added
  Ensemble alone() const { return {engines, shares, drafting, list}; } // without those

private:
  std::vector<Engine *> engines;
  std::vector<double> shares;
  DraftingModel drafting;
  const Shortlist *list = nullptr;
  std::vector<Ensemble> others;
};

// Throws Error, which begins with the model's `name`, unless `other` can decode beside `first`: it maps tokens to
// tokens, has the same vocabularies and special tokens, and takes sentences that are no shorter.
void requireFits(const Module &first, const Module &other, const std::string &name);

// log(sum w exp(x) / sum w), from x, a log-probability of each member, and w, their weights. It is never above the
// largest x, and -inf if all are -inf. NaN if one is NaN.
double logMean(std::span<const double> logProbabilities, std::span<const double> weights);
// sum w x / sum w
double mean(std::span<const double> numbers, std::span<const double> weights);

} // namespace xfc
