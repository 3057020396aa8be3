// Reads text line by line.
#include "support/LineReader.h"
#include "support/Compressed.h"
#include "support/Descriptor.h"
#include "support/Signals.h"
#include "support/Terminal.h"
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <utility>

namespace xfc {

size_t invalidUtf8(std::string_view line) {
  for (size_t i = 0; i < line.size();) {
    auto byte = [&](size_t at) { return at < line.size() ? static_cast<unsigned char>(line[at]) : 0u; };
    unsigned lead = byte(i);
    int length = lead < 0x80                   ? 1
                 : lead >= 0xC2 && lead < 0xE0 ? 2
                 : lead >= 0xE0 && lead < 0xF0 ? 3
                 : lead >= 0xF0 && lead < 0xF5 ? 4
                                               : 0;
    if (length == 0)
      return i;
    for (int k = 1; k < length; ++k)
      if ((byte(i + k) & 0xC0) != 0x80)
        return i;
    if ((lead == 0xE0 && byte(i + 1) < 0xA0) || (lead == 0xED && byte(i + 1) >= 0xA0) ||
        (lead == 0xF0 && byte(i + 1) < 0x90) || (lead == 0xF4 && byte(i + 1) >= 0x90))
      return i;
    i += length;
  }
  return std::string_view::npos;
}

LineReader::LineReader(const std::string &name, size_t longest)
    : file(name == "-" ? "standard input" : name), buffer(1 << 16, '\0'), longest(longest),
      descriptor((announceInput(name), name == "-") ? STDIN_FILENO : retried([&] {
        return ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
      })) {
  if (descriptor < 0)
    failOn(file, "open");
  struct stat info{};
  if (::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode))
    size = info.st_size;
}

LineReader::~LineReader() {
  if (descriptor > STDIN_FILENO)
    ::close(descriptor);
}

// Reads bytes of the file and returns how many; 0 at its end.
size_t LineReader::readInto(char *to, size_t room) {
  while (!inputEnded) {
    const ssize_t got = ::read(descriptor, to, room);
    if (got < 0 && errno == EINTR) {
      checkInterrupted();
      continue;
    }
    if (got < 0)
      failOn(file, "read");
    inputEnded = got == 0;
    bytes += got;
    return static_cast<size_t>(got);
  }
  return 0;
}

// Reads only as much as is needed to tell whether the file is compressed: of an interactive stream, at most its first
// lines.
bool isCompressed(const std::string &file) {
  const Descriptor in(file);
  char beginning[16];
  const ssize_t got = retried([&] { return ::read(in.fd, beginning, sizeof beginning); });
  if (got < 0)
    failOn(file, "read");
  return Decompressor::of({beginning, static_cast<size_t>(got)}, file) != nullptr;
}

void LineReader::recognize() {
  begun = true;
  while (end < buffer.size() && Decompressor::mayFollow({buffer.data(), end})) {
    const size_t got = readInto(buffer.data() + end, buffer.size() - end);
    if (got == 0)
      break;
    end += got;
  }
  decompressor = Decompressor::of({buffer.data(), end}, file);
  if (decompressor) {
    packed = buffer;
    packedEnd = std::exchange(end, 0);
  }
}

size_t LineReader::decompressInto(char *to, size_t room) {
  for (;;) {
    std::string_view in(packed.data() + packedBegin, packedEnd - packedBegin);
    const size_t before = in.size(), written = decompressor->run(in, to, room);
    packedBegin = packedEnd - in.size();
    if (written > 0)
      return written;
    if (!in.empty() && in.size() < before)
      continue;
    if (in.empty()) {
      packedBegin = 0;
      packedEnd = readInto(packed.data(), packed.size());
      if (packedEnd > 0)
        continue;
    }
    if (!decompressor->atEnd())
      throw Error(file + ": damaged: its compressed data is cut off; copy it again, or compress it again");
    return 0;
  }
}

// Refills the buffer, which has been read to its end; false at the end of the file.
bool LineReader::fill() {
  begin = end = 0;
  if (!begun)
    recognize();
  if (end == 0 && !atEnd)
    end = decompressor ? decompressInto(buffer.data(), buffer.size()) : readInto(buffer.data(), buffer.size());
  atEnd = end == 0;
  return end > 0;
}

bool LineReader::ready(int milliseconds) const {
  if (atEnd || packedBegin < packedEnd || std::memchr(buffer.data() + begin, '\n', end - begin))
    return true;
  pollfd waiting{descriptor, POLLIN, 0};
  return retried([&] { return ::poll(&waiting, 1, milliseconds); }) != 0;
}

std::string LineReader::where() const { return file + ":" + std::to_string(lines); }

double LineReader::fraction() const {
  return size > 0
             ? std::min(1.0, static_cast<double>(
                                 bytes - static_cast<int64_t>(decompressor ? packedEnd - packedBegin : end - begin)) /
                                 static_cast<double>(size))
             : 0;
}

bool LineReader::next(std::string &line) {
  line.clear();
  bool wasCut = false;
  if (begin == end && !fill())
    return false;
  ++lines;
  for (bool whole = false; !whole && (begin < end || fill());) {
    const char *from = buffer.data() + begin;
    const auto *found = static_cast<const char *>(std::memchr(from, '\n', end - begin));
    const size_t length = found ? static_cast<size_t>(found - from) : end - begin;
    const size_t taken = std::min(length, longest - line.size());
    line.append(from, taken);
    wasCut |= taken < length;
    whole = found != nullptr;
    begin += length + whole;
  }
  if (wasCut)
    std::fprintf(stderr, "%s: %s: the line is cut to its first %zu bytes\n", nameOf(MessageKind::Warning),
                 where().c_str(), longest);
  if (wasCut) // a character that was cut in two goes entirely
    while (!line.empty() && (line.back() & 0xC0) == 0x80)
      line.pop_back();
  if (wasCut && !line.empty() && (line.back() & 0x80) != 0)
    line.pop_back();
  if (!wasCut && !line.empty() && line.back() == '\r')
    line.pop_back();
  if (size_t bad = invalidUtf8(line); bad != std::string_view::npos)
    throw Error(where() + ": byte " + std::to_string(bad + 1) +
                " is not valid UTF-8; convert the file, for example with iconv");
  return true;
}

std::vector<std::string> readLines(const std::string &file) {
  LineReader reader(file);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);)
    lines.push_back(line);
  return lines;
}

} // namespace xfc
