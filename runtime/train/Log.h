// What tools see of a training run: train.jsonl.
#pragma once

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

} // namespace xfc
