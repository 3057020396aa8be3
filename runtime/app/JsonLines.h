// Reads lines of JSON to translate, and writes each with its translation.
#pragma once

#include "decode/Constraints.h"
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace xfc {

struct JsonLine {
  std::string source, prefix; // the prefix is empty if there is none
  std::vector<ConstraintText> constraints;
  std::string object;   // as it was written, without its closing brace
  bool hasLine = false; // whether it has a field `line` of its own
};

// Reads an object with the string `source`, and perhaps `prefix` and `constraints`, or the string of the source alone.
// Throws an Error that names `where` and the field; a line that is translated as a document has neither prefix nor
// constraints.
JsonLine readJsonLine(std::string_view line, const std::string &where, bool document = false);
// Returns the object with its fields as they were written, followed by the fields of `result`.
std::string withFields(const JsonLine &line, const nlohmann::ordered_json &result);

} // namespace xfc
