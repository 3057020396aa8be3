// Reads untrusted JSON member by member.
#include "tokenizers/JsonFields.h"
#include "support/Json.h"
#include "support/Quoted.h"

namespace xfc {

JsonFields JsonFields::parsed(std::string_view text) {
  auto root = std::make_shared<Root>();
  root->value = parseJson(text, "", mostLargeBytes);
  const nlohmann::json *here = &root->value;
  return {std::move(root), here, ""};
}

void JsonFields::ask(const char *key) const {
  const auto [asked, first] = root->asked.try_emplace(here, Asked{path, {}});
  if (first)
    root->order.push_back(here);
  asked->second.keys.emplace(key);
}

void JsonFields::ignore(std::initializer_list<const char *> keys) const {
  for (const char *key : keys)
    ask(key);
}

void JsonFields::ignoreIf(const nlohmann::json &values) const {
  for (const auto &[key, member] : values.items())
    if (const auto found = value().find(key); found != value().end() && *found == member)
      ask(key.c_str());
}

std::vector<std::string> JsonFields::unknown() const {
  std::vector<std::string> lines;
  for (const nlohmann::json *object : root->order) {
    const Asked &asked = root->asked.at(object);
    for (const auto &[key, member] : object->items())
      if (!asked.keys.contains(key) && !member.is_null())
        lines.push_back(escaped(asked.path.empty() ? key : asked.path + "." + key) + ": " + shownJson(member) +
                        " is not known here and is ignored");
  }
  return lines;
}

bool JsonFields::has(const char *key) const {
  if (!value().is_object())
    refuse("expected an object");
  ask(key);
  const auto found = value().find(key);
  return found != value().end() && !found->is_null();
}

JsonFields JsonFields::at(const char *key) const {
  const std::string name = path.empty() ? key : path + "." + key;
  if (!has(key))
    throw Error(escaped(name) + ": missing");
  return {root, &*value().find(key), name};
}

JsonFields JsonFields::element(size_t index) const {
  if (!value().is_array() || index >= value().size())
    refuse("expected an array of at least " + std::to_string(index + 1) + " elements");
  return {root, &value()[index], path + "[" + std::to_string(index) + "]"};
}

std::string JsonFields::string() const {
  if (!value().is_string())
    refuse("expected a string");
  return value().get<std::string>();
}

std::string JsonFields::shortString(const char *key) const {
  constexpr size_t most = 64;
  const JsonFields member = at(key);
  if (member.string().size() > most)
    member.refuse("expected at most " + std::to_string(most) + " bytes");
  return member.string();
}

bool JsonFields::boolean() const {
  if (!value().is_boolean())
    refuse("expected true or false");
  return value().get<bool>();
}

int64_t JsonFields::integer(int64_t least, int64_t most) const {
  const bool fits = value().is_number_integer() &&
                    (!value().is_number_unsigned() || value().get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits || value().get<int64_t>() < least || value().get<int64_t>() > most)
    refuse("expected an integer from " + std::to_string(least) + " to " + std::to_string(most));
  return value().get<int64_t>();
}

double JsonFields::number() const {
  if (!value().is_number())
    refuse("expected a number");
  return value().get<double>();
}

void JsonFields::refuse(const std::string &what) const {
  throw Error((path.empty() ? "the file" : escaped(path)) + ": " + what + ", found " + shownJson(value()));
}

} // namespace xfc
