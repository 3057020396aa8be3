// Values of JSON files that know their path in the file, so that every error fits one line.
#pragma once

#include "support/Json.h"
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// "did you mean "heads"? known: name, heads, ..."; without the question if no name is similar.
std::string suggestion(std::string_view name, const std::vector<std::string> &known);
// A value of a JSON file and its path. The readers throw Error, "FILE: PATH: value, expectation".
class JsonValue {
public:
  JsonValue(const nlohmann::json &json, std::string_view file, std::string path)
      : json(&json), file(file), where(std::move(path)) {}

  [[noreturn]] void fail(const std::string &what) const;
  // Fails because of a value inside this object, at "key" or "key[0]".
  [[noreturn]] void failInside(const std::string &place, const std::string &what) const;
  const std::string &path() const { return where; }
  // The value as JSON text, shortened to fit a line.
  std::string shown() const;

  const nlohmann::json &value() const { return *json; }
  bool isNumber() const { return json->is_number(); }
  bool isString() const { return json->is_string(); }
  bool isObject() const { return json->is_object(); }
  bool isBoolean() const { return json->is_boolean(); }

  // The value of `key`, or nothing.
  std::optional<JsonValue> find(const std::string &key) const;
  // The value of `key`, which must exist; `what` tells the reader of the error what is expected.
  JsonValue at(const std::string &key, const std::string &what) const;
  // Fails unless this is an object whose keys are all in `known`; `what` names the object.
  void onlyKeys(const std::vector<std::string> &known, const std::string &what) const;
  std::vector<std::string> keys() const;
  std::vector<JsonValue> elements() const;

  // A whole number in [low, high].
  int64_t integer(int64_t low, int64_t high) const;
  // A number in [low, high], or [low, high) if `open`.
  double number(double low, double high, bool open = false) const;
  // "a number from LOW to HIGH", or "to below HIGH".
  static std::string range(double low, double high, bool open);
  bool boolean() const;
  std::string string() const;
  // A string that is one of `known`; `what` names it in the error.
  std::string oneOf(const std::vector<std::string> &known, const std::string &what) const;

private:
  const nlohmann::json *json;
  std::string_view file;
  std::string where;
};

} // namespace xfc
