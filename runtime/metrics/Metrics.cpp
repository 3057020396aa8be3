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

void checkSizes(const std::vector<std::string> &hypotheses, const std::vector<std::string> &references) {
  if (hypotheses.size() != references.size())
    throw Error("the hypotheses have " + std::to_string(hypotheses.size()) + " lines, the references " +
                std::to_string(references.size()) + "; they must be line by line translations of the same source");
}

} // namespace

void MetricSums::add(const std::string &hypothesis, const std::string &reference) {
  ++count;
  const std::vector<std::u32string> hypothesisWords = tokenize13a(hypothesis), referenceWords = tokenize13a(reference);
  hypothesisLength += hypothesisWords.size();
  referenceLength += referenceWords.size();
  for (size_t n = 1; n <= words; ++n) {
    total[n - 1] += ngramsOf(hypothesisWords.size(), n);
    correct[n - 1] += matches(wordNgrams(hypothesisWords, n), wordNgrams(referenceWords, n));
  }
  auto withoutSpace = [](const std::string &line) {
    std::u32string text = codePoints(line);
    std::erase_if(text, isSpace);
    return text;
  };
  const std::u32string hypothesisText = withoutSpace(hypothesis), referenceText = withoutSpace(reference);
  for (size_t n = 1; n <= characters; ++n) {
    // A line whose reference is too short for this order does not count toward the precision.
    inHypothesis[n - 1] += referenceText.size() < n ? 0 : ngramsOf(hypothesisText.size(), n);
    inReference[n - 1] += ngramsOf(referenceText.size(), n);
    matching[n - 1] += matches(characterNgrams(hypothesisText, n), characterNgrams(referenceText, n));
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
  Score score{0, std::string("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:") + sacrebleuVersion};
  // Without any match, or if no line is long enough for an order, the score is 0.
  if (std::all_of(correct.begin(), correct.end(), [](int64_t c) { return c == 0; }) || total[words - 1] == 0)
    return score;
  double brevity = 1, logarithms = 0, smoothing = 1;
  if (hypothesisLength < referenceLength)
    brevity = std::exp(1 - static_cast<double>(referenceLength) / hypothesisLength);
  for (size_t n = 0; n < words; ++n) {
    if (correct[n] == 0)
      smoothing *= 2; // NIST's smoothing: the k-th order without a match counts 1/2^k
    logarithms += std::log(correct[n] == 0 ? 100 / (smoothing * total[n]) : 100.0 * correct[n] / total[n]);
  }
  score.value = brevity * std::exp(logarithms / words);
  return score;
}

Score MetricSums::chrf() const {
  constexpr double factor = 4; // beta squared: recall counts twice as much
  Score score{0, std::string("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:") + sacrebleuVersion};
  double precision = 0, recall = 0;
  int orders = 0;
  for (size_t n = 0; n < characters; ++n) {
    if (inHypothesis[n] == 0 || inReference[n] == 0)
      continue;
    precision += static_cast<double>(matching[n]) / inHypothesis[n];
    recall += static_cast<double>(matching[n]) / inReference[n];
    ++orders;
  }
  if (precision + recall == 0)
    return score;
  precision /= orders;
  recall /= orders;
  score.value = 100 * (1 + factor) * precision * recall / (factor * precision + recall);
  return score;
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

} // namespace xfc
