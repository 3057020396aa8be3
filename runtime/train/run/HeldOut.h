// Text that a run is not trained on, and what validations measure on it.
#pragma once

#include "corpora/Corpus.h"
#include "decode/Search.h"
#include "ranks/Ranks.h"
#include "train/Checkpoint.h"
#include "train/Validation.h"
#include "train/run/TrainOptions.h"
#include "train/run/TrainedModel.h"
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace xfc {

// What a validation has found.
struct Validated {
  struct Scores {
    double bleu = 0, chrf = 0, ter = 0; // in per cent, as sacreBLEU states them
    std::vector<std::string> translations;
  };
  CorpusLoss loss;
  std::optional<Scores> scores; // if the text was translated
  // By a metric (loss, bleu, chrf or ter), so that smaller is better.
  double valueBy(const std::string &metric) const;
  // For the terminal, after a step.
  std::string lineAt(int64_t step) const;
};

class HeldOut {
public:
  // Reads the text of the options, if there is any. Each rank translates a share of it, greedily, if the model can
  // decode. Throws Error as Corpus does. Concerns one rank alone.
  HeldOut(const TrainOptions &options, const TrainedModel &model, const Ranks &ranks);

  bool any() const { return pairs.has_value(); }
  const Corpus &corpus() const { return *pairs; }
  // This rank's share of the sources, and how they are translated; null if they are not.
  const EncodedLines *sources() const { return dealt ? &*dealt : nullptr; }
  const SearchOptions &search() const { return greedy; }
  // Throws Error if validations are to be compared by a metric of translations and there are none.
  void checkFor(const std::string &metric) const;

  // Identifies the text, ids and lines; 0 if there is none.
  uint64_t hash() const;
  uint32_t sumOfSources() const;
  uint32_t sumOfReferences() const;

  // Measures the model with its present parameters. All ranks call this at the same time, and all get the same. Throws
  // Interrupted on every rank if any of them was signalled.
  Validated measure(const TrainedModel &model, int64_t batchTokens, double smoothing, Ranks &ranks) const;
  // What the log says of it, with a few translations, spread over the text, beside their references. `better`: than all
  // before.
  nlohmann::ordered_json recordOf(const Validated &found, const Progress &progress, bool better) const;

private:
  std::optional<Corpus> pairs;
  Format format = Format::Text;
  std::vector<std::string> lines, references;
  std::optional<EncodedLines> dealt;
  SearchOptions greedy;
};

} // namespace xfc
