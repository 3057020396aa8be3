// A training run's records as TensorBoard reads them: a file of events.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace xfc {

// The file is a sequence of frames (TFRecord): u64 size, the masked CRC-32C of those 8 bytes, the bytes, and their
// masked CRC-32C. Each frame holds an Event in the wire format of protocol buffers: the first one the version of the
// format, each other one the numbers of a record of the log (TrainingLog), by name.
class EventFile {
public:
  // Keeps the events of the first `records` records (0 for a new run), of those that are there and of no later step
  // than `step`; the others, and a torn one at the end, belong to a part that was cut off. Throws Error for a file that
  // is none of events, or cannot be written.
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

// The event of a record: its members that are numbers or booleans, but for `step`, which is the event's.
std::string eventOf(const nlohmann::ordered_json &record, double wall);
std::string framed(const std::string &event);

} // namespace xfc
