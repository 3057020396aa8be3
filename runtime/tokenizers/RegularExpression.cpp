// Regular expressions over the characters of a line.
#include "tokenizers/RegularExpression.h"
#include "support/Error.h"
#include "support/Quoted.h"
#include "tokenizers/Utf8.h"
#include <algorithm>
#include <optional>

namespace xfc {

namespace {

// A set of characters: ranges, and kinds such as \w.
struct CharacterSet {
  std::vector<std::pair<char32_t, char32_t>> ranges = {}; // first and last
  std::vector<char> kinds = {};                           // the letters of \d, \W, ...
  bool negated = false;

  static bool isOfKind(char kind, char32_t character) {
    switch (kind) {
    case 'd':
      return character >= '0' && character <= '9';
    case 'w':
      return isWordCharacter(character);
    case 's':
      return isSpace(character);
    default: // the opposite, in upper case
      return !isOfKind(static_cast<char>(kind - 'A' + 'a'), character);
    }
  }
  bool has(char32_t character) const {
    const bool inRange = std::ranges::any_of(
        ranges, [&](const auto &range) { return character >= range.first && character <= range.second; });
    const auto isOne = [&](char kind) { return isOfKind(kind, character); };
    return (inRange || std::ranges::any_of(kinds, isOne)) != negated;
  }
};

bool isKind(char32_t character) {
  return character < 0x80 && std::string_view("dDwWsS").find(static_cast<char>(character)) != std::string_view::npos;
}

} // namespace

// States are numbers in the automaton; `next` follows a character or a condition, and both follow a fork.
struct RegularExpression::State {
  enum class Kind : uint8_t { Character, Fork, WordBoundary, LineBegin, LineEnd, Match };
  Kind kind;
  CharacterSet set = {}; // of Character
  int32_t next = -1, other = -1;
};

// Reads an expression by recursive descent, and appends the states of each part before those of what precedes it, so
// that it knows where they lead.
class ExpressionParser {
public:
  using State = RegularExpression::State;

  explicit ExpressionParser(std::string_view text) : text(text) {
    for (size_t i = 0; i < text.size();)
      characters.push_back(nextCharacter(text, i));
    if (characters.size() > RegularExpression::mostCharacters)
      throw Error(inQuotes(text, 80) + " is longer than " + std::to_string(RegularExpression::mostCharacters) +
                  " characters");
  }

  // Returns the state where a match begins.
  int32_t parse() {
    const Node all = alternatives();
    if (at < characters.size())
      refuse("there is no '(' before this ')'");
    return build(all, add({State::Kind::Match}));
  }
  std::vector<State> takeStates() { return std::move(states); }

private:
  // A part of the expression.
  struct Node {
    enum class Kind : uint8_t { Sequence, Choice, Repetition, Leaf };
    Kind kind = Kind::Sequence;
    std::vector<Node> parts = {};
    int least = 0, most = 0; // of a repetition; -1: any number
    State leaf = {State::Kind::Match};
  };
  static constexpr int mostDepth = 50, mostTimes = 1000, mostParts = 100'000;

  [[noreturn]] void refuse(const std::string &what) const {
    throw Error("character " + std::to_string(at + 1) + " of " + inQuotes(text, 80) + ": " + what);
  }
  bool more() const { return at < characters.size(); }
  bool take(char32_t character) {
    const bool there = more() && characters[at] == character;
    at += there;
    return there;
  }

  Node alternatives() {
    if (++depth > mostDepth)
      refuse("more than " + std::to_string(mostDepth) + " groups are inside one another");
    Node choice{.kind = Node::Kind::Choice};
    do {
      Node &sequence = choice.parts.emplace_back();
      while (more() && characters[at] != '|' && characters[at] != ')')
        sequence.parts.push_back(repeated());
    } while (take('|'));
    --depth;
    return choice;
  }

  Node repeated() {
    Node part = atom();
    const std::optional<std::pair<int, int>> times = repetition();
    if (!times)
      return part;
    if (part.kind == Node::Kind::Leaf && part.leaf.kind != State::Kind::Character)
      refuse("this repeats a place, not characters");
    if (const size_t before = at; repetition()) {
      at = before;
      refuse("a repetition follows a repetition; of all matches, the longest is found, and there are no others");
    }
    Node all{.kind = Node::Kind::Repetition, .least = times->first, .most = times->second};
    all.parts.push_back(std::move(part));
    return all;
  }

