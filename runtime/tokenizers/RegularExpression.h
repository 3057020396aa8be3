// Regular expressions over the characters of a line. A search visits each character at most once for each state of the
// automaton and each match (Thompson 1968), so that no expression takes exponential time; of the matches that begin
// first, it finds the longest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xfc {

// Known are characters, '.', classes as in [^a-z\d], \d \w \s and their opposites \D \W \S, \t, \b, ^, $, (...),
// (?:...), |, and the repetitions * + ? {n} {n,} {n,m}. A '\' takes the meaning from the punctuation mark that follows,
// and a '{' that begins no repetition is a character.
class RegularExpression {
public:
  // Throws an Error that says what is wrong, and where.
  explicit RegularExpression(std::string_view text);

  // The matches in a line of valid UTF-8, from left to right: where they begin and end. None is empty, and none
  // overlaps another. Throws Error if it takes more than `mostSteps` to find them.
  std::vector<std::pair<size_t, size_t>> matches(std::string_view line) const;
  const std::string &text() const { return written; }

  static constexpr size_t mostCharacters = 1000;
  static constexpr size_t mostStates = 2000;       // of the automaton: what a repetition repeats counts each time
  static constexpr int64_t mostSteps = 10'000'000; // a fraction of a second

private:
  friend class ExpressionParser;
  struct State;
  std::string written;
  std::shared_ptr<const std::vector<State>> states; // the first one is that of a match
  int32_t first = 0;                                // where a match begins
};

} // namespace xfc
