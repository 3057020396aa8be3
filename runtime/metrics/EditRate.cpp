// Translation edit rate, with Tercom's limits and choices as sacreBLEU 2 implements them.
#include "metrics/EditRate.h"
#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

namespace xfc {
namespace {

using Words = std::span<const int32_t>;

constexpr int64_t longestRun = 10, farthestMove = 50, bandWidth = 25, mostMoves = 1000;
constexpr int32_t unreached = 1 << 30; // the cost of a cell outside the band

enum class Edit : uint8_t { None, Keep, Substitute, Insert, Delete };

// A row of the edit distance matrix, after some number of hypothesis words: the cells of the reference positions from
// `begin` on that lie in the band.
struct Row {
  int64_t begin = 0;
  std::vector<int32_t> costs;
  std::vector<Edit> edits; // the last edit on the path to the cell
  int64_t end() const { return begin + std::ssize(costs); }
  int32_t cost(int64_t place) const { return place >= begin && place < end() ? costs[place - begin] : unreached; }
};

// Edit distances between hypotheses of one length and a non-empty reference.
class Distances {
public:
  Distances(Words reference, int64_t length)
      : reference(reference), length(length),
        ratio(length > 0 ? static_cast<double>(reference.size()) / static_cast<double>(length) : 1),
        band(bandWidth < ratio / 2 ? static_cast<int64_t>(std::ceil(ratio / 2 + bandWidth)) : bandWidth),
        rows(static_cast<size_t>(length) + 1) {
    Row &first = rows[0];
    first.costs.resize(reference.size() + 1);
    for (size_t i = 0; i < first.costs.size(); ++i)
      first.costs[i] = static_cast<int32_t>(i);
    first.edits.assign(first.costs.size(), Edit::Insert);
  }

  // Computes the matrix for this hypothesis.
  void fill(Words hypothesis) {
    for (int64_t i = 0; i < length; ++i)
      computeRow(rows[i], i + 1, hypothesis[i], rows[i + 1]);
  }
  int64_t distance() const { return rows.back().costs.back(); }
  // The distance of a hypothesis whose first `same` words are those of the filled matrix.
  int64_t distanceOf(Words hypothesis, int64_t same) {
    const Row *above = &rows[same];
    for (int64_t i = same; i < length; ++i) {
      computeRow(*above, i + 1, hypothesis[i], scratch[i % 2]);
      above = &scratch[i % 2];
    }
    return above->costs.back();
  }

  // The alignment on the shortest path through the filled matrix: for each reference position, the index of the
  // hypothesis word that it follows (from -1), and which words on both sides are wrong.
  void align(std::vector<int64_t> &aligned, std::vector<bool> &wrongReference, std::vector<bool> &wrongWord) const {
    aligned.assign(reference.size(), 0);
    wrongReference.assign(reference.size(), true);
    wrongWord.assign(static_cast<size_t>(length), true);
    for (int64_t i = length, j = std::ssize(reference); i > 0 || j > 0;) {
      const Edit edit = rows[i].edits[j - rows[i].begin];
      if (edit == Edit::Keep)
        wrongReference[j - 1] = wrongWord[i - 1] = false;
      if (edit != Edit::Delete) // a deletion consumes no reference word
        aligned[--j] = i - 1;
      if (edit != Edit::Insert)
        --i;
    }
  }

private:
  void computeRow(const Row &above, int64_t number, int32_t word, Row &row) const {
    const int64_t places = std::ssize(reference) + 1,
                  diagonal = static_cast<int64_t>(std::floor(static_cast<double>(number) * ratio)),
                  end = number == length ? places : std::min(places, diagonal + band);
    row.begin = std::max<int64_t>(0, diagonal - band);
    row.costs.resize(static_cast<size_t>(std::max<int64_t>(end - row.begin, 0)));
    row.edits.resize(row.costs.size());
    for (int64_t place = row.begin; place < end; ++place) {
      int32_t least = unreached;
      Edit edit = Edit::None;
      auto take = [&](int32_t cost, Edit by) {
        if (cost < least) {
          least = cost;
          edit = by;
        }
      };
      if (place > 0) {
        const bool equal = word == reference[place - 1];
        take(above.cost(place - 1) + !equal, equal ? Edit::Keep : Edit::Substitute);
      }
      take(above.cost(place) + 1, Edit::Delete);
      if (place > row.begin)
        take(row.costs[place - row.begin - 1] + 1, Edit::Insert);
      row.costs[place - row.begin] = least;
      row.edits[place - row.begin] = edit;
    }
  }

