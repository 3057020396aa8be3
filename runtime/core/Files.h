// Reading and writing files the safe way.
#pragma once

#include "Error.h"
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// The whole file. Throws Error with the system's reason.
std::string readFile(const std::string &file);
// Temporary name beside it, fsync, rename, fsync of the folder. Throws Error; what was there stays.
void writeFile(const std::string &file, std::string_view contents);
// Lines without their ends (LF or CRLF). "-" is standard input. Throws Error: unreadable, or invalid UTF-8 (file:line).
std::vector<std::string> readLines(const std::string &file);
void makeFolder(const std::string &folder); // with its parents
bool exists(const std::string &file);

} // namespace xfc
