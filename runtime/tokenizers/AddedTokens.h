// Tokens of a tokenizer.json that are taken whole, before its model sees the text around them.
#pragma once

#include "tokenizers/TokenTable.h"
#include <functional>
#include <map>
#include <vector>

namespace xfc {

struct AddedToken {
  int32_t id;
  std::string text;
  bool singleWord = false;                    // only where no word goes on before or behind it
  bool stripLeft = false, stripRight = false; // white space beside it belongs to it
  bool normalized = false;                    // is looked for in normalized text, and is normalized itself
  bool special = false;                       // has no text when decoded
};

class AddedTokens {
public:
  // A part of a line: a token, or (id -1) text for the model. `first` where it begins the line.
  struct Section {
    std::string text;
    int32_t id;
    bool first;
  };
  using Normalize = std::function<std::string(std::string)>;

  void add(AddedToken token);
  void finish(const Normalize &normalize); // after the last of them
  std::vector<Section> split(std::string_view line, const Normalize &normalize) const;
  const AddedToken *find(int32_t id) const; // null: none
  const AddedToken *find(std::string_view text) const;
  int64_t size() const { return tokens.empty() ? 0 : tokens.rbegin()->first + 1; } // one more than the largest id

private:
  void split(std::string_view text, const Trie &trie, bool first, std::vector<Section> &sections) const;
  std::map<int32_t, AddedToken> tokens;
  std::map<std::string, int32_t, std::less<>> byText;
  Trie verbatim, inNormalized;
};

} // namespace xfc
