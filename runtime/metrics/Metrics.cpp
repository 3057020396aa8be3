// BLEU (Papineni et al., 2002), chrF (Popović, 2015) and TER (Snover et al., 2006), with the tokenizer, smoothing and
// averaging of sacreBLEU 2.
#include "metrics/Metrics.h"
#include "metrics/EditRate.h"
#include "metrics/Unicode.h"
#include "support/Error.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

namespace xfc {
namespace {

// The sacreBLEU release that these results are compared with.
constexpr const char *sacrebleuVersion = "2.6.0";

void replaceAll(std::u32string &line, std::u32string_view what, std::u32string_view by) {
  std::u32string replaced;
  size_t begin = 0;
  for (size_t at; (at = line.find(what, begin)) != std::u32string::npos; begin = at + what.size())
    replaced.append(line, begin, at - begin).append(by);
  if (begin > 0)
    line = replaced.append(line, begin);
}

bool isDigit(char32_t c) { return c >= U'0' && c <= U'9'; }
bool isStop(char32_t c) { return c == U'.' || c == U','; }
// [{-~[-` -&(-+:-@/], the class of mteval-v13a's first rule.
bool isSymbol(char32_t c) {
  return (c >= U'{' && c <= U'~') || (c >= U'[' && c <= U'`') || (c >= U' ' && c <= U'&') || (c >= U'(' && c <= U'+') ||
         (c >= U':' && c <= U'@') || c == U'/';
}

// Puts blanks around the first or second character of each matching pair, as a regular expression would: left to right,
// without overlapping matches.
template <typename Match> std::u32string separate(const std::u32string &line, Match match, bool aroundFirst) {
  std::u32string result;
  for (size_t i = 0; i < line.size(); ++i) {
    if (i + 1 < line.size() && match(line[i], line[i + 1])) {
      if (aroundFirst)
        result += {U' ', line[i], U' ', line[i + 1]};
      else
        result += {line[i], U' ', line[i + 1], U' '};
      ++i;
    } else {
      result += line[i];
    }
  }
  return result;
}

std::vector<std::u32string> tokenize13a(const std::string &text) {
  std::u32string line = codePoints(text);
  while (!line.empty() && isSpace(line.back()))
    line.pop_back();
  replaceAll(line, U"<skipped>", U"");
  replaceAll(line, U"-\n", U"");
  replaceAll(line, U"\n", U" ");
  replaceAll(line, U"&quot;", U"\"");
  replaceAll(line, U"&amp;", U"&");
  replaceAll(line, U"&lt;", U"<");
  replaceAll(line, U"&gt;", U">");
  std::u32string spaced = U" ";
  for (char32_t c : line)
    if (isSymbol(c))
      spaced += {U' ', c, U' '};
    else
      spaced += c;
  spaced += U' ';
  spaced = separate(spaced, [](char32_t a, char32_t b) { return !isDigit(a) && isStop(b); }, false);
  spaced = separate(spaced, [](char32_t a, char32_t b) { return isStop(a) && !isDigit(b); }, true);
  spaced = separate(spaced, [](char32_t a, char32_t b) { return isDigit(a) && b == U'-'; }, false);
  return splitWords(spaced);
}

using Counts = std::unordered_map<std::u32string, int64_t>;

// Words of an n-gram are joined by a blank, which no word contains.
Counts wordNgrams(const std::vector<std::u32string> &words, size_t n) {
  Counts counts;
  for (size_t i = 0; i + n <= words.size(); ++i) {
    std::u32string ngram = words[i];
    for (size_t k = 1; k < n; ++k)
      ngram += U' ' + words[i + k];
    ++counts[std::move(ngram)];
  }
  return counts;
}

Counts characterNgrams(const std::u32string &text, size_t n) {
  Counts counts;
  for (size_t i = 0; i + n <= text.size(); ++i)
    ++counts[text.substr(i, n)];
  return counts;
}

int64_t matches(const Counts &hypothesis, const Counts &reference) {
  int64_t sum = 0;
  for (const auto &[ngram, count] : hypothesis)
    if (auto found = reference.find(ngram); found != reference.end())
      sum += std::min(count, found->second);
  return sum;
}

int64_t ngramsOf(size_t length, size_t n) { return length < n ? 0 : static_cast<int64_t>(length - n + 1); }

std::u32string withoutSpace(const std::string &line) {
  std::u32string text = codePoints(line);
  std::erase_if(text, isSpace);
  return text;
}

// With `effectiveOrder`, only the orders count of which the hypothesis has n-grams.
double bleuOf(const WordMatches &words, bool effectiveOrder) {
  const auto &[correct, total, hypothesisLength, referenceLength] = words;
  size_t order = total.size();
  while (effectiveOrder && order > 0 && total[order - 1] == 0)
    --order;
  // Without any match, or if no line is long enough for an order, the score is 0.
  if (std::ranges::all_of(correct, [](int64_t c) { return c == 0; }) || total[order - 1] == 0)
    return 0;
  double brevity = 1, logarithms = 0, smoothing = 1;
  if (hypothesisLength < referenceLength)
    brevity = std::exp(1 - static_cast<double>(referenceLength) / static_cast<double>(hypothesisLength));
  for (size_t n = 0; n < order; ++n) {
    if (correct[n] == 0)
      smoothing *= 2; // NIST's smoothing: the k-th order without a match counts 1/2^k
    const auto possible = static_cast<double>(total[n]);
    logarithms +=
        std::log(correct[n] == 0 ? 100 / (smoothing * possible) : 100.0 * static_cast<double>(correct[n]) / possible);
  }
  return brevity * std::exp(logarithms / static_cast<double>(order));
}

double chrfOf(const CharacterMatches &characters) {
  constexpr double factor = 4; // beta squared: recall counts twice as much
  const auto &[inHypothesis, inReference, matching] = characters;
  double precision = 0, recall = 0;
  int orders = 0;
  for (size_t n = 0; n < matching.size(); ++n) {
    if (inHypothesis[n] == 0 || inReference[n] == 0)
      continue;
    precision += static_cast<double>(matching[n]) / static_cast<double>(inHypothesis[n]);
    recall += static_cast<double>(matching[n]) / static_cast<double>(inReference[n]);
    ++orders;
  }
  if (precision + recall == 0)
    return 0;
  precision /= orders;
  recall /= orders;
  return 100 * (1 + factor) * precision * recall / (factor * precision + recall);
}

void checkSizes(const std::vector<std::string> &hypotheses, const std::vector<std::string> &references) {
  if (hypotheses.size() != references.size())
    throw Error("the hypotheses have " + std::to_string(hypotheses.size()) + " lines, the references " +
                std::to_string(references.size()) + "; they must be line by line translations of the same source");
}

} // namespace

void MetricSums::add(const std::string &hypothesis, const std::string &reference) {
  ++count;
  const std::vector<std::u32string> hypothesisWords = tokenize13a(hypothesis), referenceWords = tokenize13a(reference);
  words.hypothesisLength += std::ssize(hypothesisWords);
  words.referenceLength += std::ssize(referenceWords);
  for (size_t n = 1; n <= words.total.size(); ++n) {
    words.total[n - 1] += ngramsOf(hypothesisWords.size(), n);
    words.correct[n - 1] += matches(wordNgrams(hypothesisWords, n), wordNgrams(referenceWords, n));
  }
  const std::u32string hypothesisText = withoutSpace(hypothesis), referenceText = withoutSpace(reference);
  for (size_t n = 1; n <= characters.matching.size(); ++n) {
    characters.inHypothesis[n - 1] += referenceText.size() < n ? 0 : ngramsOf(hypothesisText.size(), n);
    characters.inReference[n - 1] += ngramsOf(referenceText.size(), n);
    characters.matching[n - 1] += matches(characterNgrams(hypothesisText, n), characterNgrams(referenceText, n));
  }
  addEdits(hypothesis, reference);
}

void MetricSums::addEdits(const std::string &hypothesis, const std::string &reference) {
  std::unordered_map<std::u32string, int32_t> numbers;
  auto numbersOf = [&](const std::string &line) {
    std::vector<int32_t> words;
    for (const std::u32string &word : splitWords(lowerCase(codePoints(line))))
      words.push_back(numbers.try_emplace(word, static_cast<int32_t>(numbers.size())).first->second);
    return words;
  };
  const std::vector<int32_t> words = numbersOf(reference);
  edits += translationEdits(numbersOf(hypothesis), words);
  referenceWords += std::ssize(words);
}

Score MetricSums::bleu() const {
  return {bleuOf(words, /*effectiveOrder=*/false),
          std::string("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:") + sacrebleuVersion};
}

Score MetricSums::chrf() const {
  return {chrfOf(characters), std::string("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:") + sacrebleuVersion};
}

Score MetricSums::ter() const {
  // If the references have no words, every word is an error.
  const double words = referenceWords > 0 ? static_cast<double>(referenceWords) : static_cast<double>(edits);
  return {edits > 0 ? 100 * (static_cast<double>(edits) / words) : 0,
          std::string("nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:") + sacrebleuVersion};
}

MetricSums metricsOf(const std::vector<std::string> &hypotheses, const std::vector<std::string> &references) {
  checkSizes(hypotheses, references);
  MetricSums sums;
  for (size_t line = 0; line < hypotheses.size(); ++line)
    sums.add(hypotheses[line], references[line]);
  return sums;
}

namespace {

// Lines of which each is compared with each: of every order, their n-grams by number.
class ComparedLines {
public:
  ComparedLines(Utility utility, std::span<const std::string> texts) : utility(utility) {
    std::vector<std::unordered_map<std::u32string, int32_t>> numbers(orders());
    for (const std::string &text : texts) {
      Line &line = lines.emplace_back();
      const std::vector<std::u32string> words =
          utility == Utility::Bleu ? tokenize13a(text) : std::vector<std::u32string>();
      const std::u32string characters = utility == Utility::Chrf ? withoutSpace(text) : std::u32string();
      line.length = utility == Utility::Bleu ? words.size() : characters.size();
      for (size_t n = 1; n <= orders(); ++n) {
        auto &ngrams = line.ngrams.emplace_back();
        for (auto &[ngram, count] : utility == Utility::Bleu ? wordNgrams(words, n) : characterNgrams(characters, n))
          ngrams.emplace_back(numbers[n - 1].try_emplace(ngram, numbers[n - 1].size()).first->second, count);
        std::ranges::sort(ngrams);
      }
    }
  }

