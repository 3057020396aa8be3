// Reads files, and writes them atomically.
#pragma once

#include "support/Error.h"
#include "support/Inputs.h"
#include "support/Unfinished.h"
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

constexpr size_t mostTextBytes = size_t(16) << 20;   // of descriptions, settings and options
constexpr size_t mostLargeBytes = size_t(100) << 20; // of vocabularies, and of the headers of safetensors

// Reads the whole file, which must be a regular one, or a pipe that a shell passes (/dev/fd/63, /dev/stdin): a device
// or another pipe may have no end. Throws Error with the system's reason, or if it has more than `most` bytes.
std::string readFile(const std::string &file, size_t most = mostTextBytes);

// A memory-mapped file: pages come from the page cache when they are first accessed, and writes to them stay private to
// this process. 128 bytes past the end can be read. The file may be replaced meanwhile the way writeFile does it; a
// file that is truncated in place raises SIGBUS when it is read.
class MappedFile {
public:
  // The same kinds of files as for readFile, of any size. Throws Error with the system's reason.
  explicit MappedFile(const std::string &file);
  MappedFile(const std::string &file, uint64_t offset, uint64_t size); // maps a part of it
  // For a file that may be larger than memory: no memory is committed for it, and its pages cannot be written to.
  static MappedFile readOnly(const std::string &file);
  MappedFile(MappedFile &&other) noexcept;
  ~MappedFile();
  std::string_view contents() const { return {begin, size}; }
  // Drops the pages of a read-only file from memory; they are read again at the next access.
  void release() const;
  // Throws Error if the file was written to since it was mapped. One that replaced it under its name does not matter,
  // unless it must also be the file of that name.
  void requireUnchanged(bool byName = false) const;
  // Releases the pages that lie entirely within this part of the contents, none of which was ever written to.
  void releaseUnwritten(std::string_view part) const;
  // For a file that is read part by part, roughly in order: releases the whole megabytes that end in this part. Each
  // release interrupts all threads of the process, so that parts of a few kilobytes are not worth one.
  void releaseBehind(std::string_view part) const;
  // Brings in the pages of a part of a writable file. Where a page is first read, the system maps those around it too,
  // 100 KB or so; here it copies each page alone, as if it were written to. Systems that cannot do so do nothing.
  void bringIn(std::string_view part) const;

private:
  MappedFile(const std::string &file, bool writable);
  void reserve(uint64_t bytes);
  void map(int descriptor, const std::string &file, uint64_t offset, uint64_t bytes);
  void *pages = nullptr; // `mapped` bytes; the contents begin inside them
  size_t mapped = 0, size = 0;
  char *begin = nullptr;
  bool writable = true, fromFile = false;
  struct Origin; // what is known of the file; null if it was not mapped
  std::unique_ptr<Origin> origin;
};

// From now on, reading a mapped file that was truncated ends the process with a message that names it, and status 1.
void endWhereFilesAreCutOff(); // by SIGBUS (Signals.h)

// The index of the first byte of `line` that is not valid UTF-8 (RFC 3629), or npos.
size_t invalidUtf8(std::string_view line);

// Writes a file in pieces, under a temporary name next to it that is atomically renamed at commit(). Until then the old
// file stays; its permissions, and a link to it, are preserved. A device or a pipe receives the bytes directly. All
// members throw Error with the system's reason. A file that the command reads is refused (support/Inputs.h).
class FileWriter {
public:
  explicit FileWriter(const std::string &file, bool executable = false);
  FileWriter(const FileWriter &) = delete;
  ~FileWriter(); // removes what was not committed
  void write(std::string_view bytes);
  // Commits files that belong together. A process that is killed meanwhile leaves the old files, or some or none of the
  // old or of the new ones, but never old and new ones.
  static void commitTogether(std::span<FileWriter *const> writers);
  // Syncs the file to disk and renames it. The old file is kept under the name `previous`, in the same folder, unless
  // that is empty.
  void commit(const std::string &previous = "");

private:
  [[noreturn]] void fail() const;
  void sync() const;
  OpenedOutput opened;
  std::string name, file, partial; // the name as given; the target of a link; the temporary name
  std::optional<Unfinished> unfinished;
  bool streamed = false;
  int descriptor = -1;
};

void writeFile(const std::string &file, std::string_view contents, bool executable = false);
// 16 random hexadecimal digits, for a name that nobody can foresee.
std::string randomDigits();
// Syncs the names in a folder to disk. Returns false if that fails, with errno set.
bool syncFolder(const std::string &folder);
// Throws what writeFile would throw at once, and keeps the command from reading the file from now on: to be called
// before what takes time.
void checkWritable(const std::string &file);
// The names in a folder, sorted; none if it is not there. Throws Error if it cannot be read.
std::vector<std::string> namesIn(const std::string &folder);
// Removes from a folder the temporary files that writers left when they ended without commit(), if isOurs(name) holds
// for the name of the final file. Files that a process is still writing stay.
void removeAbandoned(const std::string &folder, const std::function<bool(std::string_view)> &isOurs);

// A lock that one process at a time holds until it ends or releases it. The lock file names the holder, and is removed
// on release.
class FileLock {
public:
  // Throws Error naming the process and the host that hold it; `what` begins the message.
  FileLock(const std::string &file, const std::string &what);
  FileLock(const FileLock &) = delete;
  ~FileLock();

private:
  std::string file;
  int descriptor = -1;
  std::optional<Unfinished> unfinished;
};

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
void makeFolder(const std::string &folder); // and its parents
bool exists(const std::string &file);
bool isFolder(const std::string &path);

} // namespace xfc
