// Formats JSON as a person would write it.
#include "JsonText.h"

namespace xfc {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t columns = 120;

std::string inOneLine(const Json &json) {
  if (!json.is_structured() || json.empty())
    return json.dump();
  std::string text;
  for (const auto &item : json.items())
    text +=
        (text.empty() ? "" : ", ") + (json.is_object() ? Json(item.key()).dump() + ": " : "") + inOneLine(item.value());
  return json.is_object() ? "{ " + text + " }" : "[" + text + "]";
}

// `used` counts the columns of the line that precede the value and those that must follow it.
void print(const Json &json, size_t indent, size_t used, bool top, std::string &text) {
  const std::string line = inOneLine(json);
  if (!json.is_structured() || json.empty() || (!top && used + line.size() <= columns)) {
    text += line;
    return;
  }
  const bool object = json.is_object();
  text += object ? "{\n" : "[\n";
  size_t left = json.size();
  for (const auto &item : json.items()) {
    const std::string key = object ? Json(item.key()).dump() + ": " : "";
    text.append(indent + 2, ' ').append(key);
    print(item.value(), indent + 2, indent + 2 + key.size() + 1, false, text);
    text += --left ? ",\n" : "\n";
  }
  text.append(indent, ' ').append(object ? "}" : "]");
}

} // namespace

std::string jsonText(const nlohmann::ordered_json &json) {
  std::string text;
  print(json, 0, 0, true, text);
  return text + "\n";
}

} // namespace xfc
