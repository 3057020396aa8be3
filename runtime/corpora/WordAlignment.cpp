// Word alignments of parallel text, one line for each pair, as links between tokens of a source and labels of a target.
#include "corpora/WordAlignment.h"
#include "plan/Programs.h"
#include <charconv>
#include <utility>

namespace xfc {

int64_t linksPerLabel(const Module &module) {
  if (const Program *training = module.find(programs::lossAndGradients))
    for (const Argument &argument : training->arguments)
      if (argument.name == names::alignmentLinks)
        return featuresOf(argument);
  return 0;
}

// The parts of a line between blanks.
static std::vector<std::string_view> wordsOf(std::string_view line) {
  constexpr std::string_view blanks = " \t\r";
  std::vector<std::string_view> words;
  for (;;) {
    line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    if (line.empty())
      return words;
    words.push_back(line.substr(0, line.find_first_of(blanks)));
    line.remove_prefix(words.back().size());
  }
}

std::vector<Link> readLinks(std::string_view line, const std::string &where) {
  std::vector<Link> links;
  for (std::string_view word : wordsOf(line)) {
    Link link{};
    const char *const end = word.data() + word.size();
    const auto [dash, noSource] = std::from_chars(word.data(), end, link.source);
    const bool both = noSource == std::errc() && dash != end && *dash == '-';
    const auto [rest, noTarget] = std::from_chars(both ? dash + 1 : end, end, link.label);
    if (!both || noTarget != std::errc() || rest != end || link.source < 0 || link.label < 0)
      throw Error(where + ": '" + std::string(word.substr(0, 40)) +
                  "' is not a link; expected the numbers of a source and of a target token, both from 0, such as 0-1");
    links.push_back(link);
  }
  return links;
}

std::vector<std::pair<int32_t, int32_t>> wordsOf(std::string_view text, std::span<const int32_t> tokens,
                                                 const Vocabulary &vocabulary) {
  std::vector<std::pair<int32_t, int32_t>> words;
  const auto count = static_cast<int32_t>(tokens.size());
  const bool fromEnd = vocabulary.fromEnd();
  for (int32_t i = 0; i < count; ++i) {
    if (words.empty() || vocabulary.piece(tokens[fromEnd ? count - 1 - i : i]).starts_with("\xE2\x96\x81"))
      words.push_back({i, i});
    words.back().second = i + 1;
  }
  if (fromEnd)
    for (auto &[begin, end] : words)
      begin = count - std::exchange(end, count - begin);
  if (words.size() != wordsOf(text).size())
    words.clear();
  return words;
}

std::vector<Link> linksOfWords(const std::vector<Link> &links, const std::vector<std::pair<int32_t, int32_t>> &sources,
                               const std::vector<std::pair<int32_t, int32_t>> &targets, const std::string &where) {
  std::vector<Link> ofTokens;
  for (const auto &[source, target] : links) {
    if (static_cast<size_t>(source) >= sources.size() || static_cast<size_t>(target) >= targets.size())
      throw Error(where + ": has the link " + std::to_string(source) + "-" + std::to_string(target) +
                  ", but the pair has " + std::to_string(sources.size()) + " source and " +
                  std::to_string(targets.size()) + " target words");
    for (int32_t s = sources[source].first; s < sources[source].second; ++s)
      for (int32_t t = targets[target].first; t < targets[target].second; ++t)
        ofTokens.push_back({s, t});
  }
  return ofTokens;
}

std::vector<Link> placedLinks(std::vector<Link> links, const AlignedSide &source, const AlignedSide &target,
                              int64_t most, int32_t pad, const std::string &where) {
  if (links.empty())
    return links;
  if (std::ranges::count(source.line(), pad) + std::ranges::count(target.line(), pad) > 0)
    throw Error(where + ": has links, but the pair has pads (id " + std::to_string(pad) + "); give an empty line");
  for (const Link &link : links)
    if (static_cast<size_t>(link.source) >= source.tokens || static_cast<size_t>(link.label) >= target.tokens)
      throw Error(where + ": has the link " + std::to_string(link.source) + "-" + std::to_string(link.label) +
                  ", but the pair has " + std::to_string(source.tokens) + " source and " +
                  std::to_string(target.tokens) +
                  " target tokens (`encode` and `encode --target` print them; with --guided-alignment-type word, links "
                  "are between words)");
  std::ranges::sort(links, {}, [](const Link &link) { return std::pair(link.label, link.source); });
  const auto repeated = std::ranges::unique(links);
  links.erase(repeated.begin(), repeated.end());
  for (size_t i = 0, begin = 0; i <= links.size(); ++i)
    if (i == links.size() || links[i].label != links[begin].label) {
      if (static_cast<int64_t>(i - begin) > most)
        throw Error(where + ": target token " + std::to_string(links[begin].label) + " has " +
                    std::to_string(i - begin) + " links, but this executable takes " + std::to_string(most) +
                    "; compile the model again with `xfc compile --guided-alignment " + std::to_string(i - begin) +
                    "`, or remove links");
      begin = i;
    }
  for (Link &link : links) {
    link.source += static_cast<int32_t>(source.first);
    link.label += static_cast<int32_t>(target.first) - 1;
  }
  return links;
}

} // namespace xfc
