// Formats JSON as a person would write it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace xfc {

// Keys keep their order and levels are indented by two spaces; a value that fits into 120 columns takes one line.
std::string jsonText(const nlohmann::ordered_json &json);

} // namespace xfc
