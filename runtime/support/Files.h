// Reads whole files, and looks at what is in folders.
#pragma once

#include "support/Error.h"
#include <cstddef>
#include <string>
#include <vector>

namespace xfc {

constexpr size_t mostTextBytes = size_t(16) << 20;   // of descriptions, settings and options
constexpr size_t mostLargeBytes = size_t(100) << 20; // of vocabularies, and of the headers of safetensors

// Reads the whole file, which must be a regular one, or a pipe that a shell passes (/dev/fd/63, /dev/stdin): a device
// or another pipe may have no end. Throws Error with the system's reason, or if it has more than `most` bytes.
std::string readFile(const std::string &file, size_t most = mostTextBytes);

// The names in a folder, sorted; none if it is not there. Throws Error if it cannot be read.
std::vector<std::string> namesIn(const std::string &folder);
void makeFolder(const std::string &folder); // and its parents
bool exists(const std::string &file);
bool isFolder(const std::string &path);
// Syncs the names in a folder to disk. Returns false if that fails, with errno set.
bool syncFolder(const std::string &folder);

} // namespace xfc
