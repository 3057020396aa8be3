// Compares two texts of IR line by line.
#include "LineDiff.h"
#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <unordered_map>

namespace xfc {
namespace {

constexpr size_t longest = 400, leastBroken = 40; // characters of a line
constexpr int mostEdits = 3000;                   // whose paths take about 36 MB

// A line without the numbers of its values, and these. %arg3 and %12#1 have their names and parts of results.
struct NumberedLine {
  std::string shape;
  std::vector<std::string_view> values;
};

NumberedLine numbered(std::string_view line) {
  NumberedLine result;
  auto isDigit = [&](size_t at) { return at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])); };
  for (size_t at = 0; at < line.size();) {
    if (line[at] != '%' || !isDigit(at + 1)) {
      result.shape += line[at++];
      continue;
    }
    size_t end = at + 1;
    while (isDigit(end))
      ++end;
    result.values.push_back(line.substr(at, end - at));
    result.shape += '%';
    at = end;
  }
  return result;
}

// Lines as the numbers of their shapes.
using Shapes = std::vector<int>;

// A pair of lines that are taken as equal.
struct LinePair {
  size_t before, after;
};

// The longest common subsequence by the greedy algorithm of Myers (1986): edit paths that end on diagonal k, before -
// after, each as far as it gets with a number of edits.
void addCommon(const Shapes &before, const Shapes &after, size_t beforeBegin, size_t beforeEnd, size_t afterBegin,
               size_t afterEnd, std::vector<LinePair> &pairs) {
  const int n = static_cast<int>(beforeEnd - beforeBegin), m = static_cast<int>(afterEnd - afterBegin);
  const int most = std::min(n + m, mostEdits);
  std::vector<std::vector<int>> paths; // [edits][diagonal + edits]: lines of `before` that the path has passed
  auto reached = [&](int edits, int k) { return paths[edits][k + edits]; };
  // Whether the path of k was extended from k + 1, by a line of `after`, rather than from k - 1.
  auto isDown = [&](int edits, int k) {
    return k == -edits || (k != edits && reached(edits - 1, k - 1) < reached(edits - 1, k + 1));
  };
  auto startOf = [&](int edits, int k) {
    return edits == 0 ? 0 : isDown(edits, k) ? reached(edits - 1, k + 1) : reached(edits - 1, k - 1) + 1;
  };
  for (int edits = 0; edits <= most; ++edits) {
    paths.emplace_back(2 * edits + 1, 0);
    for (int k = -edits; k <= edits; k += 2) {
      int x = startOf(edits, k);
      while (x < n && x - k < m && before[beforeBegin + x] == after[afterBegin + x - k])
        ++x;
      paths[edits][k + edits] = x;
      if (x < n || x - k < m)
        continue;
      const size_t first = pairs.size();
      for (int at = edits, diagonal = k; at >= 0; --at) {
        const int start = startOf(at, diagonal);
        for (int end = reached(at, diagonal); end > start; --end)
          pairs.push_back({beforeBegin + end - 1, afterBegin + end - 1 - diagonal});
        if (at > 0)
          diagonal += isDown(at, diagonal) ? 1 : -1;
      }
      std::reverse(pairs.begin() + static_cast<std::ptrdiff_t>(first), pairs.end());
      return;
    }
  }
}

// Drops the pairs whose values do not stand for each other.
void keepConsistent(const std::vector<NumberedLine> &before, const std::vector<NumberedLine> &after,
                    std::vector<LinePair> &pairs) {
  std::map<std::string_view, std::string_view> names, back;
  std::erase_if(pairs, [&](const LinePair &pair) {
    const std::vector<std::string_view> &ones = before[pair.before].values, &others = after[pair.after].values;
    for (size_t i = 0; i < ones.size(); ++i) {
      const auto name = names.find(ones[i]), other = back.find(others[i]);
      if ((name != names.end() && name->second != others[i]) || (other != back.end() && other->second != ones[i]))
        return true;
    }
    for (size_t i = 0; i < ones.size(); ++i) {
      names.emplace(ones[i], others[i]);
      back.emplace(others[i], ones[i]);
    }
    return false;
  });
}

// Adds a line, broken after commas that stand neither within two pairs of brackets nor in a string.
void addBroken(std::string_view line, std::vector<std::string_view> &lines) {
  size_t begin = 0;
  int depth = 0;
  bool quoted = false;
  for (size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (quoted && c == '\\')
      ++at;
    else if (c == '"')
      quoted = !quoted;
    else if (quoted)
      continue;
    else if (c == '(' || c == '[' || c == '{' || c == '<')
      ++depth;
    else if (c == ')' || c == ']' || c == '}' || (c == '>' && at > 0 && line[at - 1] != '-'))
      --depth;
    else if (c == ',' && depth <= 1 && at >= begin + leastBroken) {
      lines.push_back(line.substr(begin, at + 1 - begin));
      begin = at + 1;
    }
  }
  lines.push_back(line.substr(begin));
}

} // namespace

std::vector<std::string_view> linesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > longest)
      addBroken(text.substr(0, end), lines);
    else
      lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<DiffPart> diffOf(const std::vector<std::string_view> &before, const std::vector<std::string_view> &after) {
  std::unordered_map<std::string, int> numbers;
  std::vector<NumberedLine> befores, afters;
  auto shapesOf = [&](const std::vector<std::string_view> &lines, std::vector<NumberedLine> &into) {
    Shapes shapes;
    for (std::string_view line : lines) {
      into.push_back(numbered(line));
      shapes.push_back(numbers.try_emplace(into.back().shape, static_cast<int>(numbers.size())).first->second);
    }
    return shapes;
  };
  const Shapes one = shapesOf(before, befores), other = shapesOf(after, afters);

  std::vector<LinePair> pairs;
  size_t begin = 0, oneEnd = one.size(), otherEnd = other.size();
  for (; begin < std::min(oneEnd, otherEnd) && one[begin] == other[begin]; ++begin)
    pairs.push_back({begin, begin});
  std::vector<LinePair> tail;
  for (; oneEnd > begin && otherEnd > begin && one[oneEnd - 1] == other[otherEnd - 1]; --oneEnd, --otherEnd)
    tail.push_back({oneEnd - 1, otherEnd - 1});
  addCommon(one, other, begin, oneEnd, begin, otherEnd, pairs);
  pairs.insert(pairs.end(), tail.rbegin(), tail.rend());
  keepConsistent(befores, afters, pairs);

  std::vector<DiffPart> parts;
  size_t beforeAt = 0, afterAt = 0;
  auto differUntil = [&](size_t beforeEnd, size_t afterEnd) {
    if (beforeEnd > beforeAt || afterEnd > afterAt)
      parts.push_back({false, beforeAt, beforeEnd, afterAt, afterEnd});
    beforeAt = beforeEnd;
    afterAt = afterEnd;
  };
  for (const LinePair &pair : pairs) {
    differUntil(pair.before, pair.after);
    if (parts.empty() || !parts.back().equal)
      parts.push_back({true, beforeAt, beforeAt, afterAt, afterAt});
    parts.back().beforeEnd = ++beforeAt;
    parts.back().afterEnd = ++afterAt;
  }
  differUntil(before.size(), after.size());
  return parts;
}

} // namespace xfc
