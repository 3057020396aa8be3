// The files and folders that a process has not finished yet: a signal that ends the process removes them.
#pragma once

#include <string>

namespace xfc {

// During its lifetime, a signal that ends the process removes this file, or this folder with all that is in it. It
// begins before the file is created, and ends after it was renamed or removed.
class Unfinished {
public:
  explicit Unfinished(const std::string &path);
  Unfinished(const Unfinished &) = delete;
  ~Unfinished();
  // From now on removeAll() removes what this process leaves unfinished. For programs of our own (Signals.h): a library
  // leaves signals to the program that loads it.
  static void removeFromHere();
  // Removes what is unfinished, if removeFromHere() was called in this process, for whoever ends the process next.
  // From here on this thread takes no signals, and of several threads only the first returns. Async-signal-safe.
  static void removeAll();

private:
  struct Entry;
  Entry *entry; // null: the path is longer than any that can be opened
};

} // namespace xfc
