// What tools see of a training run: train.jsonl.
#include "train/Log.h"
#include "support/Files.h"
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

namespace xfc {

TrainingLog::TrainingLog(const std::string &name) : name(name) {
  std::error_code none;
  if (std::filesystem::is_regular_file(name, none) && std::filesystem::file_size(name, none) > 0)
    throw Error(name + ": is not empty; give a new file to --log, or move this one away");
  open("");
}

TrainingLog::TrainingLog(const std::string &name, int64_t step, int64_t records) : name(name) {
  std::string kept;
  std::error_code none;
  if (std::filesystem::is_regular_file(name, none)) {
    LineReader lines(name);
    for (std::string line; lines.next(line);) {
      const auto record = nlohmann::json::parse(line, nullptr, false);
      const auto at = record.is_object() ? record.find("step") : record.end();
      if (!record.is_object() || at == record.end() || !at->is_number_integer()) {
        const std::string where = lines.where();
        if (std::string more; record.is_discarded() && line.starts_with("{") && !lines.next(more))
          break; // torn
        throw Error(where + ": not a record that train writes; remove the line, or give another file to --log");
      }
      if (records >= 0 ? count == records : at->get<int64_t>() > step)
        break;
      kept += line + "\n";
      ++count;
    }
  }
  open(kept);
}

void TrainingLog::open(const std::string &kept) {
  writeFile(name, kept);
  file = std::fopen(name.c_str(), "ae"); // closed where another program is started
  if (!file)
    throw Error(name + ": cannot be written: " + std::strerror(errno));
}

TrainingLog::~TrainingLog() { std::fclose(file); }

void TrainingLog::write(const nlohmann::ordered_json &record) {
  std::string line = record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file) != line.size() || std::fflush(file) != 0)
    throw Error(name + ": cannot be written: " + std::strerror(errno));
  ++count;
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
