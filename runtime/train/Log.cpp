// The log of a training run, train.jsonl, for other tools to read.
#include "train/Log.h"
#include "support/FileWriter.h"
#include "support/Json.h"
#include "support/LineReader.h"
#include "support/MappedFile.h"
#include "support/Retried.h"
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <string_view>
#include <unistd.h>

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
    // After the records to keep, a power loss may have left arbitrary data.
    for (std::string line; (count == 0 || count != records) && lines.next(line);) {
      const std::optional<nlohmann::json> record = jsonIn(line);
      const bool isStep = record && record->is_object() && record->contains("step");
      if (!isStep || !record->at("step").is_number_integer()) {
        const std::string where = lines.where();
        const bool torn = !record && (line.starts_with("{") || line.starts_with('\0'));
        if (std::string more; torn && !lines.next(more))
          break; // a power loss, or a full disk
        throw Error(where + ": not a record that train writes; remove the line, or give another file to --log");
      }
      if (records >= 0 ? count == records : record->at("step").get<int64_t>() > step)
        break;
      kept += line + "\n";
      ++count;
    }
  }
  open(kept);
}

void TrainingLog::open(const std::string &kept) {
  writeFile(name, kept);
  descriptor = retried([&] { return ::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666); });
  if (descriptor < 0)
    fail();
}

TrainingLog::~TrainingLog() { ::close(descriptor); }

void TrainingLog::fail() const { throw Error(name + ": cannot write: " + std::strerror(errno)); }

void TrainingLog::write(const nlohmann::ordered_json &record) {
  const std::string line = record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  for (std::string_view left = line; !left.empty();) {
    const ssize_t wrote = retried([&] { return ::write(descriptor, left.data(), left.size()); });
    if (wrote < 0)
      fail();
    left.remove_prefix(static_cast<size_t>(wrote));
  }
  ++count;
}

void TrainingLog::sync() const {
  if (retried([&] { return ::fsync(descriptor); }) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
    fail(); // pipes and some file systems cannot sync
}

std::vector<nlohmann::json> readLog(const std::string &file) {
  std::vector<nlohmann::json> records;
  const MappedFile log = MappedFile::readOnly(file); // of any size
  for (std::string_view rest = log.contents(); !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (std::optional<nlohmann::json> record = jsonIn(rest.substr(0, end)); record && record->is_object())
      records.push_back(*std::move(record));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return records;
}

} // namespace xfc
