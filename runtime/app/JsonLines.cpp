// Reads lines of JSON to translate, and writes each with its translation.
#include "app/JsonLines.h"
#include "support/Json.h"

namespace xfc {

namespace {

std::string_view withoutBlanks(std::string_view text) {
  constexpr std::string_view blanks = " \t\r", mark = "\xEF\xBB\xBF"; // the parser skips a byte order mark
  if (text.starts_with(mark))
    text.remove_prefix(mark.size());
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

// The string in a field, which is one line.
std::string lineIn(const nlohmann::json &value, const std::string &field) {
  if (!value.is_string())
    throw Error(field + ": expected a string, found " + shownJson(value));
  if (value.get_ref<const std::string &>().find('\n') != std::string::npos)
    throw Error(field + ": expected one line, found a line break");
  return value.get<std::string>();
}

JsonLine readLine(std::string_view text, bool document) {
  if (text.empty())
    throw Error("the line is blank; expected a JSON object, such as {\"source\": \"...\"}");
  const nlohmann::json value = parseJson(text, "");
  if (text.front() != '{' && text.front() != '"') // what the parser skips, such as a second byte order mark
    throw Error("expected a JSON object, such as {\"source\": \"...\"}, or a string, found " + shownJson(value));
  JsonLine read;
  if (value.is_string()) {
    read.source = lineIn(value, "the line");
    read.object = "{\"source\":" + std::string(text);
    return read;
  }
  if (!value.contains("source"))
    throw Error("source: missing; expected the line to translate");
  read.source = lineIn(value["source"], "source");
  if (value.contains("prefix") && !value["prefix"].is_null())
    read.prefix = lineIn(value["prefix"], "prefix");
  if (value.contains("constraints") && !value["constraints"].is_null())
    try {
      read.constraints = constraintsOfJson(value["constraints"]);
    } catch (const Error &error) {
      throw Error("constraints: " + std::string(error.what()));
    }
  if (document && !(read.prefix.empty() && read.constraints.empty()))
    throw Error(std::string(read.prefix.empty() ? "constraints" : "prefix") +
                ": --document excludes it, since the sentences of the line are translated one by one");
  using Names = std::vector<const char *>;
  for (const char *written :
       document ? Names{"translation", "sentences"} : Names{"translation", "source_tokens", "hypotheses"})
    if (value.contains(written))
      throw Error(std::string(written) + ": this field is written by translate; give it another name");
  read.hasLine = value.contains("line");
  read.object = text.substr(0, text.size() - 1);
  return read;
}

} // namespace

JsonLine readJsonLine(std::string_view line, const std::string &where, bool document) {
  try {
    return readLine(withoutBlanks(line), document);
  } catch (const Error &error) {
    std::string_view what = error.what();
    if (constexpr std::string_view only = "line 1, "; what.starts_with(only)) // where the parser finds the mistake
      what.remove_prefix(only.size());
    throw Error(where + ": " + std::string(what));
  }
}

std::string withFields(const JsonLine &line, const nlohmann::ordered_json &result) {
  // Bytes that are not valid UTF-8 become U+FFFD.
  const std::string fields = result.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return line.object + "," + fields.substr(1);
}

} // namespace xfc
