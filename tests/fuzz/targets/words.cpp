// Fuzzes lists of words: one word per line, or dict.txt with a count after each.
#include "../Fuzz.h"
#include "tokenizers/Tokenizer.h"
#include <algorithm>

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view contents = fuzz::textOf(data, size);
  if (contents.substr(std::min(contents.find_first_not_of(" \t\r\n"), size)).starts_with('{'))
    return 0; // a tokenizer.json has a target of its own
  fuzz::expectOnlyErrors([&] {
    const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(contents, "dict.txt");
    const int32_t known = static_cast<int32_t>(tokenizer->size());
    for (const std::string_view line : {std::string_view(), std::string_view("the hou@@ se </s>\xE3\x80\x80<unk>"),
                                        std::string_view("\xFF\xC3 a\tb\r"), contents.substr(0, 4096)}) {
      const std::vector<int32_t> ids = tokenizer->encode(line);
      for (const int32_t id : ids)
        fuzz::expect(id >= 0 && id < known, "an id is one of the list");
      tokenizer->decode(ids);
      const std::vector<std::string> unknowns = tokenizer->unknowns(line);
      fuzz::expect(std::ranges::count(ids, tokenizer->special().unk) == static_cast<int64_t>(unknowns.size()),
                   "each unknown token has a text");
      tokenizer->decode(ids, unknowns);
    }
    for (int32_t id = 0; id < std::min(known, 100); ++id) {
      const std::string word = tokenizer->piece(id);
      const int32_t found = tokenizer->idOf(word);
      fuzz::expect(found >= 0 && found < known && (word.empty() || tokenizer->piece(found) == word),
                   "a word is found by its text");
    }
  });
  return 0;
}
