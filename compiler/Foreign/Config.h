// Reads config.json and similar files: values by key, with errors that name the file and the key.
#pragma once

#include "Import/Json.h"

namespace xfc {

class Config {
public:
  // Parses a file that holds one JSON object. Throws Error.
  explicit Config(const std::string &file);
  // Holds options that were read from another kind of file; `file` names it in messages.
  Config(std::string file, nlohmann::json json) : name(std::move(file)), json(std::move(json)) {}
  Config(const Config &) = delete;
  const std::string &file() const { return name; }

  // Whether the key is given; a null value counts as not given.
  bool has(const std::string &key) const;
  JsonValue at(const std::string &key, const std::string &what) const;
  // "FILE: KEY: what".
  [[noreturn]] void fail(const std::string &key, const std::string &what) const;

  // Values with a default, which is what the family's own reader assumes if the key is missing.
  int64_t integer(const std::string &key, int64_t low, int64_t high, int64_t otherwise) const;
  double number(const std::string &key, double low, double high, bool open, double otherwise) const;
  bool boolean(const std::string &key, bool otherwise) const;
  std::string string(const std::string &key, const std::string &otherwise) const;
  // A token id of a vocabulary of this size, or a list of one.
  int64_t token(const std::string &key, int64_t otherwise, int64_t vocabulary) const;
  // Whether the key has this value; 1 equals 1.0.
  bool is(const std::string &key, const nlohmann::json &value) const { return json.at(key) == value; }
  // Fails if the key has any value but `value`, the only one that can be imported; `why` says what other values mean.
  void only(const std::string &key, const nlohmann::json &value, const std::string &why) const;

private:
  std::string name;
  nlohmann::json json;
};

} // namespace xfc
