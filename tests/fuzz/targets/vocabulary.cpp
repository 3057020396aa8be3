// Fuzzes SentencePiece models: an accepted one is used on text, with the library instrumented.
#include "vocabularies/Vocabulary.h"
#include "../Fuzz.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::expectOnlyErrors([&] {
    const Vocabulary vocabulary = Vocabulary::fromBytes(fuzz::textOf(data, size), "vocabulary", 0);
    vocabulary.hash();
    for (const char *line : {"", "abc def", "\xC2\xBD \xEF\xBC\xA1 \xE2\x84\xAB  ", "zzzz \xF0\x9F\x98\x80 a\tb",
                             "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
      const std::vector<int32_t> ids = vocabulary.encode(line, Format::Text, "line");
      vocabulary.decode(ids, Format::Text);
      vocabulary.decode(ids, Format::Text, vocabulary.pieces(ids, line, Format::Text));
      if (vocabulary.canSample()) {
        std::mt19937 random(1);
        for (const int32_t id : vocabulary.sample(line, {0.3, random}))
          fuzz::expect(id >= 0 && id < vocabulary.size(), "a sampled id is one of the vocabulary");
      }
      for (int32_t id : ids)
        vocabulary.piece(id);
    }
  });
  return 0;
}

// A model is a message of length-delimited fields, most of which are pieces. Changes, removes or repeats one field.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  fuzz::Random random(seed);
  const std::string_view model = fuzz::textOf(data, size);
  struct Field {
    size_t begin, contents, end;
  };
  std::vector<Field> fields;
  for (size_t at = 0; at + 1 < size;) {
    Field field{at, at + 1, 0};
    uint64_t length = 0;
    for (int shift = 0; shift < 35 && field.contents < size; shift += 7) {
      const uint8_t byte = data[field.contents++];
      length |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128)
        break;
    }
    field.end = field.contents + length;
    if ((data[at] & 7) != 2 || field.end > size)
      break;
    fields.push_back(field);
    at = field.end;
  }
  if (fields.empty() || random.oneIn(8))
    return LLVMFuzzerMutate(data, size, most);
  auto written = [](char tag, const std::string &contents) {
    std::string bytes(1, tag);
    for (size_t length = contents.size();; length >>= 7) {
      bytes += static_cast<char>((length & 127) | (length > 127 ? 128 : 0));
      if (length <= 127)
        return bytes + contents;
    }
  };
  const Field &field = fields[random.below(fields.size())];
  const std::string before(model.substr(0, field.begin)), whole(model.substr(field.begin, field.end - field.begin)),
      contents(model.substr(field.contents, field.end - field.contents)), after(model.substr(field.end));
  switch (random.below(6)) {
  case 0:
    return fuzz::replaced(data, size, most, before + after);
  case 1:
    return fuzz::replaced(data, size, most, before + whole + whole + after);
  case 2: { // a 32-bit word of a table, or of anything else
    std::string changed = contents;
    if (changed.size() >= 4) {
      const uint32_t words[] = {0,          1,          0xFF,       0x400,
                                0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, static_cast<uint32_t>(random.next())};
      const uint32_t word = words[random.below(std::size(words))];
      std::memcpy(changed.data() + (random.below(changed.size() - 3) & ~size_t(3)), &word, sizeof word);
    }
    return fuzz::replaced(data, size, most, before + written(whole[0], changed) + after);
  }
  default:
    return fuzz::replaced(data, size, most,
                          before + written(whole[0], fuzz::changedBytes(contents, contents.size() + 64)) + after);
  }
}
