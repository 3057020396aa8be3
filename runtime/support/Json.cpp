// Reads JSON from outside, within limits.
#include "support/Json.h"
#include "support/Error.h"
#include "support/Quoted.h"
#include <algorithm>
#include <cctype>
#include <functional>
#include <set>
#include <vector>

namespace xfc {
namespace {

struct RepeatedKey {}; // thrown while it is not known yet which key it is

// Tracks the parser's path, with one frame for each open object or list, and rejects repeated keys and deep nesting.
// Repeated keys show when an object ends with fewer members than it had keys, so that the keys need not be kept. To
// name one, the text is parsed again by a guard that keeps them.
template <typename Json> class Guard {
public:
  explicit Guard(bool keepsKeys) : keepsKeys(keepsKeys) {}

  bool operator()(int, Json::parse_event_t event, Json &parsed) {
    using Event = Json::parse_event_t;
    switch (event) {
    case Event::object_start:
    case Event::array_start:
      if (frames.size() == mostJsonNesting)
        throw Error(path() + ": nested deeper than " + std::to_string(mostJsonNesting) + " levels");
      frames.push_back({event == Event::array_start, 0, 0, {}, {}});
      break;
    case Event::object_end:
      if (parsed.size() != frames.back().count)
        throw RepeatedKey();
      [[fallthrough]];
    case Event::array_end:
      frames.pop_back();
      advance();
      break;
    case Event::key:
      frames.back().key = parsed.template get_ref<const std::string &>();
      ++frames.back().count;
      if (keepsKeys && !frames.back().keys.insert(frames.back().key).second)
        throw Error(path() + ": given twice in one object; remove one");
      break;
    case Event::value:
      advance();
      break;
    }
    return true;
  }

  std::string path() const {
    std::string text;
    for (const Frame &frame : frames)
      text = frame.list ? extended(text, frame.index) : extended(text, frame.key);
    return text.empty() ? "the file" : text;
  }

private:
  struct Frame {
    bool list;
    size_t index, count; // of elements before; of keys so far
    std::string key;
    std::set<std::string> keys;
  };

  void advance() {
    if (!frames.empty())
      ++frames.back().index;
  }

  bool keepsKeys;
  std::vector<Frame> frames;
};

std::string placeIn(std::string_view text, std::string_view file, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const std::string line = std::to_string(1 + std::count(before.begin(), before.end(), '\n')),
                    column = std::to_string(before.size() - (before.rfind('\n') + 1) + 1);
  return file.empty() ? "line " + line + ", column " + column : std::string(file) + ":" + line + ":" + column;
}

// The place of a syntax error, and what is wrong there.
std::string syntaxError(std::string_view text, std::string_view file, const nlohmann::json::parse_error &error) {
  std::string what = error.what();
  // "[json.exception...] parse error at line 1, column 2: syntax error while parsing value - invalid literal; ..."
  if (size_t detail = what.find(" - "); detail != std::string::npos)
    what.erase(0, detail + 3);
  return placeIn(text, file, error.byte > 0 ? error.byte - 1 : 0) + ": not JSON: " + escaped(what);
}

template <typename Json> Json parsed(std::string_view text, std::string_view file, size_t most) {
  const std::string inFile = file.empty() ? "" : std::string(file) + ": ";
  if (text.size() > most)
    throw Error(inFile + "larger than " + std::to_string(most >> 20) + " MB; JSON of that size is not read");
  // The parser would take a byte of 0 for the end.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw Error(placeIn(text, file, zero) + ": not JSON: a byte of 0");
  for (bool keepsKeys : {false, true}) {
    Guard<Json> guard(keepsKeys);
    try {
      return Json::parse(text, std::ref(guard));
    } catch (const RepeatedKey &) {
      continue;
    } catch (const Error &error) {
      throw Error(inFile + error.what());
    } catch (const nlohmann::json::parse_error &error) {
      throw Error(syntaxError(text, file, error));
    } catch (const nlohmann::json::out_of_range &) {
      throw Error(inFile + guard.path() + ": the number is too large for a double");
    }
  }
  throw Error(inFile + "a key is given twice in one object; remove one");
}

std::string shorten(std::string text) {
  constexpr size_t most = 60;
  if (text.size() > most)
    text.replace(most, std::string::npos, "...");
  return text;
}

} // namespace

nlohmann::json parseJson(std::string_view text, std::string_view file, size_t most) {
  return parsed<nlohmann::json>(text, file, most);
}

nlohmann::ordered_json parseOrderedJson(std::string_view text, std::string_view file, size_t most) {
  return parsed<nlohmann::ordered_json>(text, file, most);
}

std::optional<nlohmann::json> jsonIn(std::string_view text) {
  try {
    return parseJson(text, "");
  } catch (const Error &) {
    return std::nullopt;
  }
}

std::string extended(const std::string &path, const std::string &key) {
  bool plain = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return c < 128 && (std::isalnum(c) || c == '_' || c == '-' || c == '$');
  });
  if (!plain)
    return path + "[" + shownJson(key) + "]";
  return path.empty() ? shorten(key) : path + "." + shorten(key);
}

std::string extended(const std::string &path, size_t index) { return path + "[" + std::to_string(index) + "]"; }

std::string shownJson(const nlohmann::json &value) {
  return shorten(value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace));
}

} // namespace xfc
