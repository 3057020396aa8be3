// An ensemble as a decoder sees it.
#include "decode/EnsembleModel.h"
#include "decode/Ensemble.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace xfc {

namespace {

// A row of each member: log-probabilities of the next token of one hypothesis.
class MemberRows {
public:
  MemberRows(std::span<const LogProbabilityRow> rows, std::span<const double> weights)
      : rows(rows), weights(weights), numbers(rows.size()) {}

  double meanOf(int64_t token) {
    for (size_t m = 0; m < rows.size(); ++m)
      numbers[m] = rows[m][token];
    return logMean(numbers, weights);
  }

  // Writes the `count` most probable of the tokens 0..vocabulary-1 that are not `excluded`, best first, of equal ones
  // the lower one, with their means; if there are fewer, token -1 with -inf for the others. NaN is never among them.
  void best(int64_t vocabulary, std::span<const int32_t> excluded, int count, int32_t *tokens, double *means) {
    std::fill_n(tokens, count, -1);
    std::fill_n(means, count, -HUGE_VAL);
    // A mean is no larger than the largest number of a member, so a token is looked at only if one of those beats the
    // worst of the best so far. A loop that vectorizes skips whole blocks.
    constexpr int64_t block = 64;
    for (int64_t begin = 0; begin < vocabulary; begin += block) {
      const int64_t end = std::min(begin + block, vocabulary);
      double &worst = means[count - 1];
      if (std::ranges::none_of(rows, [&](const LogProbabilityRow &row) { return anyFrom(row, begin, end, worst); }))
        continue;
      for (int64_t token = begin; token < end; ++token) {
        if (std::ranges::none_of(rows, [&](const LogProbabilityRow &row) { return row[token] > worst; }) ||
            std::ranges::find(excluded, token) != excluded.end())
          continue;
        const double mean = meanOf(token);
        if (!(mean > worst))
          continue;
        int at = count - 1;
        for (; at > 0 && mean > means[at - 1]; --at) {
          means[at] = means[at - 1];
          tokens[at] = tokens[at - 1];
        }
        means[at] = mean;
        tokens[at] = static_cast<int32_t>(token);
      }
    }
  }

private:
  // Whether a number of the row from `begin` to `end` is at least `limit`, as far as its type can tell.
  static bool anyFrom(const LogProbabilityRow &row, int64_t begin, int64_t end, double limit) {
    const auto any = [&]<typename T>(const T *numbers) {
      const auto least =
          static_cast<T>(limit); // rounding keeps the order of a number and the limit, or makes them equal
      int passing = 0;
      for (int64_t i = begin; i < end; ++i)
        passing |= numbers[i] >= least;
      return passing != 0;
    };
    return row.isDouble ? any(static_cast<const double *>(row.data)) : any(static_cast<const float *>(row.data));
  }

  std::span<const LogProbabilityRow> rows;
  std::span<const double> weights;
  std::vector<double> numbers;
};

class EnsembleModel : public SearchedModel {
public:
  EnsembleModel(std::vector<std::unique_ptr<SearchedModel>> members, std::vector<double> weights, ThreadPool *pool)
      : members(std::move(members)), weights(std::move(weights)), pool(pool) {}

  SearchVocabulary vocabulary() const override { return members.front()->vocabulary(); }
  int64_t longestTarget() const override { return members.front()->longestTarget(); }
  bool readsHistory() const override {
    return std::ranges::any_of(members, [](const auto &member) { return member->readsHistory(); });
  }
  int64_t fewestRows() const override { return members.front()->fewestRows(); }

  size_t groupOf(const SearchOptions &options, bool constrained) override {
    Group group;
    for (const auto &member : members)
      group.ofMembers.push_back(member->groupOf(options, /*constrained=*/true));
    // Few numbers of candidates make few groups. What is divided by the sum of probabilities needs all of them.
    constexpr int64_t usual = 8;
    if (const int64_t needed = searchCandidates(options, vocabulary());
        !constrained && !options.generation.renormalize && needed > 0 && needed <= vocabulary().size)
      group.candidates =
          static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::max(usual, needed)))); // padded if there are fewer
    const auto found = std::ranges::find(groups, group);
    if (found != groups.end())
      return static_cast<size_t>(found - groups.begin());
    groups.push_back(std::move(group));
    return groups.size() - 1;
  }

  void join(size_t group, std::span<const JoiningSentence> sentences) override {
    for (size_t m = 0; m < members.size(); ++m)
      members[m]->join(groups[group].ofMembers[m], sentences);
  }

  void leave(size_t place) override {
    for (const auto &member : members)
      member->leave(place);
  }

  StepResult step(size_t number, const StepRequest &request) override {
    const Group &group = groups[number];
    given.clear();
    for (size_t m = 0; m < members.size(); ++m)
      given.push_back(members[m]->step(group.ofMembers[m], request).all);
    const int64_t rows = std::ssize(request.ids);
    width = group.candidates > 0 ? group.candidates : vocabulary().size;
    means.resize(static_cast<size_t>(rows * width));
    if (group.candidates > 0) {
      tokens.resize(means.size());
      ofWanted.resize(static_cast<size_t>(rows));
    }
    wanted = request.wanted;
    candidates = group.candidates;
    if (pool)
      pool->run([](void *model, int64_t row, int) { static_cast<EnsembleModel *>(model)->average(row); }, this, rows);
    else
      for (int64_t row = 0; row < rows; ++row)
        average(row);
    const NumberRows averaged{means.data(), true, width};
    if (candidates == 0)
      return {.all = averaged};
    return {.all = {},
            .count = candidates,
            .tokens = tokens.data(),
            .tokenStride = width,
            .best = averaged,
            .wanted = {ofWanted.data(), true, 1}};
  }

private:
  // Requests whose steps give the same of the same programs of the members.
  struct Group {
    std::vector<size_t> ofMembers;
    int candidates = 0; // 0: all log-probabilities
    bool operator==(const Group &) const = default;
  };

  void average(int64_t row) {
    std::vector<LogProbabilityRow> ofMembers;
    ofMembers.reserve(given.size());
    for (const NumberRows &numbers : given)
      ofMembers.push_back(numbers.row(row));
    MemberRows rows(ofMembers, weights);
    double *const into = means.data() + row * width;
    if (candidates == 0) {
      for (int64_t token = 0; token < width; ++token)
        into[token] = rows.meanOf(token);
      return;
    }
    const auto &[size, pad, start, eos] = vocabulary();
    rows.best(size, std::array{pad, start, eos}, candidates, tokens.data() + row * width, into);
    ofWanted[static_cast<size_t>(row)] = rows.meanOf(wanted[static_cast<size_t>(row)]);
  }

  std::vector<std::unique_ptr<SearchedModel>> members;
  const std::vector<double> weights;
  ThreadPool *pool;
  std::vector<Group> groups;
  // Of the step.
  std::vector<NumberRows> given; // by member
  std::span<const int32_t> wanted;
  int candidates = 0;
  int64_t width = 0; // of a row of `means`
  std::vector<int32_t> tokens;
  std::vector<double> means, ofWanted;
};

} // namespace

std::unique_ptr<SearchedModel> ensembleModel(std::vector<std::unique_ptr<SearchedModel>> members,
                                             std::vector<double> weights, ThreadPool *pool) {
  return std::make_unique<EnsembleModel>(std::move(members), std::move(weights), pool);
}

} // namespace xfc
