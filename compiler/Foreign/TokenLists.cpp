// Turns lists of tokens by id into vocabularies.
#include "TokenLists.h"
#include "support/Error.h"
#include "support/Files.h"
#include "tokenizers/MappedSentencePiece.h"
#include <algorithm>

namespace xfc {

int32_t findToken(const std::vector<std::string> &tokens, const std::string &token) {
  const auto found = std::find(tokens.begin(), tokens.end(), token);
  return found == tokens.end() || token.empty() ? -1 : static_cast<int32_t>(found - tokens.begin());
}

std::string firstOf(const std::string &folder, const std::vector<std::string> &names) {
  for (const std::string &name : names)
    if (exists(folder + "/" + name))
      return folder + "/" + name;
  return "";
}

std::string vocabularyOf(const TokenList &list) {
  std::string contents;
  if (list.pieces.empty()) {
    for (const std::string &token : list.tokens) {
      if (token.find_first_of("\r\n") != std::string::npos)
        throw Error(
            list.file +
            ": a token contains a line break, which no word can; expected a SentencePiece model beside the file");
      contents += token + "\n";
    }
  } else {
    MappedSentencePiece map;
    map.model = readFile(list.pieces, mostLargeBytes);
    map.tokens = list.tokens;
    map.ids = list.ids;
    const auto special = [&](int32_t id) {
      if (id >= 0 && std::find(map.special.begin(), map.special.end(), id) == map.special.end())
        map.special.push_back(id);
    };
    for (const int32_t id : {list.ids.pad, list.ids.unk, list.ids.bos, list.ids.eos})
      special(id);
    std::for_each(list.frame.prefix.begin(), list.frame.prefix.end(), special);
    map.tags = std::any_of(list.tokens.begin(), list.tokens.end(),
                           [](const std::string &token) { return token.starts_with(">>") && token.ends_with("<<"); });
    map.frame = list.frame;
    map.strip = list.strip;
    contents = map.written();
  }
  makeTokenizer(contents, list.pieces.empty() ? list.file : list.pieces); // throws if it cannot be read
  return contents;
}

} // namespace xfc
