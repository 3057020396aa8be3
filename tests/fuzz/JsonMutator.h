// Mutates JSON structurally: the result still parses, so that inputs get beyond the parser.
#pragma once

#include "Fuzz.h"
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace xfc::fuzz {

class JsonMutator {
public:
  using Json = nlohmann::ordered_json;
  explicit JsonMutator(unsigned seed) : random(seed) {}

  // A mutated copy: one to three values are replaced, removed, repeated, swapped or nested; or, now and then, a value
  // becomes nested deeply or long, or raw bytes are changed.
  std::string change(std::string_view text, size_t most) {
    if (depthOf(text) > 500) // the library recurses into what it prints
      return changedBytes(std::string(text), most);
    Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded() || random.oneIn(16))
      return changedBytes(std::string(text), most);
    room = largest - std::min(text.size(), largest);
    for (size_t changes = 1 + random.below(3); changes > 0; --changes)
      changeOne(json);
    return random.oneIn(16) ? withExtreme(json, most) : written(json);
  }

private:
  // The text with a value that is nested far beyond any limit, or is a string or a list of any size.
  std::string withExtreme(Json &json, size_t most) {
    std::vector<Json *> values;
    collect(json, values);
    *values[random.below(values.size())] = "@extreme@";
    std::string text = written(json);
    const size_t size = std::min(size_t{1} << random.below(17), most / 16 + 1);
    std::string value;
    switch (random.below(4)) {
    case 0:
      value = std::string(size, '[') + std::string(size, ']');
      break;
    case 1:
      for (size_t i = 0; i < size; ++i)
        value += "{\"type\":";
      value += "0" + std::string(size, '}');
      break;
    case 2:
      value = '"' + std::string(size, 'x') + '"';
      break;
    default:
      for (size_t i = 0; i < size; ++i)
        value += i ? ",[]" : "[[]";
      value += "]";
    }
    constexpr std::string_view place = "\"@extreme@\"";
    return text.replace(text.find(place), place.size(), value);
  }

  // At least the depth of the text's nesting.
  static size_t depthOf(std::string_view text) {
    size_t depth = 0, deepest = 0;
    for (const char c : text)
      if (c == '[' || c == '{')
        deepest = std::max(deepest, ++depth);
      else if ((c == ']' || c == '}') && depth > 0)
        --depth;
    return deepest;
  }

  // Collects all values, each before its children; very deep nesting is skipped.
  void collect(Json &json, std::vector<Json *> &values, int depth = 0) {
    values.push_back(&json);
    if (depth < 80 && json.is_structured())
      for (Json &value : json)
        collect(value, values, depth + 1);
  }

  Json scalar() {
    static const double doubles[] = {0, -0.0, 0.1, 0.5, 1, -1, 1e-309, 1e300, -1e300, 0.9999999, 1.5};
    switch (random.below(8)) {
    case 0:
      return nullptr;
    case 1:
      return random.oneIn(2);
    case 2:
      return doubles[random.below(std::size(doubles))];
    case 3:
      return std::numeric_limits<int64_t>::max() >> random.below(63);
    case 4:
      return std::numeric_limits<int64_t>::min() >> random.below(63);
    case 5:
      return std::numeric_limits<uint64_t>::max() >> random.below(64);
    case 6:
      return static_cast<int64_t>(random.below(70)) - 3;
    default:
      return std::string(random.below(40), static_cast<char>(' ' + random.below(95)));
    }
  }

  void changeOne(Json &json) {
    std::vector<Json *> values;
    collect(json, values);
    Json &value = *values[random.below(values.size())];
    const Json &other = *values[random.below(values.size())]; // one may contain the other
    switch (random.below(9)) {
    case 0:
      value = scalar();
      return;
    case 1: // a number close to the old one
      if (value.is_number_integer())
        value = static_cast<int64_t>(value.get<uint64_t>() + random.below(5) - 2);
      else if (value.is_number())
        value = value.get<double>() * (random.oneIn(2) ? 2 : 0.5);
      else if (value.is_string())
        value = changedString(value.get<std::string>());
      return;
    case 2:
      if (hasRoomFor(other))
        value = Json(other);
      return;
    case 3:
      if (value.is_structured() && !value.empty())
        value.erase(std::next(value.begin(), static_cast<std::ptrdiff_t>(random.below(value.size()))));
      return;
    case 4: // an added key or element
      if (!value.is_structured() || !hasRoomFor(other))
        return;
      if (Json copy = other; value.is_object())
        value[someKey(values)] = std::move(copy);
      else
        value.insert(std::next(value.begin(), static_cast<std::ptrdiff_t>(random.below(value.size() + 1))),
                     std::move(copy));
      return;
    case 5:
      if (value.is_array() && value.size() > 1)
        std::swap(value[random.below(value.size())], value[random.below(value.size())]);
      return;
    case 6:
      value = random.oneIn(2) ? Json::array({value}) : Json{{someKey(values), value}};
      return;
    case 7:
      if (value.is_structured() && !value.empty()) {
        const Json inner = *std::next(value.begin(), static_cast<std::ptrdiff_t>(random.below(value.size())));
        value = inner;
      }
      return;
    default: // a string that occurs elsewhere
      if (value.is_string())
        value = someKey(values);
    }
  }

  // Repeated copying would double the size again and again.
  bool hasRoomFor(const Json &more) {
    const size_t size = more.is_structured() ? written(more).size() : 0;
    if (size > room)
      return false;
    room -= size;
    return true;
  }
  // Changed strings may be invalid UTF-8.
  static std::string written(const Json &json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

  std::string someKey(const std::vector<Json *> &values) {
    for (int tries = 0; tries < 8; ++tries) {
      const Json &value = *values[random.below(values.size())];
      if (value.is_object() && !value.empty())
        return std::next(value.begin(), static_cast<std::ptrdiff_t>(random.below(value.size()))).key();
      if (value.is_string())
        return value.get<std::string>();
    }
    return "name";
  }

  std::string changedString(std::string text) {
    switch (random.below(4)) {
    case 0:
      text.insert(random.below(text.size() + 1), 1, static_cast<char>(random.below(127) + 1));
      break;
    case 1:
      text.erase(random.below(text.size() + 1), 1);
      break;
    case 2:
      text += text.substr(0, 200);
      break;
    default: { // numbers in expressions and ranges
      static const char *parts[] = {"*", "d_model", "..", "0", "99999999999", "-1", "/", "(", "é", "\n"};
      text.insert(random.below(text.size() + 1), parts[random.below(std::size(parts))]);
    }
    }
    // Characters cut in two are replaced when the text is written.
    return text;
  }

  static constexpr size_t largest = 1 << 16;
  Random random;
  size_t room = 0; // characters by which copies may make the text longer
};

} // namespace xfc::fuzz
