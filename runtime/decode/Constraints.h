// The constraints of a sentence, which say what its translation must contain, and how far a hypothesis meets them.
// Knows nothing of probabilities; BeamSearch.h states what the search makes of it.
//
// A constraint is a choice of one or more phrases, of which one is enough; a phrase is a sequence of tokens. A sequence
// of tokens meets the constraints of a sentence if there is a phrase of each constraint in it, and no two of these
// phrases share a token. So a constraint that is given twice takes two phrases, "a b" and "b c" take four tokens, and
// "a b" does not count for "a" too. The order of the constraints does not matter, nor what stands between the phrases.
//
// There may be several ways of sharing out the tokens of a hypothesis among constraints, and which of them is the right
// one may show only later. A state is the set of these ways. A way tells how often each constraint is still to be met,
// and where in the trie of all phrases (Hu et al. 2019) the phrase in progress is: at the root if there is none. When a
// token comes, each way goes on
//  - if it is at the root, at the root: the token belongs to no phrase;
//  - at the child of its place to which this token leads, if a constraint that is still to be met has a longer phrase
//    there;
//  - for each constraint that is still to be met and has a phrase that ends at this child, at the root, with this
//    constraint met once more.
// A way that cannot go on is forgotten; that at the root from which it began is still there. So a phrase that begins
// again within itself is found wherever it begins: "a a b" in "a a a b". A way is also forgotten if another one is as
// far: one that has met no constraint less often and is at the same place, or one at the root that has met what the
// former will have met when its phrase ends.
//
// So that the work of a step is bounded, the ways to which a token leads are taken in the order of the tokens that they
// need, the fewest first; of those that need as many, in the order of the ways from which they come, and of the rules
// above. Each stays, unless one that stays is as far, until there are `mostWays` at the root, and as many elsewhere. Of
// the constraints that a way may meet with a token, only those `mostWays` are tried that save the most tokens, and of
// those that save as many, the first. Only where phrases overlap one another many times, or many end alike, are there
// more; a hypothesis may then count for less than it is, and never for more.
#pragma once

#include "plan/Generation.h"
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xfc {

class Constraints {
public:
  struct Way {
    int32_t place = 0; // a node of the trie; 0: the root
    // How often each constraint is still to be met; those that have the same phrases count as one.
    std::vector<int32_t> left;
    bool operator==(const Way &) const = default;
  };
  using State = std::vector<Way>;
  static constexpr size_t mostWays = 16;
  static constexpr int64_t never = int64_t(1) << 40; // and what is larger: no number of tokens is enough

  // The settings forbid some phrases in themselves: those with a token of `suppress` or one of `badSequences` in them,
  // or with the same noRepeatNgram tokens twice. What is forbidden counts only where tokens are forced.
  Constraints(std::span<const Constraint> constraints, const Generation &generation);

  size_t count() const { return given; } // of the constraints that the constructor was given

  State start() const;
  State advance(const State &state, int32_t token) const;
  State advance(State state, std::span<const int32_t> tokens) const;
  // The fewest tokens that have to follow so that all constraints are met; 0: they are.
  int64_t needed(const State &state) const;
  // The tokens with which a phrase of a constraint that is still to be met begins or goes on, in ascending order, each
  // with what is needed after it: needed(advance(state, token)), which this knows without a state for each. All other
  // tokens lead to the same state: that of advance(state, none).
  using Wanted = std::pair<int32_t, int64_t>;
  void wanted(const State &state, std::vector<Wanted> &tokens) const;
  static constexpr int32_t none = -1;
  // If `needed` is never: a constraint, by its number in what the constructor was given, of which all phrases are
  // forbidden, and that is still to be met.
  size_t impossible(const State &state) const;

private:
  // A constraint that has a phrase that ends below a node.
  struct Goal {
    int32_t constraint;
    int64_t distance; // tokens from the node to the nearest end of such a phrase
  };
  struct Node {
    std::vector<int32_t> ends; // the constraints that have a phrase that ends here, those that save the most first
    std::vector<Goal> below;
  };
  int32_t child(int32_t place, int32_t token) const; // 0: there is none
  bool goesOn(int32_t place, const std::vector<int32_t> &left) const;
  // The fewest tokens for all that a way has left, without its phrase in progress.
  int64_t neededOfAll(const Way &way) const;
  // The same with the phrase in progress at this place, if it is `all` without it.
  int64_t neededAt(int32_t place, const std::vector<int32_t> &left, int64_t all) const;
  // Whether one way leads to whatever another one leads to: they are at the same place, or the first one is at the root
  // and has met all that the second one will have met when its phrase ends.
  bool isAsFar(const Way &way, const Way &other) const;
  void addPhrase(const std::vector<int32_t> &phrase, int32_t constraint, const Generation &generation);

  size_t given;
  // The constraints that differ, each with its first number among the given ones.
  std::vector<size_t> numbers;
  std::vector<int32_t> times;    // how often each of these was given
  std::vector<int64_t> shortest; // the lengths of their shortest phrases that are not forbidden
  std::vector<Node> nodes;
  std::map<std::pair<int32_t, int32_t>, int32_t> children; // by node and token
};

// The phrases of each constraint in a line of `translate --constraints`: a tab stands between constraints, and ||
// between the phrases of one, with a blank on either side, which belongs to no phrase. An empty line has no
// constraints; otherwise phrases may be empty, which those who read them refuse.
using ConstraintText = std::vector<std::string>;
std::vector<ConstraintText> constraintsOfLine(std::string_view line);
// Those in JSON: a list, each element of which is a phrase or a list of phrases, as in ["a", ["b", "c d"]]. Phrases are
// parts of one line, and may be empty. Throws Error if it is anything else.
std::vector<ConstraintText> constraintsOfJson(const nlohmann::json &value);

} // namespace xfc
