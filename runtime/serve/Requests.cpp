// Reads the bodies of requests.
#include "serve/Requests.h"
#include "plan/GenerationSettings.h"
#include "serve/Http.h"
#include "support/Json.h"
#include "support/LineReader.h"
#include "support/Quoted.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace xfc {

namespace {

using Fields = nlohmann::json;

[[noreturn]] void refuse(const std::string &what) { throw RefusedRequest(400, what); }

bool isType(std::string_view contentType, std::string_view type) {
  return contentType.substr(0, std::min(contentType.find(';'), contentType.size())) == type;
}

// JSON has checked the UTF-8 that it holds.
void checkText(const std::string &name, const std::string &text) {
  if (const size_t bad = invalidUtf8(text); bad != std::string::npos)
    refuse(escaped(name) + ": byte " + std::to_string(bad + 1) + " is not valid UTF-8");
}

// The fields of a form, as strings. Of those that come several times, the values are a list.
Fields formFields(std::string_view body) {
  Fields fields = Fields::object();
  while (!body.empty()) {
    const std::string_view field = body.substr(0, std::min(body.find('&'), body.size()));
    body.remove_prefix(std::min(field.size() + 1, body.size()));
    const size_t equals = std::min(field.find('='), field.size());
    const std::string name = percentDecoded(field.substr(0, equals), /*form=*/true);
    std::string value = percentDecoded(field.substr(std::min(equals + 1, field.size())), /*form=*/true);
    checkText("a name in the form", name);
    checkText(name, value);
    if (name.empty())
      continue;
    if (Fields &known = fields[name]; known.is_null())
      known = std::move(value);
    else if (known.is_array())
      known.push_back(std::move(value));
    else
      known = Fields::array({known, std::move(value)});
  }
  return fields;
}

Fields fieldsOf(std::string_view contentType, std::string_view body, bool forms) {
  if (forms && isType(contentType, "application/x-www-form-urlencoded"))
    return formFields(body);
  if (!contentType.empty() && !isType(contentType, "application/json"))
    throw RefusedRequest(415, "Content-Type: expected application/json" +
                                  std::string(forms ? " or application/x-www-form-urlencoded" : ""));
  try {
    Fields fields = parseJson(body, "", body.size());
    if (!fields.is_object())
      refuse("the body is not a JSON object, such as {\"q\": \"...\"}");
    return fields;
  } catch (const RefusedRequest &) {
    throw;
  } catch (const Error &error) {
    refuse("the body: " + std::string(error.what()));
  }
}

std::string stringField(const Fields &fields, const std::string &name) {
  const auto found = fields.find(name);
  if (found == fields.end() || found->is_null())
    return "";
  if (!found->is_string())
    refuse(name + ": expected a string, found " + shownJson(*found));
  return found->get<std::string>();
}

std::vector<std::string> stringsOf(const Fields &value, const std::string &name) {
  if (value.is_string())
    return {value.get<std::string>()};
  if (!value.is_array())
    refuse(name + ": expected a string or a list of strings, found " + shownJson(value));
  std::vector<std::string> texts;
  for (const Fields &element : value) {
    if (!element.is_string())
      refuse(name + ": expected strings, found " + shownJson(element));
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

void requireFewConstraints(const std::string &name, const Fields &value) {
  if (value.is_array() && value.size() > mostConstraintsOfLine)
    refuse(name + ": at most " + std::to_string(mostConstraintsOfLine) + " for a line, but " +
           std::to_string(value.size()) + " were given");
}

std::vector<ConstraintText> constraintsOf(const Fields &value) {
  requireFewConstraints("constraints", value);
  try {
    return constraintsOfJson(value);
  } catch (const Error &error) {
    refuse("constraints: " + std::string(error.what()));
  }
}

TranslationRequest readCommon(const Fields &fields) {
  TranslationRequest request;
  const auto q = fields.find("q");
  if (q == fields.end())
    refuse("Invalid request: missing q parameter");
  request.texts = stringsOf(*q, "q");
  request.isList = q->is_array();
  request.source = stringField(fields, "source");
  request.target = stringField(fields, "target");
  request.apiKey = stringField(fields, "api_key");
  return request;
}

// Whether an option takes constraints, such as required_phrases.
bool takesConstraints(const std::string &name) {
  const GenerationSetting *setting = findSetting(name);
  return setting && std::holds_alternative<GenerationSetting::Constraints>(setting->value);
}

// The value of an option as a word of a command line.
std::string wordOf(const std::string &name, const Fields &value) {
  if (value.is_string())
    return value.get<std::string>();
  if (value.is_boolean() || value.is_number())
    return value.dump();
  if (!value.is_array())
    refuse(escaped(name) + ": expected a number, a string, true or false, or a list of tokens, found " +
           shownJson(value));
  std::string words = value.empty() ? " " : ""; // an option has to have a value
  if (takesConstraints(name) && !value.empty() && value.front().is_array()) {
    for (const Fields &phrase : value)
      words += (words.empty() ? "" : " || ") + wordOf(name + " of a choice", phrase);
    return words;
  }
  for (const Fields &element : value) {
    if (!element.is_string() && !element.is_number_integer())
      refuse(escaped(name) + ": expected tokens, found " + shownJson(element));
    words += (words.empty() ? "" : " ") + (element.is_string() ? element.get<std::string>() : element.dump());
  }
  return words;
}

} // namespace

std::vector<Document> TranslationRequest::documents() const {
  std::vector<Document> all;
  all.reserve(texts.size());
  for (const std::string &text : texts)
    all.push_back(html ? Document::ofHtml(text) : Document::ofText(text));
  return all;
}

TranslationRequest readLibreTranslate(std::string_view contentType, std::string_view body, int mostAlternatives) {
  const Fields fields = fieldsOf(contentType, body, /*forms=*/true);
  TranslationRequest request = readCommon(fields);
  for (const char *name : {"source", "target"})
    if (!fields.contains(name))
      refuse(std::string("Invalid request: missing ") + name + " parameter");
  const std::string format = stringField(fields, "format");
  if (!format.empty() && format != "text" && format != "html")
    refuse(shownJson(format) + " format is not supported; expected text or html");
  request.html = format == "html";
  request.document = true;
  if (const auto given = fields.find("alternatives"); given != fields.end() && !given->is_null()) {
    const std::optional<Fields> number = given->is_string() ? jsonIn(given->get<std::string>()) : *given;
    if (!number || !number->is_number_integer() || *number < 0)
      refuse("alternatives: expected a whole number from 0 on, found " + shownJson(*given));
    if (*number > mostAlternatives)
      refuse("alternatives: at most " + std::to_string(mostAlternatives) + ", but " + shownJson(*number) +
             " were asked for");
    request.alternatives = number->get<int>();
  }
  return request;
}

TranslationRequest readTranslate(std::string_view contentType, std::string_view body) {
  const Fields fields = fieldsOf(contentType, body, /*forms=*/false);
  TranslationRequest request = readCommon(fields);
  for (const auto &[name, value] : fields.items())
    if (name == "prefix") {
      request.prefixes = stringsOf(value, name);
      if (request.prefixes.size() != request.texts.size())
        refuse("prefix: expected one for each of the " + std::to_string(request.texts.size()) + " texts of q, found " +
               std::to_string(request.prefixes.size()));
    } else if (name == "constraints") {
      if (value.is_null())
        continue;
      const Fields each = request.isList ? value : Fields::array({value});
      if (!each.is_array() || each.size() != request.texts.size())
        refuse("constraints: expected a list for each of the " + std::to_string(request.texts.size()) +
               " texts of q, found " + (each.is_array() ? std::to_string(each.size()) : shownJson(value)));
      for (const Fields &one : each)
        request.constraints.push_back(constraintsOf(one));
    } else if (name == "stream") {
      if (!value.is_boolean())
        refuse("stream: expected true or false, found " + shownJson(value));
      request.stream = value.get<bool>();
    } else if (name == "document") {
      if (!value.is_boolean())
        refuse("document: expected true or false, found " + shownJson(value));
      request.document = value.get<bool>();
    } else if (name == "batch_tokens" || name == "batch_sentences") {
      refuse(name + ": is the server's, which batches requests as they come");
    } else if (name != "q" && name != "source" && name != "target" && name != "api_key" && !value.is_null()) {
      std::string flag = name;
      std::ranges::replace(flag, '_', '-');
      if (takesConstraints(name))
        requireFewConstraints(name, value);
      const bool isListOfLists = value.is_array() && !value.empty() && value.front().is_array();
      const bool isOfExpressions = name == "protect" && value.is_array() && !value.empty(); // which may have blanks
      for (const Fields &one : isListOfLists || isOfExpressions ? value : Fields::array({value}))
        request.options.push_back("--" + flag + "=" + wordOf(name, one));
    }
  for (const auto &[other, given] : {std::pair{"prefix", !request.prefixes.empty()},
                                     {"constraints", !request.constraints.empty()},
                                     {"stream", request.stream}})
    if (request.document && given)
      refuse("document excludes " + std::string(other) + ", since the sentences of a text are translated one by one");
  for (const std::string &text : request.texts)
    if (!request.document && text.find('\n') != std::string::npos)
      refuse("q: a text is one line; give a list with one line each, or document: true");
  for (const std::string &prefix : request.prefixes)
    if (prefix.find('\n') != std::string::npos)
      refuse("prefix: a prefix is the beginning of one line");
  return request;
}

std::string inTermsOfRequests(std::string message) {
  for (size_t at = 0; (at = message.find("--", at)) != std::string::npos;) {
    size_t end = at + 2;
    while (end < message.size() && ((message[end] >= 'a' && message[end] <= 'z') || message[end] == '-'))
      ++end;
    std::string name = end > at + 2 ? message.substr(at + 2, end - at - 2) : "--";
    if (name != "--")
      std::ranges::replace(name, '-', '_');
    message.replace(at, end - at, name);
    at += name.size();
  }
  return message;
}

Direction directionOf(const std::string &name) {
  const size_t dash = name.find('-');
  const auto isCode = [](std::string_view code) {
    return !code.empty() && std::ranges::all_of(code, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
  };
  if (dash == std::string::npos || !isCode(name.substr(0, dash)) || !isCode(name.substr(dash + 1)))
    throw Error("expected a direction such as en-fr or zh_Hant-en, found " + inQuotes(name));
  return {name.substr(0, dash), name.substr(dash + 1)};
}

std::string languageName(const std::string &code) {
  static constexpr std::pair<std::string_view, const char *> names[] = {
      {"ar", "Arabic"},     {"bg", "Bulgarian"},  {"ca", "Catalan"},  {"cs", "Czech"},     {"da", "Danish"},
      {"de", "German"},     {"el", "Greek"},      {"en", "English"},  {"eo", "Esperanto"}, {"es", "Spanish"},
      {"et", "Estonian"},   {"eu", "Basque"},     {"fa", "Persian"},  {"fi", "Finnish"},   {"fr", "French"},
      {"ga", "Irish"},      {"he", "Hebrew"},     {"hi", "Hindi"},    {"hr", "Croatian"},  {"hu", "Hungarian"},
      {"id", "Indonesian"}, {"it", "Italian"},    {"ja", "Japanese"}, {"ko", "Korean"},    {"lt", "Lithuanian"},
      {"lv", "Latvian"},    {"nb", "Norwegian"},  {"nl", "Dutch"},    {"pl", "Polish"},    {"pt", "Portuguese"},
      {"ro", "Romanian"},   {"ru", "Russian"},    {"sk", "Slovak"},   {"sl", "Slovenian"}, {"sq", "Albanian"},
      {"sr", "Serbian"},    {"sv", "Swedish"},    {"th", "Thai"},     {"tr", "Turkish"},   {"uk", "Ukrainian"},
      {"ur", "Urdu"},       {"vi", "Vietnamese"}, {"zh", "Chinese"}};
  for (const auto &[known, name] : names)
    if (code == known)
      return name;
  return code;
}

} // namespace xfc
