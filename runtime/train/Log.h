// What tools see of a training run: train.jsonl.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace xfc {

// One JSON object a line. Records of training hold step, epoch, loss, nll, ppl, wps, ups, gnorm, lr, wall; those of
// validations valid_loss, valid_nll, valid_ppl, bleu, chrf, ter.
class TrainingLog {
public:
  // For a new run: throws Error if something is there already.
  explicit TrainingLog(const std::string &file);
  // For a resumed one: keeps the first `records` of what is there (-1: those up to `step`). Later ones, and a torn last
  // line, belong to a part that was cut off. Throws Error for a file that is not a log.
  TrainingLog(const std::string &file, int64_t step, int64_t records);
  ~TrainingLog();
  TrainingLog(const TrainingLog &) = delete;
  void write(const nlohmann::ordered_json &record);
  // Puts what was written on disk: a state that counts records is not to outlive them.
  void sync() const;
  int64_t records() const { return count; }

private:
  void open(const std::string &kept);
  [[noreturn]] void fail() const;
  std::string name;
  int descriptor = -1;
  int64_t count = 0;
};
// Lines that are not JSON objects are left out.
std::vector<nlohmann::json> readLog(const std::string &file);

} // namespace xfc
