// Looks up the tokens of a vocabulary by id, by text, and by the prefixes of a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// A trie over byte strings, each with an id.
class Trie {
public:
  struct Entry {
    std::string_view text;
    int32_t id;
  };
  Trie() = default;
  // If texts are equal, the last one wins. The texts are not kept; an empty one is ignored.
  explicit Trie(std::vector<Entry> entries);

  // Calls use(length, id) for each stored text that is a prefix of `text`, shortest first.
  template <typename Use> void forEachPrefix(std::string_view text, Use use) const {
    uint32_t node = 0;
    for (size_t length = 0; length < text.size();) {
      node = child(node, static_cast<unsigned char>(text[length]));
      if (node == 0)
        return;
      ++length;
      if (nodes[node].id >= 0)
        use(length, nodes[node].id);
    }
  }
  int32_t find(std::string_view text) const; // -1: not there
  bool empty() const { return nodes.size() <= 1; }

private:
  struct Node {
    uint32_t children = 0; // index of the first child; children are contiguous and sorted by label
    int32_t id = -1;
    uint16_t count = 0;
    uint8_t label = 0;
  };
  uint32_t child(uint32_t node, uint8_t byte) const; // 0: none
  std::vector<Node> nodes{Node()};                   // the root is the first
};

class TokenTable {
public:
  // Ids start at 0; an id that is given no text has an empty one. Throws Error for ids and lengths beyond those of any
  // real vocabulary.
  void add(int32_t id, std::string_view text);
  void finish(); // to be called after the last add()

  int64_t size() const { return static_cast<int64_t>(spans.size()); }
  std::string_view text(int32_t id) const {
    return std::string_view(texts).substr(spans[static_cast<size_t>(id)].begin, spans[static_cast<size_t>(id)].length);
  }
  int32_t find(std::string_view text) const { return trie.find(text); } // -1: not there
  const Trie &prefixes() const { return trie; }

private:
  struct Span {
    uint64_t begin : 48 = 0, length : 16 = 0;
  };
  std::string texts;
  std::vector<Span> spans;
  Trie trie;
};

} // namespace xfc
