// Writes the lines that a command produces from its input lines.
#pragma once

#include "support/CommandLine.h"
#include "support/FileWriter.h"
#include <cstdio>
#include <optional>
#include <string>

namespace xfc {

// Writes results as they come, to standard output or to a file that is renamed into place when it is complete.
class ResultWriter {
public:
  explicit ResultWriter(const std::string &file) {
    if (file != "-")
      writer.emplace(file);
  }
  void write(const std::string &text) {
    if (writer) {
      writer->write(text);
    } else {
      std::fwrite(text.data(), 1, text.size(), stdout);
      flushOutput();
    }
  }
  void commit() {
    if (writer)
      writer->commit();
  }

private:
  std::optional<FileWriter> writer;
};

} // namespace xfc
