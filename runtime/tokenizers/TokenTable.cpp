// Looks up the tokens of a vocabulary by id, by text, and by the prefixes of a text.
#include "tokenizers/TokenTable.h"
#include "support/Error.h"
#include <algorithm>

namespace xfc {

namespace {
// Limits that no real vocabulary reaches; beyond them a small file could take much memory or time.
constexpr int32_t mostTokens = 1 << 22;
constexpr size_t longestToken = 1 << 14; // bytes
} // namespace

Trie::Trie(std::vector<Entry> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) { return a.text < b.text; });
  struct Range { // entries whose first `depth` bytes lead to `node`
    uint32_t node;
    size_t begin, end, depth;
  };
  std::vector<Range> waiting{{0, 0, entries.size(), 0}};
  while (!waiting.empty()) {
    auto [node, begin, end, depth] = waiting.back();
    waiting.pop_back();
    for (; begin < end && entries[begin].text.size() == depth; ++begin)
      if (depth > 0)
        nodes[node].id = entries[begin].id;
    nodes[node].children = static_cast<uint32_t>(nodes.size());
    while (begin < end) {
      const char label = entries[begin].text[depth];
      size_t other = begin;
      while (other < end && entries[other].text[depth] == label)
        ++other;
      ++nodes[node].count;
      waiting.push_back({static_cast<uint32_t>(nodes.size()), begin, other, depth + 1});
      nodes.push_back({0, -1, 0, static_cast<uint8_t>(label)});
      begin = other;
    }
  }
  nodes.shrink_to_fit();
}

uint32_t Trie::child(uint32_t node, uint8_t byte) const {
  const auto first = nodes.begin() + nodes[node].children, last = first + nodes[node].count;
  const auto found = std::lower_bound(first, last, byte, [](const Node &n, uint8_t b) { return n.label < b; });
  return found != last && found->label == byte ? static_cast<uint32_t>(found - nodes.begin()) : 0;
}

int32_t Trie::find(std::string_view text) const {
  uint32_t node = 0;
  for (const char byte : text)
    if (node = child(node, static_cast<uint8_t>(byte)); node == 0)
      return -1;
  return nodes[node].id;
}

void TokenTable::add(int32_t id, std::string_view text) {
  if (id < 0 || id >= mostTokens)
    throw Error("a token has the id " + std::to_string(id) + "; expected 0 to " + std::to_string(mostTokens - 1));
  if (text.size() > longestToken)
    throw Error("token " + std::to_string(id) + " has " + std::to_string(text.size()) + " bytes; expected at most " +
                std::to_string(longestToken));
  if (static_cast<size_t>(id) >= spans.size())
    spans.resize(static_cast<size_t>(id) + 1);
  spans[static_cast<size_t>(id)] = {texts.size(), text.size()};
  texts += text;
}

void TokenTable::finish() {
  std::vector<Trie::Entry> entries;
  entries.reserve(spans.size());
  for (int32_t id = 0; id < size(); ++id)
    if (!text(id).empty())
      entries.push_back({text(id), id});
  trie = Trie(std::move(entries));
  spans.shrink_to_fit();
  texts.shrink_to_fit();
}

} // namespace xfc
