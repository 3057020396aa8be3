// What a training run is told: one struct for each of its parts.
#pragma once

#include "corpora/PairReader.h"
#include "corpora/TextSampler.h"
#include "engine/Engine.h"
#include "train/Distill.h"
#include "train/Groups.h"
#include "train/Schedule.h"
#include "train/Update.h"
#include "vocabularies/Vocabulary.h"
#include <cstdint>
#include <string>
#include <vector>

namespace xfc {

// What is trained on.
struct DataOptions {
  PairFiles text;                 // either text,
  std::vector<std::string> pairs; // or files of prepared pairs
  PairFilter filter;              // for text
  TeacherOptions teacher;         // makes the data from the text, if there is one
  // Text of more bytes than this is prepared in the run's folder, and read from there.
  int64_t textMemory = int64_t(256) << 20;
  // Mixes several files, each a corpus, by a weight for each or by the temperature that determines the weights (0:
  // none). Without either, all files form one corpus.
  std::vector<double> corpusWeights;
  double corpusTemperature = 0;
  std::vector<double> segmentationAlphas; // for both sides, or for each (see SegmentationSampling); empty or 0: none
  bool guided = false;                    // end with an error if there are no word alignments
  std::string vocabulary, targetVocabulary;
  Format format = Format::Text;

  // Whether each file is a corpus with its own share of an epoch.
  bool mixes() const { return !corpusWeights.empty() || corpusTemperature > 0; }
  EpochSampling sampling(uint64_t seed) const;
};

// Held-out text, and what its validations decide.
struct ValidationOptions {
  PairFiles text;
  int64_t every = 500;       // steps
  std::string best = "loss"; // the metric by which validations are compared: loss, bleu, chrf or ter
  int64_t earlyStop = 0;     // the run ends after so many validations without a better one; 0: never
};

// The length of a run; -1: no limit.
struct LengthOptions {
  int64_t steps = -1, epochs = -1;
  double minutes = -1;
};

struct BatchOptions {
  int64_t tokens = 4096, accumulate = 1;
  int64_t memory = 0; // byte limit from which the largest possible `tokens` is chosen; 0: `tokens` is given
};

struct RateOptions {
  Schedule::Kind schedule = Schedule::Kind::Noam;
  double rate = -1; // -1: the schedule's own default
  int64_t warmup = 4000, restarts = 0;
};

// When a run saves, and how many weights it keeps besides the last ones.
struct SaveOptions {
  int64_t every = 500;            // steps
  int64_t keep = 0, keepBest = 0; // of the last saves, of the best validations
  int64_t average = 0;            // the mean of the weights of so many saves is written at the end
  bool tensorBoard = false;       // also write an event file next to the log
  int64_t keptWeights() const { return keep > average ? keep : average; }
};

// The file for a timeline of these steps and of the work after each; none if empty.
struct TraceOptions {
  std::string file;
  int64_t first = 1, last = 1;
};

struct TrainOptions {
  DataOptions data;
  ValidationOptions validation;
  LengthOptions length;
  BatchOptions batches;
  RateOptions rate;
  UpdateOptions update; // but for the rate, which the schedule provides, and the seed
  SaveOptions saves;
  TraceOptions trace;
  std::string out, log; // the run's folder; its log, if that is not in it
  std::string init;     // initial weights: a file, or a folder that --model accepts; empty: random weights
  GroupRules groups;
  uint64_t seed = 1;
  bool halveRate = false; // if the loss is not finite: continue from the last save at half the rate instead of ending
  bool resume = false, quiet = false;
  int threads = 0;
  DeviceChoice device;
  std::string mpi; // MPI's library file; empty: the launcher's

  TrainOptions() { update.alignment = 0.1; }
  std::string logFile() const { return log.empty() ? out + "/train.jsonl" : log; }
};

} // namespace xfc
