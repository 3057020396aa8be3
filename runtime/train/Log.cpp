// What tools see of a training run: train.jsonl.
#include "train/Log.h"
#include "support/Files.h"
#include <cerrno>
#include <cstring>
#include <sstream>

namespace xfc {

TrainingLog::TrainingLog(const std::string &name, int64_t step) : name(name) {
  std::string kept;
  if (step > 0 && exists(name)) {
    std::istringstream lines(readFile(name));
    for (std::string line; std::getline(lines, line);)
      if (auto record = nlohmann::json::parse(line, nullptr, false);
          record.is_object() && record.value("step", int64_t(0)) <= step)
        kept += line + "\n";
  }
  writeFile(name, kept);
  file = std::fopen(name.c_str(), "a");
  if (!file)
    throw Error(name + ": cannot be written: " + std::strerror(errno));
}

TrainingLog::~TrainingLog() { std::fclose(file); }

void TrainingLog::write(const nlohmann::ordered_json &record) {
  std::string line = record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file) != line.size() || std::fflush(file) != 0)
    throw Error(name + ": cannot be written: " + std::strerror(errno));
}

std::vector<nlohmann::json> readLog(const std::string &file) {
  std::vector<nlohmann::json> records;
  std::istringstream lines(readFile(file));
  for (std::string line; std::getline(lines, line);)
    if (auto record = nlohmann::json::parse(line, nullptr, false); record.is_object())
      records.push_back(std::move(record));
  return records;
}

} // namespace xfc
