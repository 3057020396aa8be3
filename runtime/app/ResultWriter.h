// Where the lines go that a command makes of lines.
#pragma once

#include "support/CommandLine.h"
#include "support/Files.h"
#include <cstdio>
#include <optional>
#include <string>

namespace xfc {

// Where results go as they come: a file, whole or not at all, or standard output.
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
