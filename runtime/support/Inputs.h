// Keeps what a command reads from being replaced by what it writes.
#pragma once

#include <string>

namespace xfc {

// While a command line is run, every file that is opened for reading is an input, as the program itself is, and every
// file that is announced or opened for writing is an output until it is complete. No output may be an input, and no two
// outputs may have one name: whichever comes second is refused. Files.h does the asking, so that a verb need not know
// of this; one that works long before it writes announces its output first. Outside of commands, as in a library, whose
// host knows what it does, nothing is refused.
class InputsAreKept {
public:
  InputsAreKept();
  InputsAreKept(const InputsAreKept &) = delete;
  ~InputsAreKept();
};

// The absolute path, without links, of a file that need not exist.
std::string canonicalPath(const std::string &file);

// Files are the same if device and inode are, whatever their names; devices and pipes do not count. "-" is standard
// input or output. Both throw Error if the file is on the other side too.
void announceInput(const std::string &file);
void announceOutput(const std::string &file);
// The output is complete, and may be read.
void outputIsComplete(const std::string &file);
// A file, or all in a folder, that the command reads in order to write it anew, such as the state of a run.
void isUpdated(const std::string &path);

// An output that is written during the lifetime of this object. Throws Error as announceOutput() does, and if the
// command writes another output of this name, or has written one, unless the file is one that it updates.
class OpenedOutput {
public:
  explicit OpenedOutput(const std::string &file);
  OpenedOutput(const OpenedOutput &) = delete;
  ~OpenedOutput();

private:
  std::string path; // canonical; empty for a device, a pipe, and outside of commands
};

} // namespace xfc
