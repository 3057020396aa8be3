// Finds the tokens of a tokenizer.json that are matched as a whole, before its model sees the text around them.
#pragma once

#include "tokenizers/TokenTable.h"
#include <functional>
#include <map>
#include <vector>

namespace xfc {

struct AddedToken {
  int32_t id;
  std::string text;
  bool singleWord = false;                    // matches only if no word character precedes or follows
  bool stripLeft = false, stripRight = false; // includes adjacent white space
  bool normalized = false;                    // is matched in normalized text, after normalizing the token itself
  bool special = false;                       // is skipped in decoding
  std::string decoded = {};                   // what it is decoded to: the text in which it was found; set by finish()
};

class AddedTokens {
public:
  // A part of a line: a token, or (id -1) text for the model. `first`: it begins the line.
  struct Section {
    std::string text;
    int32_t id;
    bool first;
  };
  using Normalize = std::function<std::string(std::string)>;

  void add(AddedToken token);
  void finish(const Normalize &normalize); // to be called after the last add()
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
