// Generates what models/ says about steps from the table of step kinds, and about settings of searches from theirs: in
// schema.json the definitions after "stack" and the properties of "generation", and in README.md the tables between
// comments. The rest of these files is kept.
#include "Import/StepKinds.h"
#include "plan/GenerationSettings.h"
#include "support/Error.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/Json.h"
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

using namespace xfc;
using Json = nlohmann::ordered_json;

namespace {

// The default of an option as JSON: its value in `defaults`.
struct Default {
  const StepOptions &defaults;

  static Json number(double value) {
    return value == std::floor(value) && std::abs(value) < 1e15 ? Json(int64_t(value)) : Json(value);
  }
  Json operator()(const Option::Name &type) const { return type.otherwise; }
  Json operator()(const Option::Integer &type) const { return type.place(defaults); }
  Json operator()(const Option::Choice &type) const { return type.words[type.get(defaults)]; }
  Json operator()(const Option::Number &type) const {
    return type.words ? (*this)(*type.words) : number(type.place(defaults));
  }
  Json operator()(const Option::Flag &type) const { return type.place(defaults); }
  Json operator()(const Option::Flags &type) const { return type.flags.front().second(defaults); }
  Json operator()(const Option::Set &type) const {
    Json words = Json::array();
    for (const auto &[word, place] : type.flags)
      if (place(defaults))
        words.push_back(word);
    return words;
  }
  Json operator()(const Option::Steps &) const { return Json::array(); }
};

Json defaultOf(const GenerationSetting &setting) {
  const Json value = valueOf(setting, Generation());
  return value.is_number_float() ? Default::number(value.get<double>()) : value;
}

Json reference(const std::string &definition) { return {{"$ref", "#/$defs/" + definition}}; }

Json listOf(const Option::NamedFlags &flags) {
  Json words = Json::array();
  for (const auto &[word, place] : flags)
    words.push_back(word);
  return words;
}

// The values of an option as JSON Schema. A number may also be given as a "$name" of params.
struct Schema {
  Json operator()(const Option::Name &) const { return reference("name"); }
  Json operator()(const Option::Integer &type) const {
    return {{"anyOf", {{{"type", "integer"}, {"minimum", type.low}, {"maximum", type.high}}, reference("param")}}};
  }
  Json operator()(const Option::Choice &type) const { return {{"enum", type.words}}; }
  Json operator()(const Option::Number &type) const {
    Json number = {{"type", "number"}}, any = Json::array();
    if (type.low > -maxNumber)
      number["minimum"] = Default::number(type.low);
    if (type.high < maxNumber)
      number[type.open ? "exclusiveMaximum" : "maximum"] = Default::number(type.high);
    if (type.words)
      any.push_back((*this)(*type.words));
    any.push_back(number);
    any.push_back(reference("param"));
    return {{"anyOf", any}};
  }
  Json operator()(const Option::Flag &) const { return {{"type", "boolean"}}; }
  Json operator()(const Option::Flags &type) const {
    Json each = {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
    for (const auto &[word, place] : type.flags)
      each["properties"][word] = {{"type", "boolean"}};
    return {{"anyOf", {{{"type", "boolean"}}, each}}};
  }
  Json operator()(const Option::Set &type) const {
    return {{"type", "array"}, {"uniqueItems", true}, {"items", {{"enum", listOf(type.flags)}}}};
  }
  Json operator()(const Option::Steps &type) const {
    Json list = {{"type", "array"}, {"items", reference("step")}};
    if (type.least > 0)
      list["minItems"] = type.least;
    return list;
  }
};

// The values of an option in a cell of the table.
struct Values {
  static std::string joined(const Json &words, const char *last) {
    std::string text;
    for (size_t i = 0; i < words.size(); ++i)
      text += (i == 0 ? "`" : i + 1 < words.size() ? ", `" : std::string(last) + "`") + words[i].dump() + "`";
    return text;
  }
  static std::string range(double low, double high, bool open) {
    std::string text = low > -maxNumber ? " from " + Default::number(low).dump() : "";
    return text + (high < maxNumber ? (open ? " to below " : " to ") + Default::number(high).dump() : "");
  }
  std::string operator()(const Option::Name &) const { return "a name"; }
  std::string operator()(const Option::Integer &type) const {
    return "a whole number" + range(type.low, type.high == maxExtent ? maxNumber : type.high, false);
  }
  std::string operator()(const Option::Choice &type) const { return joined(type.words, " or "); }
  std::string operator()(const Option::Number &type) const {
    return (type.words ? joined(type.words->words, ", ") + " or " : "") + type.what +
           range(type.low, type.high, type.open);
  }
  std::string operator()(const Option::Flag &) const { return "`true` or `false`"; }
  std::string operator()(const Option::Flags &type) const {
    return "`true`, `false`, or an object with either for " + joined(listOf(type.flags), " and ");
  }
  std::string operator()(const Option::Set &type) const { return "a list of " + joined(listOf(type.flags), " and "); }
  std::string operator()(const Option::Steps &) const { return "a list of steps"; }
};

Json definition(const StepKind &kind) {
  Json required = {"op"}, properties = {{"op", {{"const", kind.op}}}};
  if (!kind.variant.empty()) {
    required.push_back("kind");
    properties["kind"] = {{"const", kind.variant}};
  }
  for (const Option &option : kind.options) {
    if (option.presence == Option::Presence::Required)
      required.push_back(option.name);
    Json property = {{"description", option.meaning}};
    if (option.presence == Option::Presence::Optional)
      property["default"] = std::visit(Default{kind.defaults}, option.type);
    property.update(std::visit(Schema(), option.type));
    properties[option.name] = property;
  }
  Json schema = {{"type", "object"},
                 {"description", kind.meaning},
                 {"additionalProperties", false},
                 {"required", required},
                 {"properties", properties}};
  if (!kind.conditions.empty())
    schema.update(parseOrderedJson(kind.conditions, "the conditions of a step"));
  return schema;
}

// The definitions of all kinds, and of the groups of kinds that the places of a model allow.
Json definitions() {
  Json kinds = Json::object(), rows = Json::array(), stacks = Json::array(), first = Json::array();
  for (const StepKind &kind : stepKinds()) {
    const std::string name = kind.variant.empty() ? kind.op : kind.variant + "_" + kind.op;
    kinds[name] = definition(kind);
    (kind.place == StepKind::Place::Anywhere ? rows
     : kind.place == StepKind::Place::Stacks ? stacks
                                             : first)
        .push_back(reference(name));
  }
  stacks.push_back(reference("row_step"));
  first.push_back(reference("step"));
  Json all = {{"first_step", {{"anyOf", first}}}, {"step", {{"anyOf", stacks}}}, {"row_step", {{"anyOf", rows}}}};
  all.update(kinds);
  return all;
}

// A setting of "generation" as JSON Schema.
Json definition(const GenerationSetting &setting) {
  const Json token = {{"type", "integer"}, {"minimum", 0}};
  struct {
    const Json &token;
    Json operator()(const GenerationSetting::Whole &range) const {
      return {{"type", "integer"}, {"minimum", range.least}, {"maximum", range.most}};
    }
    Json operator()(const GenerationSetting::Number &range) const {
      return {{"type", "number"},
              {range.above ? "exclusiveMinimum" : "minimum", Default::number(range.least)},
              {"maximum", Default::number(range.most)}};
    }
    Json operator()(const GenerationSetting::Choice &choice) const {
      Json words = Json::array();
      for (Generation generation; const char *const &word : choice.words) {
        choice.set(generation, static_cast<size_t>(&word - choice.words.data()));
        words.push_back(Json(valueOf({"", choice, ""}, generation)));
      }
      return {{"enum", words}};
    }
    Json operator()(const GenerationSetting::Tokens &) const { return {{"type", "array"}, {"items", token}}; }
    Json operator()(const GenerationSetting::Sequences &) const {
      return {{"type", "array"}, {"items", {{"type", "array"}, {"minItems", 1}, {"items", token}}}};
    }
    Json operator()(const GenerationSetting::Constraints &) const {
      const Json phrase = {{"type", "array"}, {"minItems", 1}, {"items", token}};
      return {{"type", "array"}, {"items", {{"type", "array"}, {"minItems", 1}, {"items", phrase}}}};
    }
  } schema{token};
  Json property = std::visit(schema, setting.value);
  property["default"] = defaultOf(setting);
  property["description"] = setting.meaning;
  return property;
}

// Formats JSON. A value that fits into a line of 120 columns, of which `before` are taken, is on one line.
std::string pretty(const Json &value, size_t indent, size_t before) {
  if (!value.is_structured() || value.empty())
    return value.dump();
  const bool object = value.is_object();
  for (bool inOneLine : {true, false}) {
    const std::string separator = inOneLine ? "" : "\n" + std::string(indent + 2, ' ');
    std::string text;
    for (const auto &item : value.items()) {
      std::string key = object ? Json(item.key()).dump() + ": " : "";
      text += (text.empty() ? ""
               : inOneLine  ? ", "
                            : ",") +
              separator + key + pretty(item.value(), indent + 2, inOneLine ? 0 : indent + 2 + key.size());
    }
    text += inOneLine ? "" : "\n" + std::string(indent, ' ');
    text = (object ? "{" : "[") + text + (object ? "}" : "]");
    if (!inOneLine || (before + text.size() < 120 && text.find('\n') == std::string::npos))
      return text;
  }
  return "";
}

std::string currentSchema(const std::string &text) {
  Json schema = parseOrderedJson(text, "schema.json"), kept = Json::object();
  for (const auto &item : schema.at("$defs").items()) {
    kept[item.key()] = item.value();
    if (item.key() == "stack")
      break;
  }
  kept.update(definitions());
  schema["$defs"] = kept;
  Json &settings = schema.at("properties").at("generation").at("properties");
  settings = Json::object();
  for (const GenerationSetting &setting : generationSettings())
    settings[setting.name] = definition(setting);
  return pretty(schema, 0, 0) + "\n";
}

std::string table() {
  std::string text = "| step | option | value | default | meaning |\n|---|---|---|---|---|\n";
  for (const StepKind &kind : stepKinds()) {
    text += "| **`" + kind.op + "`** | " + (kind.variant.empty() ? "" : "`kind`") + " | " +
            (kind.variant.empty() ? "" : "`\"" + kind.variant + "\"`") + " | | " + kind.meaning +
            (kind.place == StepKind::Place::StartOfInput ? ". Only the first step of `input`"
             : kind.place == StepKind::Place::Stacks     ? ". Not in the head"
                                                         : "") +
            " |\n";
    for (const Option &option : kind.options) {
      using enum Option::Presence;
      std::string otherwise = option.presence == Required ? "required"
                              : option.presence == Depends
                                  ? ""
                                  : "`" + std::visit(Default{kind.defaults}, option.type).dump() + "`";
      text += "| | `" + option.name + "` | " + std::visit(Values(), option.type) + " | " + otherwise + " | " +
              option.meaning + " |\n";
    }
  }
  return text;
}

std::string tableOfSettings() {
  std::string text = "| key | value | default | meaning | Hugging Face | CTranslate2 | Marian |\n"
                     "|---|---|---|---|---|---|---|\n";
  const auto code = [](const char *name) { return name ? "`" + std::string(name) + "`" : std::string(); };
  for (const GenerationSetting &setting : generationSettings()) {
    const auto &[huggingFace, ctranslate2, marian] = setting.elsewhere;
    text += "| " + code(setting.name) + " | " + expectedOf(setting) + " | `" + defaultOf(setting).dump() + "` | " +
            (setting.subject == GenerationSetting::Subject::Sampling ? "with `--sample`: " : "") + setting.meaning +
            " | " + code(huggingFace) + " | " + code(ctranslate2) + " | " + code(marian) + " |\n";
  }
  return text;
}

// Replaces the table of steps, or of whatever is named.
void replaceTable(std::string &text, const std::string &file, const std::string &of, const std::string &table) {
  const std::string begin = "<!-- The table of " + of + ": xfc-models writes it. -->\n",
                    end = "<!-- End of the table. -->";
  const size_t mark = text.find(begin), from = mark + begin.size(), to = text.find(end, mark);
  if (mark == std::string::npos || to == std::string::npos)
    throw Error(file + ": expected the lines \"" + begin.substr(0, begin.size() - 1) + "\" and \"" + end + "\"");
  text.replace(from, to - from, table);
}

std::string currentReadme(std::string text, const std::string &file) {
  replaceTable(text, file, "steps", table());
  replaceTable(text, file, "settings", tableOfSettings());
  return text;
}

} // namespace

int main(int count, char **arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: xfc-models FOLDER\nBrings FOLDER/schema.json and FOLDER/README.md up to date.\n");
    return 2;
  }
  try {
    const std::string schema = std::string(arguments[1]) + "/schema.json",
                      readme = std::string(arguments[1]) + "/README.md";
    writeFile(schema, currentSchema(readFile(schema)));
    writeFile(readme, currentReadme(readFile(readme), readme));
  } catch (const std::exception &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
