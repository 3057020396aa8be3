// The constraints of a sentence, and how far a hypothesis meets them.
#include "decode/Constraints.h"
#include "support/Json.h"
#include <algorithm>
#include <limits>

namespace xfc {

namespace {

// Whether the settings forbid the last token of these to follow the others, wherever they stand.
bool forbidsLast(const Generation &generation, std::span<const int32_t> tokens) {
  if (std::ranges::find(generation.suppress, tokens.back()) != generation.suppress.end())
    return true;
  for (const std::vector<int32_t> &sequence : generation.badSequences)
    if (sequence.size() <= tokens.size() && std::ranges::equal(sequence, tokens.last(sequence.size())))
      return true;
  const auto size = static_cast<size_t>(generation.noRepeatNgram);
  if (size == 0 || tokens.size() < size)
    return false;
  for (size_t begin = 0; begin + size < tokens.size(); ++begin)
    if (std::ranges::equal(tokens.subspan(begin, size), tokens.last(size)))
      return true;
  return false;
}

} // namespace

Constraints::Constraints(std::span<const Constraint> constraints, const Generation &generation)
    : given(constraints.size()), nodes(1) {
  std::map<Constraint, int32_t> known;
  for (size_t number = 0; number < constraints.size(); ++number) {
    Constraint phrases = constraints[number];
    std::ranges::sort(phrases);
    phrases.erase(std::ranges::unique(phrases).begin(), phrases.end());
    const auto [at, isNew] = known.try_emplace(std::move(phrases), static_cast<int32_t>(times.size()));
    const auto &[sorted, constraint] = *at;
    if (!isNew) {
      ++times[static_cast<size_t>(constraint)];
      continue;
    }
    numbers.push_back(number);
    times.push_back(1);
    shortest.push_back(never);
    for (const std::vector<int32_t> &phrase : sorted)
      addPhrase(phrase, constraint, generation);
  }
  for (Node &node : nodes)
    std::ranges::stable_sort(node.ends, std::ranges::greater(),
                             [&](int32_t constraint) { return shortest[static_cast<size_t>(constraint)]; });
}

void Constraints::addPhrase(const std::vector<int32_t> &phrase, int32_t constraint, const Generation &generation) {
  std::vector<int32_t> path = {0};
  size_t allowedFrom = 0; // no token from here on is forbidden
  for (size_t i = 0; i < phrase.size(); ++i) {
    const auto [at, isNew] = children.try_emplace({path.back(), phrase[i]}, static_cast<int32_t>(nodes.size()));
    if (isNew)
      nodes.emplace_back();
    path.push_back(at->second);
    if (forbidsLast(generation, std::span(phrase).first(i + 1)))
      allowedFrom = i + 1;
  }
  for (size_t i = 0; i < phrase.size(); ++i) {
    const int64_t distance = i < allowedFrom ? never : static_cast<int64_t>(phrase.size() - i);
    std::vector<Goal> &below = nodes[static_cast<size_t>(path[i])].below;
    const auto goal = std::ranges::find(below, constraint, &Goal::constraint);
    if (goal == below.end())
      below.push_back({constraint, distance});
    else
      goal->distance = std::min(goal->distance, distance);
  }
  int64_t &least = shortest[static_cast<size_t>(constraint)];
  least = std::min(least, allowedFrom > 0 ? never : static_cast<int64_t>(phrase.size()));
  std::vector<int32_t> &ends = nodes[static_cast<size_t>(path.back())].ends;
  if (std::ranges::find(ends, constraint) == ends.end())
    ends.push_back(constraint);
}

Constraints::State Constraints::start() const { return {{0, times}}; }

int32_t Constraints::child(int32_t place, int32_t token) const {
  const auto found = children.find({place, token});
  return found == children.end() ? 0 : found->second;
}

bool Constraints::goesOn(int32_t place, const std::vector<int32_t> &left) const {
  return std::ranges::any_of(nodes[static_cast<size_t>(place)].below,
                             [&](const Goal &goal) { return left[static_cast<size_t>(goal.constraint)] > 0; });
}

bool Constraints::isAsFar(const Way &way, const Way &other) const {
  if (way.place != other.place && way.place != 0)
    return false;
  for (size_t i = 0; i < way.left.size(); ++i)
    if (way.left[i] > other.left[i])
      return false;
  // The phrase of `other` may end for any of these.
  return way.place == other.place ||
         std::ranges::all_of(nodes[static_cast<size_t>(other.place)].below, [&](const Goal &goal) {
           const auto i = static_cast<size_t>(goal.constraint);
           return other.left[i] == 0 || way.left[i] < other.left[i];
         });
}

Constraints::State Constraints::advance(const State &state, int32_t token) const {
  struct Step {
    int64_t needed; // after it
    const Way *from;
    int32_t place, met; // the constraint that it meets, or none
  };
  std::vector<Step> steps;
  for (const Way &way : state) {
    const int64_t all = neededOfAll(way);
    if (way.place == 0)
      steps.push_back({all, &way, 0, none});
    const int32_t place = child(way.place, token);
    if (place == 0)
      continue;
    if (goesOn(place, way.left))
      steps.push_back({neededAt(place, way.left, all), &way, place, none});
    size_t ending = 0;
    for (int32_t constraint : nodes[static_cast<size_t>(place)].ends)
      if (const auto i = static_cast<size_t>(constraint); way.left[i] > 0 && ending++ < mostWays)
        steps.push_back({all - shortest[i], &way, 0, constraint});
  }
  // A way that is as far as another one needs fewer tokens, unless they are the same: it comes first.
  std::ranges::stable_sort(steps, {}, &Step::needed);
  State next;
  size_t kept[2] = {};
  for (const Step &step : steps) {
    size_t &ofKind = kept[step.place != 0];
    if (ofKind == mostWays)
      continue;
    Way way{step.place, step.from->left};
    if (step.met != none)
      --way.left[static_cast<size_t>(step.met)];
    if (std::ranges::any_of(next, [&](const Way &known) { return isAsFar(known, way); }))
      continue;
    next.push_back(std::move(way));
    ++ofKind;
  }
  return next;
}

Constraints::State Constraints::advance(State state, std::span<const int32_t> tokens) const {
  for (int32_t token : tokens)
    state = advance(state, token);
  return state;
}

int64_t Constraints::neededOfAll(const Way &way) const {
  int64_t all = 0;
  for (size_t i = 0; i < way.left.size(); ++i)
    all += way.left[i] * shortest[i];
  return all;
}

int64_t Constraints::neededAt(int32_t place, const std::vector<int32_t> &left, int64_t all) const {
  int64_t least = all;
  if (place != 0)
    for (const auto &[constraint, distance] : nodes[static_cast<size_t>(place)].below)
      if (const auto i = static_cast<size_t>(constraint); left[i] > 0)
        least = std::min(least, all - shortest[i] + distance);
  return least;
}

int64_t Constraints::needed(const State &state) const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Way &way : state)
    least = std::min(least, neededAt(way.place, way.left, neededOfAll(way)));
  return least;
}

