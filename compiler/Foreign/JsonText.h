// JSON as a person would write it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace xfc {

// Keys in their order, two blanks a level; what fits into a line of 120 columns stands in one.
std::string jsonText(const nlohmann::ordered_json &json);

} // namespace xfc
