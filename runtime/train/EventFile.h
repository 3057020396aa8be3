// Writes a training run's records as an event file, which TensorBoard reads.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace xfc {

// The file is a sequence of frames (TFRecord): u64 size, the masked CRC-32C of those 8 bytes, the bytes, and their
// masked CRC-32C. Each frame holds an Event in the wire format of protocol buffers: the first holds the version of the
// format, each of the others the numbers of a log record (TrainingLog), by name.
class EventFile {
public:
  // Keeps the events of at most the first `records` records (0 for a new run), up to step `step`; later ones, and a
  // torn one at the end, belong to steps that were lost when the run was interrupted. Throws Error if the file is not
  // an event file, or cannot be written.
  EventFile(const std::string &file, int64_t step, int64_t records);
  ~EventFile();
  EventFile(const EventFile &) = delete;
  // `wall`: seconds since 1970.
  void write(const nlohmann::ordered_json &record, double wall);
  void sync() const;

private:
  void append(const std::string &bytes);
  std::string name;
  int descriptor = -1;
};

// The event of a record: its numeric and boolean members, except for `step`, which becomes the event's step.
std::string eventOf(const nlohmann::ordered_json &record, double wall);
std::string framed(const std::string &event);

} // namespace xfc
