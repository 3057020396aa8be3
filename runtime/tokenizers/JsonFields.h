// Reads untrusted JSON member by member: a missing member, or one of the wrong type, is an Error that names its path.
// It also keeps which members were asked for, so that a reader can tell what it did not look at.
#pragma once

#include "support/Error.h"
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace xfc {

class JsonFields {
public:
  // Parses the text and keeps its values. Throws Error if parseJson rejects it.
  static JsonFields parsed(std::string_view text);

  bool has(const char *key) const; // whether it is present and not null
  JsonFields at(const char *key) const;
  std::string string() const;
  std::string string(const char *key) const { return at(key).string(); }
  // At most 64 bytes, since the string may be inserted into every line.
  std::string shortString(const char *key) const;
  bool boolean() const;
  bool boolean(const char *key, bool otherwise) const { return has(key) ? at(key).boolean() : otherwise; }
  int64_t integer(int64_t least, int64_t most) const;
  double number() const;
  bool isArray() const { return value().is_array(); }
  bool isString() const { return value().is_string(); }
  int64_t elements() const { return static_cast<int64_t>(value().size()); }
  JsonFields element(size_t index) const;
  // Calls use(element) for each element of an array.
  template <typename Use> void each(const char *key, Use use) const { at(key).each(use); }
  template <typename Use> void each(Use use) const {
    if (!value().is_array())
      refuse("expected an array");
    for (size_t i = 0; i < value().size(); ++i)
      use(element(i));
  }
  // Calls use(key, member) for each member of an object.
  template <typename Use> void members(Use use) const {
    if (!value().is_object())
      refuse("expected an object");
    for (const auto &[key, member] : value().items())
      use(key, JsonFields(root, &member, path.empty() ? key : path + "." + key));
  }
  // Declares members that have no effect here, whatever their values are.
  void ignore(std::initializer_list<const char *> keys) const;
  // The same for members with exactly these values.
  void ignoreIf(const nlohmann::json &values) const;
  [[noreturn]] void refuse(const std::string &what) const;

  // A line for each member that was neither asked for nor declared, of all objects of the file in which some member
  // was; those that are null are left out.
  std::vector<std::string> unknown() const;

private:
  struct Asked {
    std::string path;
    std::set<std::string, std::less<>> keys;
  };
  struct Root {
    nlohmann::json value;
    std::vector<const nlohmann::json *> order; // of the first question to each object
    std::unordered_map<const nlohmann::json *, Asked> asked;
  };

  const nlohmann::json &value() const { return *here; }
  JsonFields(std::shared_ptr<Root> root, const nlohmann::json *here, std::string path)
      : root(std::move(root)), here(here), path(std::move(path)) {}
  void ask(const char *key) const;

  std::shared_ptr<Root> root;
  const nlohmann::json *here;
  std::string path;
};

} // namespace xfc
