// Parses the part of YAML that Marian writes. Its files are flat, so this is a tenth of the size of a library, and
// words in vocabularies, which other parsers take for numbers, nulls or comments, are read verbatim.
#include "Yaml.h"
#include "support/Error.h"
#include "support/Quoted.h"
#include <charconv>
#include <cmath>

namespace xfc {
namespace {

void appendUtf8(uint32_t code, std::string &text) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

// Turns lines into entries, one line at a time.
class Lines {
public:
  Lines(const std::string &file, std::vector<Yaml::Entry> &entries) : file(file), entries(entries) {}

  void read(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      ++number;
      readLine(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (explicitKey)
      fail("a '? ' without the ': ' of its value");
  }

private:
  [[noreturn]] void fail(const std::string &what) const {
    throw Error(file + ":" + std::to_string(number) + ": " + what);
  }

  static std::string_view withoutBlanks(std::string_view text) {
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
      text.remove_suffix(1);
    while (!text.empty() && text.front() == ' ')
      text.remove_prefix(1);
    return text;
  }

  void readLine(std::string_view raw) {
    const std::string_view line = withoutBlanks(raw);
    const bool indented = raw.starts_with(' ');
    if (line.empty() || line.front() == '#' || raw.starts_with("---") || raw.starts_with("%YAML"))
      return;
    if (raw.starts_with('\t'))
      fail("a tab before a key; expected spaces");
    if (explicitKey) {
      if (!raw.starts_with(": "))
        fail("expected ': ' and the value of the key after '? '");
      explicitKey = false;
      setValue(line.substr(1));
      return;
    }
    if (raw.starts_with("? ")) {
      std::string_view rest = withoutBlanks(line.substr(1));
      if (rest.empty() || rest.front() == '#' || rest.starts_with("? "))
        fail("a '? ' without its key; expected '? key', and ': value' on the next line");
      begin(scalar(rest, /*key=*/false));
      explicitKey = true;
      return;
    }
    if (line == "-" || line.starts_with("- ")) {
      if (entries.empty() || !open)
        fail("a list item without a key before it");
      entries.back().list = true;
      std::string_view rest = withoutBlanks(line.substr(1));
      entries.back().items.push_back(scalar(rest, false));
      return;
    }
    if (indented) {
      if (!open || entries.back().list)
        fail("is indented; expected a flat map of keys and values");
      setValue(line);
      return;
    }
    std::string_view rest = line;
    if (rest.front() == ':' && (rest.size() == 1 || rest[1] == ' '))
      fail("a ':' without a key before it; expected 'key: value'");
    begin(scalar(rest, /*key=*/true));
    rest = withoutBlanks(rest);
    if (!rest.starts_with(':'))
      fail("expected 'key: value'");
    setValue(rest.substr(1));
  }

  void begin(std::string key) {
    entries.push_back({std::move(key), {}, false, number});
    open = true;
  }

  // Sets the value of the last key. Empty text sets nothing, since the value or a list of items may follow.
  void setValue(std::string_view text) {
    text = withoutBlanks(text);
    if (text.empty() || text.front() == '#')
      return;
    Yaml::Entry &entry = entries.back();
    open = false;
    if (text.front() != '[') {
      entry.items.push_back(scalar(text, false));
      return;
    }
    entry.list = true;
    text = withoutBlanks(text.substr(1));
    while (!text.starts_with(']')) {
      entry.items.push_back(scalar(text, false, /*inList=*/true));
      text = withoutBlanks(text);
      if (text.starts_with(','))
        text = withoutBlanks(text.substr(1));
      else if (!text.starts_with(']'))
        fail("a list without its ']'; expected it on the same line");
    }
    expectEnd(text.substr(1));
  }

  void expectEnd(std::string_view rest) const {
    rest = withoutBlanks(rest);
    if (!rest.empty() && rest.front() != '#')
      fail(inQuotes(rest, 40) + " after the end of a value");
  }

  // Takes one scalar from the front of the text. The scalar is all of the text unless it is a key or in a list.
  std::string scalar(std::string_view &text, bool key, bool inList = false) {
    if (!text.empty() && (text.front() == '"' || text.front() == '\'')) {
      std::string value = text.front() == '"' ? doubleQuoted(text) : singleQuoted(text);
      if (!key && !inList)
        expectEnd(text);
      return value;
    }
    if (!key && !text.empty() && std::string_view("{&*!|>@`%").find(text.front()) != std::string_view::npos)
      fail(inQuotes(text, 40) + " is YAML that Marian does not write; expected a plain value");
    size_t end = text.size();
    if (key) {
      end = text.find(": ");
      if (end == std::string_view::npos)
        end = text.ends_with(':') ? text.size() - 1 : text.size();
    } else {
      end = std::min(end, text.find(" #"));
      if (inList)
        end = std::min(end, text.find_first_of(",]"));
      else if (text.find(": ") < end)
        fail("a map inside another; expected a flat map of keys and values");
    }
    const std::string value(withoutBlanks(text.substr(0, end)));
    // An anchor, an alias or a tag before the key. A token may begin with the same character, but contains no blank.
    if (key && !value.empty() && std::string_view("&*!").find(value.front()) != std::string_view::npos &&
        value.find(' ') != std::string::npos)
      fail(inQuotes(value, 40) + " is YAML that Marian does not write; expected a plain key");
    if (value.empty() && inList)
      fail("an empty list item");
    text.remove_prefix(end);
    return value;
  }

  // Inside single quotes, '' stands for one quote.
  std::string singleQuoted(std::string_view &text) const {
    std::string value;
    for (size_t at = 1; at < text.size(); ++at) {
      if (text[at] == '\'' && !text.substr(at).starts_with("''")) {
        text.remove_prefix(at + 1);
        return value;
      }
      at += text[at] == '\'';
      value += text[at];
    }
    fail("a ' without a closing '");
  }

  std::string doubleQuoted(std::string_view &text) const {
    static const std::unordered_map<char, const char *> escapes = {
        {'a', "\a"},          {'b', "\b"},  {'t', "\t"},       {'n', "\n"},       {'v', "\v"},
        {'f', "\f"},          {'r', "\r"},  {'e', "\x1b"},     {' ', " "},        {'"', "\""},
        {'/', "/"},           {'\\', "\\"}, {'N', "\xC2\x85"}, {'_', "\xC2\xA0"}, {'L', "\xE2\x80\xA8"},
        {'P', "\xE2\x80\xA9"}};
    std::string value;
    for (size_t at = 1; at < text.size(); ++at) {
      if (text[at] == '"') {
        text.remove_prefix(at + 1);
        return value;
      }
      if (text[at] != '\\') {
        value += text[at];
        continue;
      }
      if (++at == text.size())
        break;
      const char kind = text[at];
      const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
      if (digits > 0) {
        uint32_t code = 0;
        const char *first = text.data() + at + 1, *last = first + std::min(digits, text.size() - at - 1);
        const auto [end, error] = std::from_chars(first, last, code, 16);
        if (error != std::errc() || end != first + digits || code > 0x10FFFF)
          fail(std::string("expected ") + std::to_string(digits) + " hexadecimal digits after \\" + kind);
        appendUtf8(code, value);
        at += digits;
      } else if (kind == '0') {
        value += '\0';
      } else if (auto found = escapes.find(kind); found != escapes.end()) {
        value += found->second;
      } else {
        fail(std::string("\\") + kind + " is not a YAML escape");
      }
    }
    fail("a \" without a closing \"");
  }

  const std::string &file;
  std::vector<Yaml::Entry> &entries;
  int64_t number = 0;
  bool open = false;        // whether the last key still has no value
  bool explicitKey = false; // whether it was written after '? '
};

} // namespace

Yaml::Yaml(std::string_view text, std::string name) : file(std::move(name)) {
  Lines(file, list).read(text);
  for (size_t i = 0; i < list.size(); ++i)
    if (!byKey.emplace(list[i].key, i).second)
      throw Error(file + ":" + std::to_string(list[i].line) + ": " + inQuotes(list[i].key) + " is already on line " +
                  std::to_string(list[byKey.at(list[i].key)].line) + "; expected each key once");
}

const Yaml::Entry *Yaml::find(const std::string &key) const {
  used.insert(key);
  auto found = byKey.find(key);
  return found == byKey.end() ? nullptr : &list[found->second];
}

void Yaml::fail(const std::string &key, const std::string &what) const {
  const Entry *entry = find(key);
  throw Error(file + (entry ? ":" + std::to_string(entry->line) : "") + ": " + escaped(key) + ": " + what);
}

std::string Yaml::string(const std::string &key, const std::string &otherwise) const {
  const Entry *entry = find(key);
  if (!entry)
    return otherwise;
  if (entry->list)
    fail(key, "expected one value, found a list of " + std::to_string(entry->items.size()));
  return entry->items.empty() ? "" : entry->items.front();
}

bool Yaml::boolean(const std::string &key, bool otherwise) const {
  const std::string text = string(key, otherwise ? "true" : "false");
  if (text != "true" && text != "false")
    fail(key, "expected true or false, found " + inQuotes(text));
  return text == "true";
}

int64_t Yaml::asInteger(const std::string &key, const std::string &text, int64_t low, int64_t high) const {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    fail(key, "expected a whole number from " + std::to_string(low) + " to " + std::to_string(high) + ", found " +
                  inQuotes(text));
  return value;
}

int64_t Yaml::integer(const std::string &key, int64_t low, int64_t high, int64_t otherwise) const {
  return has(key) ? asInteger(key, string(key, ""), low, high) : otherwise;
}

double Yaml::number(const std::string &key, double low, double high, double otherwise) const {
  if (!has(key))
    return otherwise;
  const std::string text = string(key, "");
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high))
    fail(key,
         "expected a number from " + std::to_string(low) + " to " + std::to_string(high) + ", found " + inQuotes(text));
  return value;
}

std::vector<std::string> Yaml::strings(const std::string &key) const {
  const Entry *entry = find(key);
  return entry ? entry->items : std::vector<std::string>();
}

std::vector<int64_t> Yaml::integers(const std::string &key, int64_t low, int64_t high) const {
  std::vector<int64_t> values;
  for (const std::string &text : strings(key))
    values.push_back(asInteger(key, text, low, high));
  return values;
}

void Yaml::tellUnknown(const std::set<std::string> &harmless, const NeutralValues &neutral,
                       std::vector<std::string> &notes) const {
  for (const Entry &entry : list) {
    const std::string value = entry.items.empty() ? "" : entry.items.front();
    const bool hasValue = entry.items.size() > 1 || !(value.empty() || value == "~" || value == "null");
    const auto without = neutral.find(entry.key);
    if (!hasValue || used.contains(entry.key) || harmless.contains(entry.key) ||
        (without != neutral.end() && entry.items.size() == 1 && without->second.contains(value)))
      continue;
    notes.push_back(file + ":" + std::to_string(entry.line) + ": " + escaped(entry.key) + ": " +
                    (entry.list ? "a list of " + std::to_string(entry.items.size()) : escaped(value)) +
                    " is not known here and is ignored");
  }
}

} // namespace xfc
