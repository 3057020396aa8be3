// Reads text line by line.
#pragma once

#include "support/Error.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// The index of the first byte of `line` that is not valid UTF-8 (RFC 3629), or npos.
size_t invalidUtf8(std::string_view line);

class Decompressor;

// Reads a file line by line, without line ends (LF or CRLF), holding one line in memory. A compressed file (gzip or
// zstd, recognized by its first bytes) is decompressed.
class LineReader {
public:
  // "-" is standard input. Lines are truncated after `longest` bytes, with a warning. Throws Error.
  explicit LineReader(const std::string &file, size_t longest = static_cast<size_t>(-1));
  LineReader(const LineReader &) = delete;
  ~LineReader();
  // Reads the next line; false after the last. Throws Error if the file is unreadable, its compressed data is damaged
  // or truncated, or the line is invalid UTF-8 (file:line).
  bool next(std::string &line);
  // Whether the next line, or the end, becomes available within this many milliseconds.
  bool ready(int milliseconds) const;
  int64_t number() const { return lines; }         // of the last line, from 1
  std::string where() const;                       // file:line of the last line
  const std::string &name() const { return file; } // for messages
  bool atLast() const { return atEnd; }            // whether the last line is known to have been read
  bool isFile() const { return size > 0; }         // whether its size is known, unlike that of a stream
  // How much of the file has been read, from 0 to 1; 0 if the size is unknown.
  double fraction() const;

private:
  bool fill();
  void recognize();
  size_t readInto(char *to, size_t room);
  size_t decompressInto(char *to, size_t room);
  std::string file, buffer;
  std::unique_ptr<Decompressor> decompressor; // null: the file is not compressed
  std::string packed;                         // compressed bytes read; some may still have to be decompressed
  size_t packedBegin = 0, packedEnd = 0;
  bool begun = false, inputEnded = false;
  size_t longest, begin = 0, end = 0; // [begin, end) of the buffer is unread
  int descriptor;
  bool atEnd = false;
  int64_t lines = 0, bytes = 0, size = 0;
};

// Whether a LineReader would decompress this file. Throws Error if it cannot be read.
bool isCompressed(const std::string &file);
// Reads all lines at once.
std::vector<std::string> readLines(const std::string &file);

} // namespace xfc
