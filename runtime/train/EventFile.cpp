// Writes a training run's records as an event file, which TensorBoard reads.
#include "train/EventFile.h"
#include "support/Checksum.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/MappedFile.h"
#include "support/Retried.h"
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

namespace xfc {
namespace {

static_assert(std::endian::native == std::endian::little); // the format is little-endian

template <typename Number> void put(std::string &bytes, Number number) {
  bytes.append(reinterpret_cast<const char *>(&number), sizeof number);
}

// TFRecord's masking: rotates the checksum and adds a constant, because the bytes may themselves contain checksums.
uint32_t masked(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

// Protocol buffers: a field is a key, its number and kind, and a value.
enum Kind : uint8_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };
void putVarint(std::string &bytes, uint64_t number) {
  for (; number >= 0x80; number >>= 7)
    bytes += static_cast<char>(number | 0x80);
  bytes += static_cast<char>(number);
}
void putKey(std::string &bytes, int field, Kind kind) { putVarint(bytes, static_cast<uint64_t>(field) << 3 | kind); }
void putBytes(std::string &bytes, int field, std::string_view value) {
  putKey(bytes, field, Bytes);
  putVarint(bytes, value.size());
  bytes += value;
}

// tensorflow.Event: wall_time = 1 (double), step = 2 (int64), file_version = 3 (string), summary = 5.
std::string eventAt(double wall) {
  std::string event;
  putKey(event, 1, Fixed64);
  put(event, wall);
  return event;
}

constexpr size_t headBytes = 12, footBytes = 4; // around a frame's event

// The size of the first frame in these bytes, or 0 if it is incomplete or damaged.
size_t frameOf(std::string_view bytes) {
  if (bytes.size() < headBytes + footBytes)
    return 0;
  uint64_t size;
  uint32_t sum;
  std::memcpy(&size, bytes.data(), sizeof size);
  std::memcpy(&sum, bytes.data() + sizeof size, sizeof sum);
  if (sum != masked(bytes.substr(0, sizeof size)) || size > bytes.size() - headBytes - footBytes)
    return 0;
  std::memcpy(&sum, bytes.data() + headBytes + size, sizeof sum);
  return sum == masked(bytes.substr(headBytes, size)) ? headBytes + size + footBytes : 0;
}

// The step of a frame's event; 0 if it has none. The wall time comes first and takes 9 bytes.
uint64_t stepOf(std::string_view frame) {
  const std::string_view event = frame.substr(headBytes);
  constexpr size_t before = 9;
  if (event.size() <= before || event[before] != (2 << 3 | Varint))
    return 0;
  uint64_t step = 0;
  for (size_t i = before + 1, shift = 0; i < event.size() && shift < 64; ++i, shift += 7) {
    step |= static_cast<uint64_t>(event[i] & 0x7F) << shift;
    if (!(event[i] & 0x80))
      break;
  }
  return step;
}

} // namespace

std::string framed(const std::string &event) {
  std::string frame;
  put(frame, static_cast<uint64_t>(event.size()));
  put(frame, masked(frame));
  frame += event;
  put(frame, masked(event));
  return frame;
}

std::string eventOf(const nlohmann::ordered_json &record, double wall) {
  std::string event = eventAt(wall), summary;
  putKey(event, 2, Varint);
  putVarint(event, static_cast<uint64_t>(record.value("step", int64_t(0))));
  for (const auto &[name, value] : record.items()) {
    if (name == "step" || !(value.is_number() || value.is_boolean()))
      continue;
    // tensorflow.Summary: value = 1 (repeated), with tag = 1 (string) and simple_value = 2 (float).
    std::string entry;
    putBytes(entry, 1, name);
    putKey(entry, 2, Fixed32);
    put(entry, value.is_boolean() ? static_cast<float>(value.get<bool>()) : static_cast<float>(value.get<double>()));
    putBytes(summary, 1, entry);
  }
  putBytes(event, 5, summary);
  return event;
}

EventFile::EventFile(const std::string &file, int64_t step, int64_t records) : name(file) {
  std::string kept;
  if (exists(file)) {
    const MappedFile mapped = MappedFile::readOnly(file); // of any size
    const std::string_view all = mapped.contents();
    size_t end = 0;
    for (int64_t frames = 0; frames < records + 1; ++frames) {
      const size_t size = frameOf(all.substr(end));
      if (size == 0 && frames == 0 && !all.empty())
        throw Error(file + ": not an event file written by train; move it away, or train into a new folder");
      if (size == 0 || stepOf(all.substr(end, size)) > static_cast<uint64_t>(step))
        break;
      end += size;
    }
    kept = all.substr(0, end);
  }
  if (kept.empty()) {
    std::string version = eventAt(0);
    putBytes(version, 3, "brain.Event:2");
    kept = framed(version);
  }
  writeFile(file, kept);
  descriptor = retried([&] { return ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666); });
  if (descriptor < 0)
    throw Error(name + ": cannot write: " + std::strerror(errno));
}

EventFile::~EventFile() { ::close(descriptor); }

void EventFile::append(const std::string &bytes) {
  for (std::string_view left = bytes; !left.empty();) {
    const ssize_t wrote = retried([&] { return ::write(descriptor, left.data(), left.size()); });
    if (wrote < 0)
      throw Error(name + ": cannot write: " + std::strerror(errno));
    left.remove_prefix(static_cast<size_t>(wrote));
  }
}

void EventFile::write(const nlohmann::ordered_json &record, double wall) { append(framed(eventOf(record, wall))); }

void EventFile::sync() const {
  if (retried([&] { return ::fsync(descriptor); }) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
    throw Error(name + ": cannot write: " + std::strerror(errno));
}

} // namespace xfc
