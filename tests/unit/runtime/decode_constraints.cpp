// Compares the states of constraints with their definition, and tests what is forbidden, the limits, and the lines that
// constraints are read from.
#include "allocations.h"
#include "constraints.h"
#include <gtest/gtest.h>
#include <random>

using namespace xfc;

namespace {

using Phrase = std::vector<int32_t>;

int64_t neededOf(const std::vector<Constraint> &given, const Phrase &ids, const Generation &generation = {}) {
  const Constraints constraints(given, generation);
  return constraints.needed(constraints.advance(constraints.start(), ids));
}

// Only the tokens; what they need is compared where it is not the matter.
Phrase wantedIn(const Constraints &constraints, const Constraints::State &state) {
  std::vector<Constraints::Wanted> wanted;
  constraints.wanted(state, wanted);
  Phrase tokens;
  for (const auto &[token, needed] : wanted) {
    EXPECT_EQ(needed, constraints.needed(constraints.advance(state, token)));
    tokens.push_back(token);
  }
  return tokens;
}

Phrase wantedOf(const std::vector<Constraint> &given, const Phrase &ids) {
  const Constraints constraints(given, {});
  return wantedIn(constraints, constraints.advance(constraints.start(), ids));
}

std::vector<Constraint> randomConstraints(std::mt19937 &random, uint32_t tokens, uint32_t most) {
  std::vector<Constraint> constraints(1 + random() % most);
  for (Constraint &constraint : constraints)
    for (size_t phrases = 1 + random() % 4 / 2; phrases > 0; --phrases) {
      Phrase &phrase = constraint.emplace_back(1 + random() % 3);
      for (int32_t &token : phrase)
        token = static_cast<int32_t>(4 + random() % tokens);
    }
  return constraints;
}

} // namespace

TEST(Constraints, APhraseIsFoundWhereverItBegins) {
  const std::vector<Constraint> phrase = {{{4, 4, 5}}};
  EXPECT_EQ(neededOf(phrase, {}), 3);
  EXPECT_EQ(neededOf(phrase, {4}), 2);
  EXPECT_EQ(neededOf(phrase, {4, 4}), 1);
  EXPECT_EQ(neededOf(phrase, {4, 4, 4}), 1) << "it may have begun at the second token";
  EXPECT_EQ(neededOf(phrase, {4, 4, 4, 5}), 0);
  EXPECT_EQ(neededOf(phrase, {4, 5}), 3) << "given up";
  EXPECT_EQ(neededOf(phrase, {4, 5, 4, 4, 5, 4}), 0) << "what comes later does not matter";
  const std::vector<Constraint> itself = {{{4, 5, 4, 6}}};
  EXPECT_EQ(neededOf(itself, {4, 5, 4, 5}), 2);
  EXPECT_EQ(neededOf(itself, {4, 5, 4, 5, 4, 6}), 0);
  EXPECT_EQ(wantedOf(itself, {4, 5, 4}), (Phrase{4, 5, 6}));
  EXPECT_EQ(wantedOf(itself, {4, 5, 4, 6}), Phrase());
}

TEST(Constraints, PhrasesShareNoToken) {
  const std::vector<Constraint> overlapping = {{{4, 5}}, {{5, 6}}};
  EXPECT_EQ(neededOf(overlapping, {4, 5, 6}), 2) << "one of the two is met, whichever";
  EXPECT_EQ(neededOf(overlapping, {4, 5, 6, 4, 5}), 0);
  EXPECT_EQ(neededOf(overlapping, {4, 5, 6, 5, 6}), 0);
  const std::vector<Constraint> beginnings = {{{4}}, {{4, 5}}};
  EXPECT_EQ(neededOf(beginnings, {4}), 2);
  EXPECT_EQ(neededOf(beginnings, {4, 5}), 1);
  EXPECT_EQ(neededOf(beginnings, {4, 5, 6, 4}), 0);
  EXPECT_EQ(neededOf(beginnings, {4, 4, 5}), 0);
  EXPECT_EQ(neededOf(beginnings, {4, 4}), 1);
  const std::vector<Constraint> twice = {{{4, 4}}, {{4, 4}}};
  EXPECT_EQ(neededOf(twice, {}), 4);
  EXPECT_EQ(neededOf(twice, {4, 4, 4}), 1);
  EXPECT_EQ(neededOf(twice, {4, 4, 5, 4, 4}), 0);
  EXPECT_EQ(wantedOf(twice, {4, 4, 5, 4, 4}), Phrase());
}

