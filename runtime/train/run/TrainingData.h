// The corpus of a run, read, checked against what the executable takes, and mixed.
#pragma once

#include "corpora/Corpus.h"
#include "corpora/Mixture.h"
#include "support/Progress.h"
#include "train/run/DataFiles.h"
#include "train/run/TrainOptions.h"
#include "train/run/TrainedModel.h"
#include <optional>
#include <string>

namespace xfc {

class TrainingData {
public:
  // Reads the files on the engine's threads. Options, files, model and bar must outlive this. Throws Error as Corpus
  // does, or if the teacher's distributions or the word alignments that the options ask for are missing, or are more
  // than the executable takes. Concerns one rank alone.
  TrainingData(const TrainOptions &options, const DataFiles &files, const TrainedModel &model, ProgressBar &bar);

  const Corpus &corpus() const { return pairs; }
  // How many pairs of each corpus an epoch takes; empty if the corpora are not mixed.
  const Mixture &mixture() const { return mixed; }
  // Whether links of the corpus guide the attention.
  bool isGuided() const { return guided; }
  // Says how much there is, what was skipped, and how it is mixed.
  void describe() const;

  // What a resumed run must repeat, as the flags that say it: the mixture, "" if the corpora are not mixed, and the
  // random segmentation, "" if the text keeps its best one.
  std::string mixtureText() const;
  std::string samplingText() const;

private:
  void checkDistillation() const;
  void checkLinks();

  const TrainOptions &options;
  const DataFiles &files;
  const TrainedModel &model;
  ProgressBar &bar;
  Corpus pairs;
  Mixture mixed;
  bool guided = false;
};

} // namespace xfc
