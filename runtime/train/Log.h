// The log of a training run, train.jsonl, for other tools to read.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace xfc {

// One JSON object per line. Training records hold step, epoch, loss, nll, ppl, wps, ups, gnorm, lr, wall, and, if links
// guide the attention, alignment; validation records hold valid_loss, valid_nll, valid_ppl, bleu, chrf, ter.
class TrainingLog {
public:
  // For a new run: throws Error if the file is not empty.
  explicit TrainingLog(const std::string &file);
  // For a resumed run: keeps the first `records` existing records (-1: those up to `step`). Later ones, and a torn last
  // line, belong to steps that were lost when the run was interrupted. Throws Error for a file that is not a log.
  TrainingLog(const std::string &file, int64_t step, int64_t records);
  ~TrainingLog();
  TrainingLog(const TrainingLog &) = delete;
  void write(const nlohmann::ordered_json &record);
  // Syncs the log to disk, because a state that counts records must not outlive them.
  void sync() const;
  int64_t records() const { return count; }

private:
  void open(const std::string &kept);
  [[noreturn]] void fail() const;
  std::string name;
  int descriptor = -1;
  int64_t count = 0;
};
// Skips lines that are not JSON objects.
std::vector<nlohmann::json> readLog(const std::string &file);

} // namespace xfc
