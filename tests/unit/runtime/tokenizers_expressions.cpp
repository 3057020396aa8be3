// Regular expressions: what they match, which they refuse, and that none takes long.
#include "support/Error.h"
#include "tokenizers/RegularExpression.h"
#include <gtest/gtest.h>

using namespace xfc;

namespace {

// The matches, with a bar between two of them.
std::string found(const std::string &expression, const std::string &line) {
  std::string result;
  for (const auto &[begin, end] : RegularExpression(expression).matches(line))
    result += (result.empty() ? "" : "|") + line.substr(begin, end - begin);
  return result;
}

std::string problem(const std::string &expression) {
  try {
    const RegularExpression read(expression);
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

} // namespace

// As Python's `re` finds them, with its alternatives in the order of their length.
TEST(RegularExpressions, WhatTheyMatch) {
  constexpr const char *cases[][3] = {
      {"", "abc", ""},
      {"abc", "abcabc ab", "abc|abc"},
      {"a|ab|abc", "abcd ab", "abc|ab"},
      {"a*", "baac", "aa"},
      {"(?:a|b)+c?", "abacab", "abac|ab"},
      {"a{2}", "aaaaa", "aa|aa"},
      {"a{2,}", "a aaaa", "aaaa"},
      {"a{1,2}b{0,1}", "aaab", "aa|ab"},
      {"a{,2}", "a{,2}", "a{,2}"},
      {"{name}", "{name} {x}", "{name}"},
      {R"(\{[^{}]*\})", "a {b c} {} {d {e}", "{b c}|{}|{e}"},
      {R"(%[sd])", "%s of %d%%", "%s|%d"},
      {R"(</?\w+[^<>]*>)", "a <b x='1'>c</b> < d >", "<b x='1'>|</b>"},
      {R"(https?://[^\s<>"]+)", "see http://a.b/c?d=e, or https://\xC3\xA9.org",
       "http://a.b/c?d=e,|https://\xC3\xA9.org"},
      {R"(\bab\b)", "ab abc cab (ab)", "ab|ab"},
      {R"(\b\w)", "ab \xC3\xA9t\xC3\xA9", "a|\xC3\xA9"},
      {"^a|a$", "aaa", "a|a"},
      {"[]a-]+", "b]-ab", "]-a"},
      {"[^]a]", "]ab", "b"},
      {R"([\w.]+@[\w.]+)", "to a.b@c.d now", "a.b@c.d"},
      {R"(\D+)", "12ab3", "ab"},
      {"\xC3\xA9+", "\xC3\xA9\xC3\xA9\xC3\xA8", "\xC3\xA9\xC3\xA9"},
      {".", "\xE2\x82\xAC\xC3\xA9", "\xE2\x82\xAC|\xC3\xA9"},
      {"(a*)*b|a", "aac", "a|a"},
      {"(x|)y", "xyy", "xy|y"},
      {R"(\.\*\\)", R"(a.*\b)", R"(.*\)"},
  };
  for (const auto &[expression, line, expected] : cases)
    EXPECT_EQ(found(expression, line), expected) << expression << " in " << line;
}

TEST(RegularExpressions, WhatIsRefused) {
  constexpr const char *cases[][2] = {
      {"(a", "a group that '(' begins does not end"},
      {"a)", "there is no '(' before this ')'"},
      {"[a", "a class that '[' begins does not end"},
      {"*a", "there is nothing before this that could be repeated"},
      {"a+?", "a repetition follows a repetition"},
      {"^*", "this repeats a place"},
      {"(?=a)", "after '(?', only ':' is known"},
      {R"((a)\1)", "no digit is known"},
      {R"(\p)", "the letters d, w, s, D, W, S, t and b are known"},
      {"a\\", "the expression ends after '\\'"},
      {"[b-a]", "a range from one character to a later one"},
      {"a{3,2}", "the smaller one first"},
      {"a{2000}", "a number of times up to 1000"},
      {"(a{1000}){1000}", "takes more than 2000 states"},
      {"(((){1000}){1000}){1000}", "takes more than 2000 states"},
  };
  for (const auto &[expression, expected] : cases)
    EXPECT_NE(problem(expression).find(expected), std::string::npos) << expression << ": " << problem(expression);
  EXPECT_NE(problem(std::string(60, '(')).find("more than 50 groups"), std::string::npos);
  EXPECT_NE(problem(std::string(1001, 'a')).find("longer than 1000 characters"), std::string::npos);
}

// What takes a backtracking matcher exponential time is found at once; what takes the square of the line is refused.
TEST(RegularExpressions, NoneTakesLong) {
  EXPECT_EQ(found("(a|a)*(a|a)*b", std::string(5000, 'a')), "");
  EXPECT_EQ(found("(a?){100}a{100}", std::string(200, 'a')), std::string(200, 'a'));
  EXPECT_THROW(found("a|a.*b", std::string(100000, 'a')), Error);
}
