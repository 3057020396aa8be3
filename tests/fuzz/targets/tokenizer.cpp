// Fuzzes tokenizer.json files: an accepted one gives ids within its vocabulary for any text, and text for any ids.
#include "tokenizers/Tokenizer.h"
#include "../JsonMutator.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::expectOnlyErrors([&] {
    const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(fuzz::textOf(data, size), "tokenizer.json");
    if (const Frame *frame = tokenizer->frame())
      for (const std::vector<int32_t> &ids : {frame->prefix, frame->suffix})
        for (const int32_t id : ids)
          fuzz::expect(id >= 0 && id < tokenizer->size(), "a frame has ids of the tokenizer");
    for (const char *line : {"", " ", "ab abc  a'b", "\xC2\xBD \xEF\xBC\xA1 e\xCC\x81\xCC\xA3  ", "<s>a</s> b",
                             "\xE2\x96\x81"
                             "a\xFF\xC3",
                             "\xED\x95\x9C \xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 12"}) {
      const std::vector<int32_t> ids = tokenizer->encode(line);
      for (const int32_t id : ids) {
        fuzz::expect(id >= 0 && id < tokenizer->size(), "an id is one of the tokenizer");
        tokenizer->piece(id);
      }
      tokenizer->decode(ids);
      tokenizer->decode(ids, tokenizer->unknowns(line));
      std::mt19937 random(1);
      for (const int32_t id : tokenizer->canSample() ? tokenizer->sample(line, {0.3, random}) : ids)
        fuzz::expect(id >= 0 && id < tokenizer->size(), "a sampled id is one of the tokenizer");
    }
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  return fuzz::replaced(data, size, most, fuzz::JsonMutator(seed).change(fuzz::textOf(data, size), most));
}