  // The bounds of a repetition, if there is one here.
  std::optional<std::pair<int, int>> repetition() {
    if (take('*'))
      return std::pair{0, -1};
    if (take('+'))
      return std::pair{1, -1};
    if (take('?'))
      return std::pair{0, 1};
    const size_t before = at;
    if (!take('{'))
      return std::nullopt;
    const std::optional<int> least = number();
    std::optional<int> most = least;
    if (take(','))
      most = more() && characters[at] != '}' ? number() : std::optional(-1);
    if (!least || !most || !take('}')) { // a character
      at = before;
      return std::nullopt;
    }
    if (*least > mostTimes || *most > mostTimes || (*most >= 0 && *most < *least))
      refuse("expected a number of times up to " + std::to_string(mostTimes) + ", the smaller one first");
    return std::pair{*least, *most};
  }

  std::optional<int> number() {
    int value = 0;
    const size_t begin = at;
    for (; more() && characters[at] >= '0' && characters[at] <= '9'; ++at)
      value = std::min(value * 10 + static_cast<int>(characters[at] - '0'), mostTimes + 1);
    return at > begin ? std::optional(value) : std::nullopt;
  }

  static Node leafOf(State state) {
    Node leaf{.kind = Node::Kind::Leaf};
    leaf.leaf = std::move(state);
    return leaf;
  }
  static Node characterOf(CharacterSet set) { return leafOf({.kind = State::Kind::Character, .set = std::move(set)}); }

  Node atom() {
    if (const size_t before = at; repetition()) {
      at = before;
      refuse("there is nothing before this that could be repeated");
    }
    const char32_t character = characters[at++];
    switch (character) {
    case '(':
      return group();
    case '[':
      return characterOf(characterClass());
    case '.':
      return characterOf({.negated = true});
    case '^':
      return leafOf({State::Kind::LineBegin});
    case '$':
      return leafOf({State::Kind::LineEnd});
    case '\\':
      if (take('b'))
        return leafOf({State::Kind::WordBoundary});
      return characterOf(escape());
    default:
      return characterOf({.ranges = {{character, character}}});
    }
  }

  Node group() {
    if (take('?') && !take(':'))
      refuse("after '(?', only ':' is known");
    Node inner = alternatives();
    if (!take(')'))
      refuse("a group that '(' begins does not end");
    return inner;
  }

  // What follows a '\'.
  CharacterSet escape() {
    if (!more())
      refuse("the expression ends after '\\'");
    const char32_t character = characters[at];
    if (isKind(character)) {
      ++at;
      return {.kinds = {static_cast<char>(character)}};
    }
    if (isLetter(character) && character != 't')
      refuse("after '\\', the letters d, w, s, D, W, S, t and b are known");
    if (character >= '0' && character <= '9')
      refuse("after '\\', no digit is known: a group cannot be repeated as it was matched");
    ++at;
    const char32_t meant = character == 't' ? '\t' : character;
    return {.ranges = {{meant, meant}}};
  }

  CharacterSet characterClass() {
    CharacterSet set{.negated = take('^')};
    for (bool first = true; first || !take(']'); first = false) {
      if (!more())
        refuse("a class that '[' begins does not end");
      CharacterSet one = member();
      if (one.kinds.empty() && at + 1 < characters.size() && characters[at] == '-' && characters[at + 1] != ']') {
        ++at;
        const CharacterSet last = member();
        if (!last.kinds.empty() || last.ranges.front().first < one.ranges.front().first)
          refuse("expected a range from one character to a later one");
        one.ranges.front().second = last.ranges.front().first;
      }
      set.ranges.insert(set.ranges.end(), one.ranges.begin(), one.ranges.end());
      set.kinds.insert(set.kinds.end(), one.kinds.begin(), one.kinds.end());
    }
    return set;
  }

  CharacterSet member() {
    const char32_t character = characters[at++];
    return character == '\\' ? escape() : CharacterSet{.ranges = {{character, character}}};
  }

  int32_t add(State state) {
    if (states.size() >= RegularExpression::mostStates)
      refuseSize();
    states.push_back(std::move(state));
    return static_cast<int32_t>(states.size()) - 1;
  }

  [[noreturn]] void refuseSize() const {
    throw Error(inQuotes(text, 80) + " repeats too much: it takes more than " +
                std::to_string(RegularExpression::mostStates) + " states");
  }

