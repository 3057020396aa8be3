// Reading and writing files the safe way.
#pragma once

#include "support/Error.h"
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// The whole file. Throws Error with the system's reason.
std::string readFile(const std::string &file);

// A file's bytes as memory: pages come from the system's cache when they are touched, and what is written to them stays
// in this process. 128 bytes past the end can be read. The file may be replaced meanwhile as writeFile does it; one
// that is cut off where it lies raises SIGBUS when it is read.
class MappedFile {
public:
  // Throws Error with the system's reason.
  explicit MappedFile(const std::string &file);
  MappedFile(const std::string &file, uint64_t offset, uint64_t size); // a part of it
  // Of a file that may be larger than memory: nothing is set aside for it, and nothing can be written to its pages.
  static MappedFile readOnly(const std::string &file);
  MappedFile(MappedFile &&other) noexcept;
  ~MappedFile();
  std::string_view contents() const { return {begin, size}; }
  // Gives the pages of a read-only file back to the system, which reads them again when they are touched again.
  void release() const;
  // The same of pages that lie wholly in this part of the contents, none of which was ever written to.
  void releaseUnwritten(std::string_view part) const;

private:
  MappedFile(const std::string &file, bool writable);
  void reserve(uint64_t bytes);
  void map(int descriptor, const std::string &file, uint64_t offset, uint64_t bytes);
  void *pages = nullptr; // `mapped` bytes; the contents begin inside them
  size_t mapped = 0, size = 0;
  char *begin = nullptr;
  bool writable = true, fromFile = false;
};

// From now on a file that is cut off while it is mapped ends the process with a message and status 1.
void endWhereFilesAreCutOff();

// The first byte of `line` that is not valid UTF-8 (RFC 3629), or npos.
size_t invalidUtf8(std::string_view line);

// Writes a file in pieces, under a random name beside it that takes the file's place at commit(). Until then what was
// there stays; its permissions stay, and a link to it. A device or a pipe takes the bytes as they come. All of it
// throws Error with the system's reason.
class FileWriter {
public:
  explicit FileWriter(const std::string &file, bool executable = false);
  FileWriter(const FileWriter &) = delete;
  ~FileWriter(); // what was not committed is removed
  void write(std::string_view bytes);
  // On disk, with its name. What was there before is kept as `previous` if that is not empty, in the same folder.
  void commit(const std::string &previous = "");

private:
  [[noreturn]] void fail() const;
  std::string name, file, partial; // as it was given; what a link leads to; the one beside it
  bool streamed = false;
  int descriptor = -1;
};

void writeFile(const std::string &file, std::string_view contents, bool executable = false);
// Throws what writeFile would throw at once: for a result that takes long to compute.
void checkWritable(const std::string &file);
// Removes from a folder what writers that ended without commit() left of the files for which isOurs(name) holds. What a
// process is still writing stays.
void removeAbandoned(const std::string &folder, const std::function<bool(std::string_view)> &isOurs);

// A lock that one process at a time holds, until it ends or gives it back. The file names the holder, and goes with it.
class FileLock {
public:
  // Throws Error naming the process and the host that hold it; `what` begins the message.
  FileLock(const std::string &file, const std::string &what);
  FileLock(const FileLock &) = delete;
  ~FileLock();

private:
  std::string file;
  int descriptor = -1;
};

class Decompressor;

// The lines of a file one after the other, without their ends (LF or CRLF), in the memory of one line. A file that is
// compressed (gzip, zstd; its first bytes tell) is read as what it was made of.
class LineReader {
public:
  // "-" is standard input. Lines are cut after `longest` bytes, with a warning. Throws Error.
  explicit LineReader(const std::string &file, size_t longest = static_cast<size_t>(-1));
  LineReader(const LineReader &) = delete;
  ~LineReader();
  // The next line; false after the last. Throws Error: unreadable, damaged or cut off where it is compressed, or
  // invalid UTF-8 (file:line).
  bool next(std::string &line);
  // Whether the next line is there, or the end, before so many milliseconds have passed.
  bool ready(int milliseconds) const;
  int64_t number() const { return lines; }         // of the last line, from 1
  std::string where() const;                       // file:line of the last line
  const std::string &name() const { return file; } // for messages
  bool atLast() const { return atEnd; }            // whether the last line is known to have been read
  bool isFile() const { return size > 0; }         // of a known size, in place of a stream
  // How much of the file has been read, from 0 to 1; 0 where nobody knows.
  double fraction() const;

private:
  bool fill();
  void recognize();
  size_t readInto(char *to, size_t room);
  size_t decompressInto(char *to, size_t room);
  std::string file, buffer;
  std::unique_ptr<Decompressor> decompressor; // null: what is read are the lines
  std::string packed;                         // read, and in part still to be decompressed
  size_t packedBegin = 0, packedEnd = 0;
  bool begun = false, inputEnded = false;
  size_t longest, begin = 0, end = 0; // what of the buffer is still to be read
  int descriptor;
  bool atEnd = false;
  int64_t lines = 0, bytes = 0, size = 0;
};

// All lines at once.
std::vector<std::string> readLines(const std::string &file);
void makeFolder(const std::string &folder); // with its parents
bool exists(const std::string &file);

} // namespace xfc
