// The flags of a training run as JSON: what --config reads, and what train writes to its folder.
#pragma once

#include "support/Options.h"
#include <set>
#include <string>

namespace xfc {

// Sets the flags that were not given on the command line to the values in a JSON object; `file` is named in messages.
// The limits on the length of training are alternatives: one on the command line replaces those of the object. Throws
// Error if the text is not an object, a flag is unknown, or a flag does not accept its value.
void applyConfiguration(Command command, const std::string &text, const std::string &file);

// Tells flags that somebody gave from those that merely have a value: config.json holds every flag of its run.
class GivenFlags {
public:
  // To be made before applyConfiguration(): notes what the command line has. The command must outlive this.
  explicit GivenFlags(Command command);
  bool onCommandLine(const std::string &flag) const { return own.contains(flag); } // "--momentum"
  // Whether the command line has the flag, or a file gives it another value than its default.
  bool operator()(const std::string &flag) const;

private:
  Command command;
  std::set<std::string> own;
};

// The flags of the run with their values in effect, as a JSON object. Throws Error if a value is not valid UTF-8.
std::string usedConfiguration(Command command);

} // namespace xfc
