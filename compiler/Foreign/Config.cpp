// Reads config.json and similar files.
#include "Config.h"
#include "support/Error.h"
#include "support/Files.h"
#include "support/Quoted.h"

namespace xfc {

Config::Config(const std::string &file) : name(file), json(parseJson(readFile(file), file)) {
  if (!json.is_object())
    throw Error(file + ": expected an object of options, found " + std::string(json.type_name()));
}

bool Config::has(const std::string &key) const {
  used.insert(key);
  return json.contains(key) && !json[key].is_null();
}

bool Config::given(const std::string &key) const { return has(key) || (null == Null::Value && json.contains(key)); }

JsonValue Config::at(const std::string &key, const std::string &what) const {
  used.insert(key);
  return JsonValue(json, name, "").at(key, what);
}

void Config::fail(const std::string &key, const std::string &what) const { JsonValue(json, name, key).fail(what); }

int64_t Config::integer(const std::string &key, int64_t low, int64_t high, int64_t otherwise) const {
  return given(key) ? at(key, "").integer(low, high) : otherwise;
}

double Config::number(const std::string &key, double low, double high, bool open, double otherwise) const {
  return given(key) ? at(key, "").number(low, high, open) : otherwise;
}

bool Config::boolean(const std::string &key, bool otherwise) const {
  return given(key) ? at(key, "").boolean() : otherwise;
}

std::string Config::string(const std::string &key, const std::string &otherwise) const {
  return given(key) ? at(key, "").string() : otherwise;
}

int64_t Config::token(const std::string &key, int64_t otherwise, int64_t vocabulary) const {
  if (!has(key))
    return json.contains(key) && null == Null::Value ? -1 : otherwise;
  const JsonValue value = at(key, "");
  if (!json[key].is_array())
    return value.integer(0, vocabulary - 1);
  const std::vector<JsonValue> ids = value.elements();
  if (ids.size() != 1)
    value.fail(value.shown() + ": expected one token id; models here have only one such token");
  return ids.front().integer(0, vocabulary - 1);
}

int64_t Config::requiredToken(const std::string &key, int64_t otherwise, int64_t vocabulary) const {
  const int64_t id = token(key, otherwise, vocabulary);
  if (id < 0)
    fail(key, "null: expected a token id, which a model of this family needs");
  return id;
}

void Config::only(const std::string &key, const nlohmann::json &value, const std::string &why) const {
  if (given(key) && json[key] != value)
    fail(key, at(key, "").shown() + " cannot be imported: " + why + "; expected " + value.dump());
}

void Config::tellUnknown(const std::set<std::string> &harmless, const nlohmann::json &neutral,
                         std::vector<std::string> &notes) const {
  for (const auto &[key, value] : json.items())
    if (!used.contains(key) && !harmless.contains(key) && !value.is_null() &&
        !(neutral.contains(key) && neutral[key] == value))
      notes.push_back(name + ": " + escaped(key) + ": " + JsonValue(json, name, key).find(key)->shown() +
                      " is not known here and is ignored");
}

} // namespace xfc
