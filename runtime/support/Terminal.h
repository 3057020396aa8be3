// How messages and help look on a terminal.
#pragma once

#include <cstdio>
#include <string>

namespace xfc {

// Whether the stream is a terminal that shows colours, and the user has not asked for none (NO_COLOR, or TERM=dumb).
bool hasColours(std::FILE *stream);

enum class MessageKind { Error, Warning, Note };
// "error", "warning" or "note", coloured where standard error shows colours.
const char *nameOf(MessageKind kind);
// Prints "error: TEXT", or the like, on standard error. It allocates no memory.
void printMessage(MessageKind kind, const char *text);

// The text with lines that are headings ("Options:") in bold if the stream shows colours.
std::string withBoldHeadings(const std::string &text, std::FILE *stream);

} // namespace xfc