void Constraints::wanted(const State &state, std::vector<Wanted> &tokens) const {
  tokens.clear();
  std::vector<int64_t> all;
  int64_t others = std::numeric_limits<int64_t>::max(); // needed after a token that belongs to no phrase
  for (const Way &way : state) {
    all.push_back(neededOfAll(way));
    if (way.place == 0)
      others = std::min(others, all.back());
  }
  for (size_t first = 0; first < state.size(); ++first) {
    const int32_t place = state[first].place;
    const auto isHere = [&](const Way &way) { return way.place == place; };
    if (std::ranges::any_of(std::span(state).first(first), isHere))
      continue; // the children of this place have been seen
    for (auto at = children.lower_bound({place, std::numeric_limits<int32_t>::min()});
         at != children.end() && at->first.first == place; ++at) {
      const std::vector<int32_t> &ends = nodes[static_cast<size_t>(at->second)].ends;
      bool isWanted = false;
      int64_t least = others;
      for (size_t w = first; w < state.size(); ++w) {
        const std::vector<int32_t> &left = state[w].left;
        if (!isHere(state[w]))
          continue;
        const auto met = std::ranges::find_if(ends, [&](int32_t i) { return left[static_cast<size_t>(i)] > 0; });
        if (met != ends.end()) {
          isWanted = true;
          least = std::min(least, all[w] - shortest[static_cast<size_t>(*met)]);
        }
        if (goesOn(at->second, left)) {
          isWanted = true;
          least = std::min(least, neededAt(at->second, left, all[w]));
        }
      }
      if (isWanted)
        tokens.push_back({at->first.second, least});
    }
  }
  // Of a token that is wanted at several places, that which needs the fewest stays.
  std::ranges::sort(tokens);
  tokens.erase(std::ranges::unique(tokens, {}, &Wanted::first).begin(), tokens.end());
}

size_t Constraints::impossible(const State &state) const {
  const Way &way = *std::ranges::find(state, 0, &Way::place);
  size_t i = 0;
  while (way.left[i] == 0 || shortest[i] < never)
    ++i;
  return numbers[i];
}

std::vector<ConstraintText> constraintsOfLine(std::string_view line) {
  std::vector<ConstraintText> constraints;
  constexpr std::string_view bars = "||";
  const auto phrasesOf = [&](std::string_view text) {
    ConstraintText phrases;
    size_t begin = 0;
    for (size_t at = 0; (at = text.find(bars, at)) != std::string_view::npos;) {
      const size_t after = at + bars.size();
      const bool between = (at == 0 || text[at - 1] == ' ') && (after == text.size() || text[after] == ' ');
      if (!between) {
        ++at;
        continue;
      }
      phrases.emplace_back(text.substr(begin, at > begin ? at - 1 - begin : 0));
      begin = at = std::min(after + 1, text.size());
    }
    phrases.emplace_back(text.substr(begin));
    return phrases;
  };
  for (size_t begin = 0; !line.empty() && begin <= line.size();) {
    const size_t end = std::min(line.find('\t', begin), line.size());
    constraints.push_back(phrasesOf(line.substr(begin, end - begin)));
    begin = end + 1;
  }
  return constraints;
}

std::vector<ConstraintText> constraintsOfJson(const nlohmann::json &value) {
  const auto require = [](bool holds, const std::string &expected, const nlohmann::json &found) {
    if (!holds)
      throw Error("expected " + expected + ", found " + shownJson(found));
  };
  require(value.is_array(), "a list of phrases, or of lists of phrases of which one is enough", value);
  std::vector<ConstraintText> constraints;
  for (const nlohmann::json &element : value) {
    require(element.is_string() || element.is_array(), "a phrase, or a list of phrases", element);
    ConstraintText &phrases = constraints.emplace_back();
    for (const nlohmann::json &phrase : element.is_string() ? nlohmann::json::array({element}) : element) {
      require(phrase.is_string(), "phrases", phrase);
      phrases.push_back(phrase.get<std::string>());
      if (phrases.back().find('\n') != std::string::npos)
        throw Error("a phrase is a part of one line");
    }
  }
  return constraints;
}

} // namespace xfc