  Words reference;
  int64_t length;
  double ratio;
  int64_t band;
  std::vector<Row> rows;
  Row scratch[2];
};

// Moves words `start` to `start + count` before the word at `target`; if the target lies within or right behind them,
// moves them that many positions later.
void move(std::vector<int32_t> &words, int64_t start, int64_t count, int64_t target) {
  const auto at = [&](int64_t place) { return words.begin() + std::min(place, std::ssize(words)); };
  if (target < start)
    std::rotate(at(target), at(start), at(start + count));
  else
    std::rotate(at(start), at(start + count), at(target > start + count ? target : target + count));
}

// Finds the best move of a run of words that occurs elsewhere in the reference.
class Mover {
public:
  Mover(Words reference, int64_t length) : reference(reference), distances(reference, length) {}

  // Applies the best move and returns whether it reduced the distance.
  bool improve(std::vector<int32_t> &words) {
    distances.fill(words);
    if (distances.distance() == 0)
      return false;
    distances.align(aligned, wrongReference, wrongWord);
    best = {};
    bestIsAny = false;
    for (int64_t start = 0; start < std::ssize(words) && tried < mostMoves; ++start)
      for (int64_t from = std::max<int64_t>(start - farthestMove, 0);
           from <= std::min(start + farthestMove, std::ssize(reference) - 1) && tried < mostMoves; ++from)
        for (int64_t count = 1;
             count <= longestRun && start + count <= std::ssize(words) && from + count <= std::ssize(reference) &&
             words[start + count - 1] == reference[from + count - 1] && tried < mostMoves;
             ++count)
          consider(words, start, from, count);
    if (tried >= mostMoves || !bestIsAny || std::get<0>(best) <= 0)
      return false;
    move(words, -std::get<2>(best), std::get<1>(best), -std::get<3>(best));
    return true;
  }
  // The distance of the words before the last attempt, which did not improve.
  int64_t distance() const { return distances.distance(); }

private:
  void consider(const std::vector<int32_t> &words, int64_t start, int64_t from, int64_t count) {
    const auto anyWrong = [&](const std::vector<bool> &wrong, int64_t first) {
      return std::find(wrong.begin() + first, wrong.begin() + first + count, true) != wrong.begin() + first + count;
    };
    if (!anyWrong(wrongWord, start) || !anyWrong(wrongReference, from) ||
        (start <= aligned[from] && aligned[from] < start + count))
      return;
    int64_t before = -1;
    for (int64_t place = from - 1; place < from + count; ++place) {
      const int64_t target = place < 0 ? 0 : aligned[place] + 1;
      if (target == before)
        continue;
      before = target;
      moved = words;
      move(moved, start, count, target);
      const int64_t saved = distances.distance() - distances.distanceOf(moved, std::min(start, target));
      ++tried;
      // Prefer the largest saving, then the longest run, the first run, and the first target.
      if (const Move candidate{saved, count, -start, -target}; !bestIsAny || candidate > best) {
        best = candidate;
        bestIsAny = true;
      }
    }
  }

  using Move = std::tuple<int64_t, int64_t, int64_t, int64_t>;
  Words reference;
  Distances distances;
  std::vector<int64_t> aligned;
  std::vector<bool> wrongReference, wrongWord;
  std::vector<int32_t> moved;
  Move best;
  bool bestIsAny = false;
  int64_t tried = 0; // moves tried, over all improvements
};

} // namespace

int64_t translationEdits(Words hypothesis, Words reference) {
  if (reference.empty())
    return std::ssize(hypothesis);
  std::vector<int32_t> words(hypothesis.begin(), hypothesis.end());
  Mover mover(reference, std::ssize(words));
  int64_t moves = 0;
  while (mover.improve(words))
    ++moves;
  return moves + mover.distance();
}

} // namespace xfc
