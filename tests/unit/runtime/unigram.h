// A vocabulary whose tokenizer can segment text in several ways, for tests of segmenting at random.
#pragma once

#include "vocabularies/Vocabulary.h"

namespace xfc {

// Twenty ids, ten of which have pieces: of "a" and "b", and of two and three of them together.
inline Vocabulary unigramVocabulary() {
  return Vocabulary::fromBytes(
      R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["</s>", 0], ["<s>", 0], ["\u2581", -2],
          ["a", -2], ["b", -2.5], ["ab", -3], ["aba", -4], ["\u2581ab", -4.5], ["bb", -4]]},
          "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
          "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
          "added_tokens": [{"id": 1, "content": "</s>", "special": true}, {"id": 2, "content": "<s>", "special": true}]})",
      "tokenizer.json", 20);
}

} // namespace xfc
