// Values of JSON files that know their path in the file.
#include "Json.h"
#include "support/Error.h"
#include "support/Quoted.h"
#include <algorithm>
#include <cmath>
#include <cstdio>

namespace xfc {
namespace {

std::string formatted(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

const char *article(const nlohmann::json &json) {
  switch (json.type()) {
  case nlohmann::json::value_t::null:
    return "null";
  case nlohmann::json::value_t::object:
    return "an object";
  case nlohmann::json::value_t::array:
    return "a list";
  case nlohmann::json::value_t::string:
    return "a string";
  case nlohmann::json::value_t::boolean:
    return "a boolean";
  default:
    return "a number";
  }
}

// The number of edits from `a` to `b`: insertions, deletions, substitutions and swaps of neighbors.
size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> edits(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        edits[i][j] = i + j;
        continue;
      }
      edits[i][j] = std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1, edits[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
    }
  return edits[a.size()][b.size()];
}

} // namespace

std::string suggestion(std::string_view name, const std::vector<std::string> &known) {
  const std::string *nearest = nullptr;
  size_t least = (name.size() + 1) / 3 + 1;
  for (const std::string &candidate : known) {
    // A name this long is no typing error, and computing the distance takes quadratic time.
    size_t edits = name.size() > 256 ? least : editDistance(name, candidate);
    // A name that contains the other counts as similar, too: xavier and xavier_uniform.
    if (std::min(name.size(), candidate.size()) >= 4 &&
        (candidate.find(name) != std::string::npos || name.find(candidate) != std::string_view::npos))
      edits = std::min(edits, least - 1);
    if (edits < least) {
      least = edits;
      nearest = &candidate;
    }
  }
  return (nearest ? "did you mean \"" + *nearest + "\"? " : "") + "known: " + listed(known);
}

void JsonValue::fail(const std::string &what) const {
  constexpr size_t longest = 1000; // of the path to a step, which may be deep inside others
  throw Error(std::string(file) + ": " + (where.empty() ? "" : escaped(where, longest) + ": ") + what);
}

void JsonValue::failInside(const std::string &place, const std::string &what) const {
  JsonValue(*json, file, where.empty() ? place : where + "." + place).fail(what);
}

std::string JsonValue::shown() const { return shownJson(*json); }

std::optional<JsonValue> JsonValue::find(const std::string &key) const {
  if (!json->is_object())
    fail(std::string("expected an object, found ") + article(*json) + ", " + shown());
  auto found = json->find(key);
  if (found == json->end())
    return std::nullopt;
  return JsonValue(*found, file, extended(where, key));
}

JsonValue JsonValue::at(const std::string &key, const std::string &what) const {
  if (std::optional<JsonValue> value = find(key))
    return *value;
  JsonValue(*json, file, extended(where, key)).fail("missing; expected " + what);
}

void JsonValue::onlyKeys(const std::vector<std::string> &known, const std::string &what) const {
  for (const std::string &key : keys())
    if (std::find(known.begin(), known.end(), key) == known.end())
      find(key)->fail("unknown key of " + what + "; " + suggestion(key, known));
}

std::vector<std::string> JsonValue::keys() const {
  if (!json->is_object())
    fail(std::string("expected an object, found ") + article(*json) + ", " + shown());
  std::vector<std::string> names;
  for (const auto &item : json->items())
    names.push_back(item.key());
  return names;
}

std::vector<JsonValue> JsonValue::elements() const {
  if (!json->is_array())
    fail(std::string("expected a list, found ") + article(*json) + ", " + shown());
  std::vector<JsonValue> values;
  values.reserve(json->size());
  for (size_t i = 0; i < json->size(); ++i)
    values.emplace_back((*json)[i], file, extended(where, i));
  return values;
}

int64_t JsonValue::integer(int64_t low, int64_t high) const {
  std::string range = "expected a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  if (!json->is_number())
    fail(range + ", found " + article(*json) + ", " + shown());
  // The value is checked as a double: integers in JSON may exceed 64 bits, and 8.0 is a whole number.
  double value = json->get<double>();
  if (value != std::floor(value) || value < double(low) || value > double(high))
    fail(range + ", found " + shown());
  return static_cast<int64_t>(value);
}

std::string JsonValue::range(double low, double high, bool open) {
  return "a number from " + formatted(low) + (open ? " to below " : " to ") + formatted(high);
}

double JsonValue::number(double low, double high, bool open) const {
  std::string expected = "expected " + range(low, high, open) + ", found ";
  if (!json->is_number())
    fail(expected + article(*json) + ", " + shown());
  double value = json->get<double>();
  if (!(value >= low) || !(open ? value < high : value <= high))
    fail(expected + shown());
  return value;
}

bool JsonValue::boolean() const {
  if (!json->is_boolean())
    fail(std::string("expected true or false, found ") + article(*json) + ", " + shown());
  return json->get<bool>();
}

std::string JsonValue::string() const {
  if (!json->is_string())
    fail(std::string("expected a string, found ") + article(*json) + ", " + shown());
  return json->get<std::string>();
}

std::string JsonValue::oneOf(const std::vector<std::string> &known, const std::string &what) const {
  std::string value = string();
  if (std::find(known.begin(), known.end(), value) == known.end())
    fail("unknown " + what + " " + shown() + "; " + suggestion(value, known));
  return value;
}

} // namespace xfc