  // The state where the part begins, if `next` follows it.
  int32_t build(const Node &node, int32_t next) {
    if (++parts > mostParts) // of which many are empty
      refuseSize();
    switch (node.kind) {
    case Node::Kind::Leaf: {
      State state = node.leaf;
      state.next = next;
      return add(std::move(state));
    }
    case Node::Kind::Sequence:
      for (size_t i = node.parts.size(); i > 0; --i)
        next = build(node.parts[i - 1], next);
      return next;
    case Node::Kind::Choice: {
      int32_t first = build(node.parts.back(), next);
      for (size_t i = node.parts.size() - 1; i > 0; --i) {
        const int32_t one = build(node.parts[i - 1], next);
        first = add({.kind = State::Kind::Fork, .next = one, .other = first});
      }
      return first;
    }
    case Node::Kind::Repetition:
      break;
    }
    const Node &part = node.parts.front();
    int32_t first = next;
    if (node.most < 0) {
      const int32_t loop = add({.kind = State::Kind::Fork, .other = next});
      const int32_t body = build(part, loop);
      states[static_cast<size_t>(loop)].next = body;
      first = loop;
    }
    for (int i = node.least; i < node.most; ++i) {
      const int32_t one = build(part, first);
      first = add({.kind = State::Kind::Fork, .next = one, .other = next});
    }
    for (int i = 0; i < node.least; ++i)
      first = build(part, first);
    return first;
  }

  std::string_view text;
  std::vector<char32_t> characters;
  size_t at = 0;
  int depth = 0, parts = 0;
  std::vector<State> states;
};

RegularExpression::RegularExpression(std::string_view text) : written(validUtf8(text)) {
  ExpressionParser parser(written);
  first = parser.parse();
  states = std::make_shared<const std::vector<State>>(parser.takeStates());
}

namespace {

// The states that are reached at a place of the line, each with the earliest beginning of a match that leads there.
struct Reached {
  std::vector<size_t> begins; // by state
  std::vector<int32_t> order; // the states that are reached
  static constexpr size_t nowhere = static_cast<size_t>(-1);

  explicit Reached(size_t count) : begins(count, nowhere) {}
  void clear() {
    for (const int32_t state : order)
      begins[static_cast<size_t>(state)] = nowhere;
    order.clear();
  }
};

} // namespace

std::vector<std::pair<size_t, size_t>> RegularExpression::matches(std::string_view line) const {
  using enum State::Kind;
  std::vector<std::pair<size_t, size_t>> found;
  Reached now(states->size()), later(states->size());
  std::vector<int32_t> open;
  int64_t steps = 0;
  bool wordBefore = false, wordBehind = false; // whether a word's character is on either side of a place
  // Reaches a state at `place`, and all to which it leads without a character.
  const auto reach = [&](Reached &set, int32_t first, size_t begin, size_t place) {
    open.assign(1, first);
    while (!open.empty()) {
      const int32_t state = open.back();
      open.pop_back();
      ++steps;
      size_t &known = set.begins[static_cast<size_t>(state)];
      if (known <= begin)
        continue;
      if (known == Reached::nowhere)
        set.order.push_back(state);
      known = begin;
      const auto &[kind, characters, next, other] = (*states)[static_cast<size_t>(state)];
      const bool holds = kind == Fork || (kind == WordBoundary && wordBefore != wordBehind) ||
                         (kind == LineBegin && place == 0) || (kind == LineEnd && place == line.size());
      if (!holds)
        continue;
      open.push_back(next);
      if (kind == Fork)
        open.push_back(other);
    }
  };
  const auto isWordAt = [&](size_t place) {
    return place < line.size() && isWordCharacter(nextCharacter(line, place));
  };
  for (size_t from = 0; from < line.size();) {
    std::optional<std::pair<size_t, size_t>> best;
    now.clear();
    wordBefore = from > 0 && wordBefore;
    for (size_t place = from;;) {
      wordBehind = isWordAt(place);
      if (!best)
        reach(now, first, place, place);
      if (const size_t begin = now.begins.front();
          begin != Reached::nowhere && begin < place && (!best || begin <= best->first))
        best = {begin, place};
      if (place >= line.size() || now.order.empty())
        break;
      size_t behind = place;
      const char32_t character = nextCharacter(line, behind);
      const bool word = isWordCharacter(character);
      // What the states reach stands behind this character.
      wordBefore = word;
      wordBehind = isWordAt(behind);
      later.clear();
      for (const int32_t state : now.order) {
        const State &one = (*states)[static_cast<size_t>(state)];
        const size_t begin = now.begins[static_cast<size_t>(state)];
        if (one.kind == Character && (!best || begin <= best->first) && one.set.has(character))
          reach(later, one.next, begin, behind);
      }
      std::swap(now, later);
      place = behind;
      if (steps > mostSteps)
        throw Error(inQuotes(written, 80) + " takes too many steps in a line of " + std::to_string(line.size()) +
                    " bytes; give a simpler expression, or shorter lines");
    }
    if (!best)
      break;
    found.push_back(*best);
    from = best->second;
    // The character before the place from which the search goes on.
    size_t last = from - 1;
    while (last > 0 && (static_cast<unsigned char>(line[last]) & 0xC0) == 0x80)
      --last;
    wordBefore = isWordCharacter(nextCharacter(line, last));
  }
  return found;
}

} // namespace xfc