TEST(Constraints, OneOfSeveralPhrasesIsEnough) {
  const std::vector<Constraint> choice = {{{4, 5, 6}, {7}, {4, 8}}};
  EXPECT_EQ(neededOf(choice, {}), 1);
  EXPECT_EQ(neededOf(choice, {4}), 1);
  EXPECT_EQ(neededOf(choice, {4, 5}), 1);
  for (const Phrase &ids : {Phrase{7}, {4, 8}, {4, 5, 6}})
    EXPECT_EQ(neededOf(choice, ids), 0);
  EXPECT_EQ(wantedOf(choice, {}), (Phrase{4, 7}));
  EXPECT_EQ(wantedOf(choice, {4}), (Phrase{4, 5, 7, 8}));
  // Which constraint a phrase counts for stays open until it is known.
  const std::vector<Constraint> shared = {{{4}, {5}}, {{4}, {6}}};
  EXPECT_EQ(neededOf(shared, {4, 5}), 0);
  EXPECT_EQ(neededOf(shared, {4, 6}), 0);
  EXPECT_EQ(neededOf(shared, {4, 4}), 0);
  EXPECT_EQ(neededOf(shared, {5, 5}), 1);
}

TEST(Constraints, AreWhatTheirDefinitionSays) {
  std::mt19937 random(3);
  constexpr int64_t most = 5;
  const Phrase tokens = {4, 5, 6};
  int met = 0, several = 0;
  for (int round = 0; round < 400; ++round) {
    const std::vector<Constraint> given = randomConstraints(random, 3, 3);
    Generation generation;
    if (round % 4 == 0)
      generation.suppress = {static_cast<int32_t>(4 + random() % 3)};
    const Constraints constraints(given, generation);
    Constraints::State state = constraints.start();
    Phrase ids;
    for (int length = 0; length <= 7; ++length) {
      SCOPED_TRACE(testing::Message() << "round " << round << " length " << length);
      EXPECT_EQ(constraints.needed(state) == 0, meets(ids, given));
      EXPECT_EQ(std::min(constraints.needed(state), most + 1),
                neededAfter(ids, given, tokens, most, generation.suppress));
      met += constraints.needed(state) == 0;
      several += std::ranges::count(state, 0, &Constraints::Way::place) > 1;
      const Phrase wanted = wantedIn(constraints, state);
      int64_t least = constraints.needed(constraints.advance(state, Constraints::none));
      for (int32_t token : {3, 4, 5, 6, 7}) {
        const Constraints::State next = constraints.advance(state, token);
        if (std::ranges::find(wanted, token) == wanted.end()) {
          EXPECT_EQ(next, constraints.advance(state, Constraints::none));
        } else if (std::ranges::find(generation.suppress, token) == generation.suppress.end()) {
          least = std::min(least, constraints.needed(next));
        }
      }
      if (const int64_t now = constraints.needed(state); now > 0 && now < Constraints::never) {
        EXPECT_EQ(least, now - 1) << "one of the wanted tokens brings it nearer";
      }
      ids.push_back(static_cast<int32_t>(4 + random() % 3));
      state = constraints.advance(state, ids.back());
    }
  }
  EXPECT_GT(met, 300);
  EXPECT_GT(several, 30);
}

// Where phrases overlap so often that not all ways are kept, a state may count for less than it is, never for more, and
// can always be completed with as many tokens as it says.
TEST(Constraints, ManyWaysAreLimited) {
  std::mt19937 random(5);
  int limited = 0;
  for (int round = 0; round < 30; ++round) {
    std::vector<Constraint> given;
    for (int i = 0; i < 9; ++i)
      given.push_back(randomConstraints(random, 2, 1).front());
    const Constraints constraints(given, {});
    Constraints::State state = constraints.start();
    Phrase ids;
    for (int length = 0; length < 15; ++length) {
      ids.push_back(static_cast<int32_t>(4 + random() % 2));
      state = constraints.advance(state, ids.back());
      ASSERT_LE(state.size(), 2 * Constraints::mostWays);
      limited += state.size() > Constraints::mostWays;
    }
    for (int64_t needed = constraints.needed(state); needed > 0; needed = constraints.needed(state)) {
      const Phrase wanted = wantedIn(constraints, state);
      const auto nearer = std::ranges::find_if(
          wanted, [&](int32_t token) { return constraints.needed(constraints.advance(state, token)) == needed - 1; });
      ASSERT_NE(nearer, wanted.end());
      ids.push_back(*nearer);
      state = constraints.advance(state, *nearer);
    }
    EXPECT_TRUE(meets(ids, given));
  }
  EXPECT_GT(limited, 10);
}

