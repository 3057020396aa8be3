// Reads JSON from outside. This is the only place that calls the parser (tests/style/readers.py), so that no text,
// whoever wrote it, costs more than a small multiple of its size in memory, or ends the process: the library's parser
// takes any depth, but what it returns is copied, compared and printed by recursion.
#pragma once

#include "support/Files.h"
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace xfc {

constexpr size_t mostJsonNesting = 64;

// Parses JSON. Rejects more than `most` bytes, nesting deeper than 64, a key that comes twice in an object, and numbers
// beyond a double. Throws Error: "FILE:LINE:COLUMN: not JSON: what" for syntax, "FILE: PATH: what" for the rest.
// Without a file, the message begins with the line or the path.
nlohmann::json parseJson(std::string_view text, std::string_view file, size_t most = mostTextBytes);
// The same, keeping the order of keys. Adding a key takes time proportional to the size of its object.
nlohmann::ordered_json parseOrderedJson(std::string_view text, std::string_view file, size_t most = mostTextBytes);
// The value of a text that need not be JSON; nothing if parseJson rejects it.
std::optional<nlohmann::json> jsonIn(std::string_view text);

// `path` extended by a key or an index: encoder.layer[0].
std::string extended(const std::string &path, const std::string &key);
std::string extended(const std::string &path, size_t index);
// A value as JSON text in ASCII, shortened to 60 characters, for messages.
std::string shownJson(const nlohmann::json &value);

} // namespace xfc
