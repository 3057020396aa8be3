// How messages and help look on a terminal.
#include "support/Terminal.h"
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <unistd.h>

namespace xfc {

bool hasColours(std::FILE *stream) {
  const char *off = std::getenv("NO_COLOR"), *terminal = std::getenv("TERM");
  return !(off && *off) && terminal && std::string_view(terminal) != "dumb" && isatty(fileno(stream));
}

const char *nameOf(MessageKind kind) {
  static const bool coloured = hasColours(stderr);
  switch (kind) {
  case MessageKind::Error:
    return coloured ? "\033[1;31merror\033[0m" : "error";
  case MessageKind::Warning:
    return coloured ? "\033[1;33mwarning\033[0m" : "warning";
  case MessageKind::Note:
    return coloured ? "\033[1;36mnote\033[0m" : "note";
  }
  return "";
}

void printMessage(MessageKind kind, const char *text) { std::fprintf(stderr, "%s: %s\n", nameOf(kind), text); }

std::string withBoldHeadings(const std::string &text, std::FILE *stream) {
  if (!hasColours(stream))
    return text;
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    const bool heading = colon != std::string::npos && (colon + 1 == line.size() || line.starts_with("Usage:")) &&
                         !line.starts_with(' ');
    result += heading ? "\033[1m" + line.substr(0, colon + 1) + "\033[0m" + line.substr(colon + 1) : line;
    result += "\n";
  }
  return result;
}

} // namespace xfc
