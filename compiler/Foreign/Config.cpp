// Reads config.json and similar files.
#include "Config.h"
#include "support/Error.h"
#include "support/Files.h"

namespace xfc {

Config::Config(const std::string &file) : name(file), json(parseJson(readFile(file), file)) {
  if (!json.is_object())
    throw Error(file + ": expected an object of options, found " + std::string(json.type_name()));
}

bool Config::has(const std::string &key) const { return json.contains(key) && !json[key].is_null(); }

JsonValue Config::at(const std::string &key, const std::string &what) const {
  return JsonValue(json, name, "").at(key, what);
}

void Config::fail(const std::string &key, const std::string &what) const { JsonValue(json, name, key).fail(what); }

int64_t Config::integer(const std::string &key, int64_t low, int64_t high, int64_t otherwise) const {
  return has(key) ? at(key, "").integer(low, high) : otherwise;
}

double Config::number(const std::string &key, double low, double high, bool open, double otherwise) const {
  return has(key) ? at(key, "").number(low, high, open) : otherwise;
}

bool Config::boolean(const std::string &key, bool otherwise) const {
  return has(key) ? at(key, "").boolean() : otherwise;
}

std::string Config::string(const std::string &key, const std::string &otherwise) const {
  return has(key) ? at(key, "").string() : otherwise;
}

int64_t Config::token(const std::string &key, int64_t otherwise, int64_t vocabulary) const {
  if (!has(key))
    return otherwise;
  const JsonValue value = at(key, "");
  if (!json[key].is_array())
    return value.integer(0, vocabulary - 1);
  const std::vector<JsonValue> ids = value.elements();
  if (ids.size() != 1)
    value.fail(value.shown() + ": expected one token id; models here have only one such token");
  return ids.front().integer(0, vocabulary - 1);
}

void Config::only(const std::string &key, const nlohmann::json &value, const std::string &why) const {
  if (has(key) && json[key] != value)
    fail(key, at(key, "").shown() + " cannot be imported: " + why + "; expected " + value.dump());
}

} // namespace xfc
