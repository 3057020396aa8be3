// What a person and their tools see of a training run: train.jsonl, and a bar or lines on standard error.
#pragma once

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace xfc {

// One JSON object a line. Records of training hold step, epoch, loss, nll, ppl, wps, ups, gnorm, lr, wall; those of
// validations valid_loss, valid_nll, valid_ppl, bleu, chrf.
class TrainingLog {
public:
  // Goes on behind the records up to `step`; later ones, and a torn last line, are of a run that was cut off.
  TrainingLog(const std::string &file, int64_t step);
  ~TrainingLog();
  TrainingLog(const TrainingLog &) = delete;
  void write(const nlohmann::ordered_json &record);

private:
  std::string name;
  std::FILE *file;
};
// Lines that are not JSON objects are left out.
std::vector<nlohmann::json> readLog(const std::string &file);

// A bar with the remaining time on a terminal; a line every few seconds elsewhere.
class ProgressBar {
public:
  explicit ProgressBar(bool quiet);
  ~ProgressBar();
  // `fraction` of the work is done; `status` says how it stands.
  void update(double fraction, const std::string &status);
  // Something to keep on the screen.
  void say(const std::string &line);

private:
  using Clock = std::chrono::steady_clock;
  bool quiet, terminal;
  double from = -1; // the fraction at the first update: a resumed run does not begin at 0
  Clock::time_point start = Clock::now(), last{};
};

std::string duration(double seconds); // 1:02:03, 2:03

} // namespace xfc