  // The utility of the one if the other is right, and the other way around.
  std::pair<double, double> compare(size_t one, size_t other) const {
    const Line &a = lines[one], &b = lines[other];
    if (utility == Utility::Bleu) {
      WordMatches there, back;
      for (size_t n = 1; n <= orders(); ++n) {
        there.correct[n - 1] = back.correct[n - 1] = common(a.ngrams[n - 1], b.ngrams[n - 1]);
        there.total[n - 1] = ngramsOf(a.length, n);
        back.total[n - 1] = ngramsOf(b.length, n);
      }
      there.hypothesisLength = back.referenceLength = static_cast<int64_t>(a.length);
      there.referenceLength = back.hypothesisLength = static_cast<int64_t>(b.length);
      return {bleuOf(there, /*effectiveOrder=*/true), bleuOf(back, /*effectiveOrder=*/true)};
    }
    CharacterMatches there, back;
    for (size_t n = 1; n <= orders(); ++n) {
      there.matching[n - 1] = back.matching[n - 1] = common(a.ngrams[n - 1], b.ngrams[n - 1]);
      there.inReference[n - 1] = ngramsOf(b.length, n);
      back.inReference[n - 1] = ngramsOf(a.length, n);
      there.inHypothesis[n - 1] = b.length < n ? 0 : ngramsOf(a.length, n);
      back.inHypothesis[n - 1] = a.length < n ? 0 : ngramsOf(b.length, n);
    }
    return {chrfOf(there), chrfOf(back)};
  }

private:
  using Ngrams = std::vector<std::pair<int32_t, int64_t>>; // number and count, ascending
  struct Line {
    size_t length; // words or characters
    std::vector<Ngrams> ngrams;
  };

