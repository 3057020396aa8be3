// Counts which target tokens translate a source token.
#include "corpora/Lexicon.h"
#include <algorithm>

namespace xfc {

namespace {

// Numbers for pairs of a source token and a target token that occur together.
class PairCounts {
public:
  explicit PairCounts(int64_t sourceVocabulary) : rows(static_cast<size_t>(sourceVocabulary)) {}

  // To be called for all pairs that at() is asked for, and then ready().
  void add(int32_t source, int32_t target) {
    Row &row = rows[static_cast<size_t>(source)];
    row.targets.push_back(target);
    if (row.targets.size() >= row.next) {
      row.unite();
      row.next = std::max<size_t>(64, 2 * row.targets.size());
    }
  }
  void ready() {
    for (Row &row : rows) {
      row.unite();
      row.targets.shrink_to_fit();
      row.counts.assign(row.targets.size(), 0);
    }
  }

  double &at(int32_t source, int32_t target) {
    Row &row = rows[static_cast<size_t>(source)];
    return row.counts[static_cast<size_t>(std::ranges::lower_bound(row.targets, target) - row.targets.begin())];
  }
  // Divides the counts of each source token by their sum, which stays 0 if it is.
  void normalize() {
    for (Row &row : rows) {
      double sum = 0;
      for (const double count : row.counts)
        sum += count;
      for (double &count : row.counts)
        count /= sum > 0 ? sum : 1;
    }
  }
  void clear() {
    for (Row &row : rows)
      std::ranges::fill(row.counts, 0);
  }
  Lexicon lexicon(size_t sources) const {
    Lexicon all(sources);
    for (size_t source = 0; source < sources; ++source)
      for (size_t i = 0; i < rows[source].targets.size(); ++i)
        if (const auto share = static_cast<float>(rows[source].counts[i]); share > 0)
          all[source].emplace_back(rows[source].targets[i], share);
    return all;
  }

private:
  struct Row {
    std::vector<int32_t> targets; // ascending, once united
    std::vector<double> counts;
    size_t next = 64; // the number of targets at which those that are equal become one
    void unite() {
      std::ranges::sort(targets);
      targets.erase(std::ranges::unique(targets).begin(), targets.end());
    }
  };
  std::vector<Row> rows;
};

} // namespace

Lexicon lexiconOfLinks(std::span<const LexiconPair> pairs, int64_t sourceVocabulary) {
  PairCounts counts(sourceVocabulary);
  const auto eachLink = [&](const auto &use) {
    for (const LexiconPair &pair : pairs)
      for (const Link &link : pair.links)
        use(pair.source[static_cast<size_t>(link.source)], pair.target[static_cast<size_t>(link.label)]);
  };
  eachLink([&](int32_t source, int32_t target) { counts.add(source, target); });
  counts.ready();
  eachLink([&](int32_t source, int32_t target) { ++counts.at(source, target); });
  counts.normalize();
  return counts.lexicon(static_cast<size_t>(sourceVocabulary));
}

Lexicon lexiconOfPairs(std::span<const LexiconPair> pairs, int64_t sourceVocabulary, int iterations) {
  const auto none = static_cast<int32_t>(sourceVocabulary); // the source of a target token that comes from no token
  PairCounts shares(sourceVocabulary + 1);
  for (const LexiconPair &pair : pairs)
    for (const int32_t target : pair.target) {
      shares.add(none, target);
      for (const int32_t source : pair.source)
        shares.add(source, target);
    }
  shares.ready();
  PairCounts counts = shares;
  std::vector<double> from; // how probably the target token comes from each source token, and from none
  for (int iteration = 0; iteration < iterations; ++iteration) {
    for (const LexiconPair &pair : pairs)
      for (const int32_t target : pair.target) {
        from.clear();
        double sum = 0;
        const auto add = [&](int32_t source) {
          sum += from.emplace_back(iteration == 0 ? 1 : shares.at(source, target));
        };
        std::ranges::for_each(pair.source, add);
        add(none);
        if (sum == 0)
          continue;
        for (size_t i = 0; i < from.size(); ++i)
          counts.at(i < pair.source.size() ? pair.source[i] : none, target) += from[i] / sum;
      }
    counts.normalize();
    std::swap(shares, counts);
    counts.clear();
  }
  return shares.lexicon(static_cast<size_t>(sourceVocabulary));
}

} // namespace xfc