// Without a limit on what is tried, each step would make 8,192 ways, and compare them all with one another.
TEST(Constraints, TheWorkOfAStepIsBounded) {
  constexpr int32_t count = 512, common = 4, first = 100;
  std::vector<Constraint> given;
  for (int32_t i = 0; i < count; ++i)
    given.push_back({{common}, {common, common, first + i}, {first + i}});
  const Constraints constraints(given, {});
  Constraints::State state = constraints.start();
  std::vector<Constraints::Wanted> wanted;
  for (int32_t i = 0; i < count; ++i) {
    const int64_t before = allocations;
    state = constraints.advance(state, common);
    EXPECT_LT(allocations - before, 1000) << "of these, each way that is tried is one";
    ASSERT_LE(state.size(), 2 * Constraints::mostWays);
    EXPECT_EQ(constraints.needed(state), count - 1 - i) << "the one that needs the fewest stays";
    const int64_t between = allocations;
    constraints.wanted(state, wanted);
    EXPECT_LT(allocations - between, 100) << "no state for each token";
    EXPECT_EQ(wanted.empty(), i + 1 == count);
  }
  // The same comes out each time.
  const Phrase ids = {common, common, first, common, first + 1};
  EXPECT_EQ(constraints.advance(constraints.start(), ids), Constraints(given, {}).advance(constraints.start(), ids));
}

TEST(Constraints, APhraseThatIsGivenTwiceInAChoiceIsOne) {
  const std::vector<Constraint> given = {{{4}}, {{4}, {4}}, {{5}, {4}, {5}}, {{4}, {5}}};
  const Constraints constraints(given, {});
  ASSERT_EQ(constraints.start().size(), 1u);
  EXPECT_EQ(constraints.start().front().left, (std::vector<int32_t>{2, 2})) << "two that differ, each given twice";
  EXPECT_EQ(neededOf(given, {4, 4, 4}), 1);
  EXPECT_EQ(neededOf(given, {4, 4, 5, 5}), 0);
}

TEST(Constraints, WhatIsForbiddenCountsOnlyWhereItIsForced) {
  const std::vector<Constraint> given = {{{5}}, {{4, 5, 6}, {7, 7}}};
  EXPECT_EQ(neededOf(given, {}, {.suppress = {7}}), 4);
  EXPECT_EQ(neededOf(given, {}, {.suppress = {4}}), 3);
  EXPECT_EQ(neededOf(given, {}, {.badSequences = {{5, 6}}}), 3) << "the other phrase is left";
  EXPECT_EQ(neededOf(given, {}, {.badSequences = {{5, 6}}, .noRepeatNgram = 2}), 3);
  EXPECT_GE(neededOf(given, {}, {.badSequences = {{5, 6}}, .noRepeatNgram = 1}), Constraints::never);
  EXPECT_GE(neededOf(given, {}, {.suppress = {6, 7}}), Constraints::never);
  EXPECT_EQ(neededOf(given, {4, 5, 6}, {.suppress = {6, 7}}), 1);
  EXPECT_EQ(neededOf(given, {7}, {.suppress = {4}, .badSequences = {{8, 7}}}), 2);
  EXPECT_EQ(neededOf(given, {4}, {.suppress = {4, 7}}), 3) << "what comes after the forced token is allowed";

  const Generation without{.suppress = {6, 7}};
  const Constraints constraints(given, without);
  EXPECT_EQ(constraints.impossible(constraints.start()), 1u);
  const std::vector<Constraint> several = {{{4}}, {{6}}, {{4}}, {{7}}};
  const Constraints others(several, without);
  EXPECT_EQ(others.impossible(others.advance(others.start(), 6)), 3u);
}

TEST(Constraints, OfALine) {
  using Texts = std::vector<ConstraintText>;
  EXPECT_EQ(constraintsOfLine(""), Texts());
  EXPECT_EQ(constraintsOfLine("a b"), (Texts{{"a b"}}));
  EXPECT_EQ(constraintsOfLine("a b\tc || d e\tf"), (Texts{{"a b"}, {"c", "d e"}, {"f"}}));
  EXPECT_EQ(constraintsOfLine("a||b\t |||"), (Texts{{"a||b"}, {" |||"}})) << "bars within a word separate nothing";
  EXPECT_EQ(constraintsOfLine(" a  ||  b "), (Texts{{" a ", " b "}})) << "one blank belongs to the bars";
  for (const auto &[line, expected] : std::vector<std::pair<const char *, Texts>>{{"a ||", {{"a", ""}}},
                                                                                  {"|| a", {{"", "a"}}},
                                                                                  {"||", {{"", ""}}},
                                                                                  {"a || || b", {{"a", "", "b"}}},
                                                                                  {"\t", {{""}, {""}}},
                                                                                  {"a\t", {{"a"}, {""}}}})
    EXPECT_EQ(constraintsOfLine(line), expected) << line;
}