  size_t orders() const {
    return utility == Utility::Bleu ? WordMatches().total.size() : CharacterMatches().matching.size();
  }

  static int64_t common(const Ngrams &a, const Ngrams &b) {
    int64_t sum = 0;
    for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();)
      if (x->first < y->first) {
        ++x;
      } else if (y->first < x->first) {
        ++y;
      } else {
        sum += std::min(x->second, y->second);
        ++x, ++y;
      }
    return sum;
  }

  Utility utility;
  std::vector<Line> lines;
};

} // namespace

std::vector<double> expectedUtilities(Utility utility, std::span<const std::string> lines) {
  // Samples are often equal; only different lines are compared.
  std::unordered_map<std::string, size_t> known;
  std::vector<std::string> different;
  std::vector<size_t> which;
  std::vector<double> times;
  for (const std::string &line : lines) {
    const auto [found, isNew] = known.try_emplace(line, different.size());
    if (isNew) {
      different.push_back(line);
      times.push_back(0);
    }
    which.push_back(found->second);
    ++times[found->second];
  }
  const ComparedLines compared(utility, different);
  std::vector<double> sums(different.size());
  for (size_t one = 0; one < different.size(); ++one)
    for (size_t other = one; other < different.size(); ++other) {
      const auto [there, back] = compared.compare(one, other);
      sums[one] += times[other] * there;
      if (other != one)
        sums[other] += times[one] * back;
    }
  std::vector<double> means;
  means.reserve(which.size());
  for (const size_t line : which)
    means.push_back(sums[line] / static_cast<double>(lines.size()));
  return means;
}

} // namespace xfc
