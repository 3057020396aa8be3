// Reads config.json and similar files: values by key, with errors that name the file and the key. It remembers which
// keys were asked for, so that the others can be named: what a foreign file says is used, known to be harmless, or
// told.
#pragma once

#include "Import/Json.h"
#include <set>

namespace xfc {

class Config {
public:
  // Parses a file that holds one JSON object. Throws Error.
  explicit Config(const std::string &file);
  // Holds options that were read from another kind of file; `file` names it in messages.
  Config(std::string file, nlohmann::json json) : name(std::move(file)), json(std::move(json)) {}
  Config(const Config &) = delete;
  const std::string &file() const { return name; }

  // What null means for the readers below: that the key is not given, as in generation_config.json, or, as in
  // config.json, a value of its own, which is none of the kind that is expected.
  enum class Null { NotGiven, Value };
  void setNull(Null meaning) { null = meaning; }

  // Whether the key is given. A null is not, even where the readers of values reject it.
  bool has(const std::string &key) const;
  JsonValue at(const std::string &key, const std::string &what) const;
  // "FILE: KEY: what".
  [[noreturn]] void fail(const std::string &key, const std::string &what) const;

  // Values with a default, which is what the family's own reader assumes if the key is missing.
  int64_t integer(const std::string &key, int64_t low, int64_t high, int64_t otherwise) const;
  double number(const std::string &key, double low, double high, bool open, double otherwise) const;
  bool boolean(const std::string &key, bool otherwise) const;
  std::string string(const std::string &key, const std::string &otherwise) const;
  // A token id of a vocabulary of this size, or a list of one; -1 for null, which says that there is no such token.
  int64_t token(const std::string &key, int64_t otherwise, int64_t vocabulary) const;
  // The same for a token that the model must have: null is an error.
  int64_t requiredToken(const std::string &key, int64_t otherwise, int64_t vocabulary) const;
  // Fails if the key has any value but `value`, the only one that can be imported; `why` says what other values mean.
  void only(const std::string &key, const nlohmann::json &value, const std::string &why) const;

  // The keys that were asked for so far, whether or not the file has them.
  const std::set<std::string> &asked() const { return used; }
  // Adds a note for each key of the file that was not asked for, unless it is null, one of `harmless`, or has its value
  // in `neutral`, one that has no effect there.
  void tellUnknown(const std::set<std::string> &harmless, const nlohmann::json &neutral,
                   std::vector<std::string> &notes) const;

private:
  // Whether there is a value to read under the key.
  bool given(const std::string &key) const;

  std::string name;
  nlohmann::json json;
  Null null = Null::NotGiven;
  mutable std::set<std::string> used;
};

} // namespace xfc
