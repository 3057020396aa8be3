// Parses JSON text into values that know their path in the file.
#include "Json.h"
#include "support/Error.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

namespace xfc {
namespace {

constexpr size_t maxBytes = size_t(16) << 20;
constexpr size_t maxNesting = 64;
constexpr size_t maxShown = 60;

std::string shorten(std::string text) {
  if (text.size() > maxShown)
    text.replace(maxShown, std::string::npos, "...");
  return text;
}

std::string formatted(const nlohmann::json &json) { return shorten(json.dump(-1, ' ', /*ensure_ascii=*/true)); }

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

// Tracks the parser's path, with one frame for each open object or list, and rejects repeated keys and deep nesting.
class Guard {
public:
  explicit Guard(std::string_view file) : file(file) {}

  bool operator()(int, nlohmann::json::parse_event_t event, nlohmann::json &parsed) {
    using Event = nlohmann::json::parse_event_t;
    switch (event) {
    case Event::object_start:
    case Event::array_start:
      if (frames.size() == maxNesting)
        throw Error(std::string(file) + ": " + path() + ": nested deeper than " + std::to_string(maxNesting) +
                    " levels");
      frames.push_back({event == Event::array_start, 0, {}, {}});
      break;
    case Event::object_end:
    case Event::array_end:
      frames.pop_back();
      advance();
      break;
    case Event::key:
      frames.back().key = parsed.get<std::string>();
      if (!frames.back().keys.insert(frames.back().key).second)
        throw Error(std::string(file) + ": " + path() + ": given twice in one object; remove one");
      break;
    case Event::value:
      advance();
      break;
    }
    return true;
  }

  std::string path() const {
    std::string text;
    for (const Frame &frame : frames)
      text = frame.list ? extended(text, frame.index) : extended(text, frame.key);
    return text.empty() ? "the file" : text;
  }

private:
  struct Frame {
    bool list;
    size_t index;
    std::string key;
    std::set<std::string> keys;
  };

  void advance() {
    if (!frames.empty())
      ++frames.back().index;
  }

  std::string_view file;
  std::vector<Frame> frames;
};

} // namespace

nlohmann::json parseJson(std::string_view text, std::string_view file) {
  if (text.size() > maxBytes)
    throw Error(std::string(file) + ": larger than 16 MB; expected a description of a model, a few kB of JSON");
  Guard guard(file);
  try {
    return nlohmann::json::parse(text, std::ref(guard));
  } catch (const nlohmann::json::parse_error &error) {
    size_t end = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
    std::string_view before = text.substr(0, end);
    size_t line = 1 + std::count(before.begin(), before.end(), '\n');
    size_t lineStart = before.rfind('\n') + 1;
    std::string what = error.what();
    // "[json.exception...] parse error at line 1, column 2: syntax error while parsing value - invalid literal; ..."
    if (size_t detail = what.find(" - "); detail != std::string::npos)
      what.erase(0, detail + 3);
    throw Error(std::string(file) + ":" + std::to_string(line) + ":" + std::to_string(end - lineStart + 1) +
                ": not JSON: " + what);
  } catch (const nlohmann::json::out_of_range &) {
    throw Error(std::string(file) + ": " + guard.path() + ": the number is too large for a double");
  }
}

std::string listed(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

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

std::string extended(const std::string &path, const std::string &key) {
  bool plain = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return c < 128 && (std::isalnum(c) || c == '_' || c == '-' || c == '$');
  });
  if (!plain)
    return path + "[" + formatted(key) + "]";
  return path.empty() ? shorten(key) : path + "." + shorten(key);
}

std::string extended(const std::string &path, size_t index) { return path + "[" + std::to_string(index) + "]"; }

void JsonValue::fail(const std::string &what) const {
  throw Error(std::string(file) + ": " + (where.empty() ? "" : where + ": ") + what);
}

void JsonValue::failInside(const std::string &place, const std::string &what) const {
  JsonValue(*json, file, where.empty() ? place : where + "." + place).fail(what);
}

std::string JsonValue::shown() const { return formatted(*json); }

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
