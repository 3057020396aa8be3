// The training loop: turns batches into steps, and writes weights, states and a log into the run's folder.
#pragma once

#include "decode/ModelOptions.h"
#include "plan/Optimizers.h"
#include "text/PairReader.h"
#include "train/Distill.h"
#include "train/Groups.h"
#include "train/Schedule.h"

namespace xfc {

struct TrainOptions {
  PairFiles text;                // either text,
  std::vector<std::string> data; // or files of prepared pairs
  PairFilter filter;             // for text
  TeacherOptions teacher;        // makes the data from the text, if there is one
  // Text of more bytes than this is prepared in the run's folder, and read from there.
  int64_t textMemory = int64_t(256) << 20;
  // Mixes several files, each a corpus, by a weight for each or by the temperature that determines the weights (0:
  // none). Without either, all files form one corpus.
  std::vector<double> corpusWeights;
  double corpusTemperature = 0;
  std::vector<double> segmentationAlphas; // for both sides, or for each (see SegmentationSampling); empty or 0: none
  PairFiles validation;
  std::string vocabulary, targetVocabulary, out, log;
  std::string init; // initial weights: a file, or a folder that --model accepts; empty: random weights
  GroupRules groups;
  Format format = Format::Text;
  int64_t steps = -1, epochs = -1; // -1: no limit
  double minutes = -1;
  int64_t batchTokens = 4096, accumulate = 1;
  int64_t memory = 0; // byte limit from which the largest possible batchTokens is chosen; 0: batchTokens is given
  Schedule::Kind schedule = Schedule::Kind::Noam;
  double rate = -1; // -1: the schedule's own default
  int64_t warmup = 4000, restarts = 0;
  const Optimizer *optimizer = &optimizers().front();
  OptimizerSettings settings; // except for the rate, which the schedule provides
  double clipNorm = 1, smoothing = 0.1;
  double distillation = 0;      // the share of the loss that follows the distributions in the files of `data`
  double alignmentWeight = 0.1; // of the cross-entropy of the links in the alignments of `text`, or in `data`
  bool guided = false;          // end with an error if there are no such links
  int64_t validEvery = 500, saveEvery = 500, keep = 0, keepBest = 0, average = 0, earlyStop = 0;
  uint64_t seed = 1;
  std::string best = "loss"; // the metric by which validations are compared: loss, bleu, chrf or ter
  bool halveRate = false; // if the loss is not finite: continue from the last save at half the rate instead of ending
  bool resume = false, quiet = false;
  bool tensorBoard = false; // also write an event file next to the log
  // The file for a timeline of these steps and of the work after each; none if empty.
  std::string trace;
  int64_t traceFirst = 1, traceLast = 1;
  int threads = 0;
  DeviceChoice device;
  std::string mpi; // MPI's library file; empty: the launcher's
};

// Trains according to the options. `configuration` is written to config.json.
void train(const TrainOptions &options, const std::string &configuration);

} // namespace xfc
