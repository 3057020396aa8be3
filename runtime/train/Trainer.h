// The training loop: batches into steps, steps into a folder of weights, state and a log.
#pragma once

#include "decode/ModelOptions.h"
#include "plan/Optimizers.h"
#include "text/PairReader.h"
#include "train/Groups.h"
#include "train/Schedule.h"

namespace xfc {

struct TrainOptions {
  PairFiles text;                // or
  std::vector<std::string> data; // files of prepared pairs
  PairFilter filter;             // of the text
  // Of several files, each a corpus: a weight for each, or the temperature that makes them (0: none). Without either
  // all of them are one.
  std::vector<double> corpusWeights;
  double corpusTemperature = 0;
  PairFiles validation;
  std::string vocabulary, targetVocabulary, out, log;
  std::string init; // weights that the run begins with: a file, or a folder that --model takes; empty: random ones
  GroupRules groups;
  Format format = Format::Text;
  int64_t steps = -1, epochs = -1; // -1: not limited by it
  double minutes = -1;
  int64_t batchTokens = 4096, accumulate = 1;
  int64_t memory = 0; // bytes in which the largest batches are looked for, in place of batchTokens; 0: those are given
  Schedule::Kind schedule = Schedule::Kind::Noam;
  double rate = -1; // -1: the schedule's own default
  int64_t warmup = 4000, restarts = 0;
  const Optimizer *optimizer = &optimizers().front();
  OptimizerSettings settings; // but for the rate, which the schedule gives
  double clipNorm = 1, smoothing = 0.1;
  int64_t validEvery = 500, saveEvery = 500, keep = 0, keepBest = 0, average = 0, earlyStop = 0;
  uint64_t seed = 1;
  std::string best = "loss"; // what validations are compared by: loss, bleu, chrf or ter
  bool halveRate = false; // where the loss is no number: go on from the last save at half the rate, in place of ending
  bool resume = false, quiet = false;
  bool tensorBoard = false; // a file of events beside the log
  // The file for a timeline of these steps and of what follows each; none where it is empty.
  std::string trace;
  int64_t traceFirst = 1, traceLast = 1;
  int threads = 0;
  DeviceChoice device;
  std::string mpi; // which of MPI's libraries; empty: the launcher's
};

// Trains as the options say. `configuration` is what is left as config.json.
void train(const TrainOptions &options, const std::string &configuration);

} // namespace xfc
