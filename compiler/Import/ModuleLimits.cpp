// Bounds what the text of a module costs, before it is parsed.
#include "ModuleLimits.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include <algorithm>
#include <cstdint>

namespace xfc {
namespace {

constexpr uint64_t mostNamed = 4096; // what a name stands for, where a plan has a few names

// Reads the text once, token by token.
class Measure {
public:
  explicit Measure(std::string_view text) : text(text) {}

  std::optional<ExceededLimit> run() {
    while (at < text.size() && !exceeded)
      take();
    return exceeded;
  }

private:
  // What a name stands for: how deep it is nested, and how many names it consists of, if each is written out.
  struct Extent {
    size_t nesting = 0;
    uint64_t names = 1;
  };

  void take() {
    const char c = text[at];
    if (c == '"')
      skipString();
    else if (text.substr(at).starts_with("//"))
      at = std::min(text.find_first_of("\r\n", at), text.size());
    else if (text.substr(at).starts_with("->"))
      at += 2;
    else if (c == '#' || c == '!')
      takeName();
    else if (llvm::isAlpha(c) || c == '_')
      takeWord();
    else
      takeSymbol(c);
  }

  void skipString() {
    for (++at; at < text.size() && text[at] != '"'; ++at)
      if (text[at] == '\\')
        ++at;
    ++at;
  }

  // What follows `at` of such characters.
  std::string_view takeAll(std::string_view punctuation) {
    const size_t begin = at;
    while (at < text.size() && (llvm::isAlnum(text[at]) || punctuation.find(text[at]) != std::string_view::npos))
      ++at;
    return text.substr(begin, at - begin);
  }

  void takeSymbol(char c) {
    constexpr std::string_view opening = "([{<", closing = ")]}>";
    if (opening.find(c) != std::string_view::npos) {
      open += c;
      use({.names = 0}, at);
    } else if (const size_t kind = closing.find(c);
               kind != std::string_view::npos && !open.empty() && open.back() == opening[kind]) {
      open.pop_back();
    }
    ++at;
  }

  // Whatever is named beside a definition is part of it, until the next one, or the module.
  void takeName() {
    const size_t begin = at++;
    const std::string_view name = text.substr(begin, 1 + takeAll("_$.-").size());
    const size_t next = std::min(text.find_first_not_of(" \t\r\n", at), text.size());
    if (open.empty() && text.substr(next).starts_with('=')) {
      end();
      defined = name;
    } else if (const auto known = extents.find(name); known != extents.end()) {
      use(known->second, begin);
    }
  }

  void takeWord() {
    const size_t begin = at;
    const std::string_view word = takeAll("_$.");
    if (word == "affine_set" || (word == "affine_map" && !takeProjection()))
      exceeded = {begin, "a program has no " + std::string(word) + " but those that only name dimensions"};
    else if (word == "module" && open.empty())
      end();
  }

  // <(d0, d1) -> (d1)>: whether a map follows `at` that has no operators.
  bool takeProjection() {
    return takeSign("<") && takeDimensions() && takeSign("->") && takeDimensions() && takeSign(">");
  }
  bool takeDimensions() {
    if (!takeSign("("))
      return false;
    if (takeSign(")"))
      return true;
    do {
      if (takeAll("").empty())
        return false;
    } while (takeSign(","));
    return takeSign(")");
  }
  // Takes a sign, and spaces around it; returns whether it is there.
  bool takeSign(std::string_view sign) {
    const size_t next = std::min(text.find_first_not_of(" \t\r\n", at), text.size());
    const bool there = text.substr(next).starts_with(sign);
    if (there)
      at = std::min(text.find_first_not_of(" \t\r\n", next + sign.size()), text.size());
    return there;
  }

  void use(const Extent &extent, size_t place) {
    current.nesting = std::max(current.nesting, open.size() + extent.nesting);
    current.names += extent.names;
    if (open.size() + extent.nesting > mostModuleNesting)
      exceeded = {place, "nested deeper than " + std::to_string(mostModuleNesting) + " levels"};
    else if (!defined.empty() && current.names > mostNamed)
      exceeded = {place, std::string(defined) + " stands for more than " + std::to_string(mostNamed) + " names"};
  }

  void end() {
    if (!defined.empty())
      extents[defined] = current;
    defined = {};
    current = {};
  }

  std::string_view text;
  size_t at = 0;
  std::string open; // brackets
  std::string_view defined;
  Extent current;
  llvm::StringMap<Extent> extents;
  std::optional<ExceededLimit> exceeded;
};

} // namespace

std::optional<ExceededLimit> exceededLimit(std::string_view text) { return Measure(text).run(); }

} // namespace xfc
