// Tests damaged SentencePiece models: they are refused, or used without reading outside their tables.
#include "allocations.h"
#include "support/Error.h"
#include "tokenizers/SentencePieceModel.h"
#include "tokenizers/Tokenizer.h"
#include <cstring>
#include <gtest/gtest.h>
#include <new>
#include <random>
#include <sentencepiece_trainer.h>

using namespace xfc;

namespace {

class Sentences : public sentencepiece::SentenceIterator {
public:
  Sentences() { make(); }
  bool done() const override { return at == 300; }
  void Next() override {
    ++at;
    make();
  }
  const std::string &value() const override { return line; }
  sentencepiece::util::Status status() const override { return {}; }

private:
  void make() {
    line.clear();
    for (int word = 0; word < 8; ++word)
      line += std::string(1 + (at * 7 + word * 3) % 5, static_cast<char>('a' + (at + word * word) % 20)) + " ";
  }
  int at = 0;
  std::string line;
};

const std::string &trained() {
  static const std::string model = [] {
    Sentences sentences;
    std::string bytes;
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        "--vocab_size=60 --model_type=unigram --minloglevel=2 --hard_vocab_limit=false", &sentences, &bytes);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return bytes;
  }();
  return model;
}

// Finds where the normalization table begins: the last bytes field longer than 100 kB.
size_t tableAt() {
  const std::string name = "nmt_nfkc";
  size_t at = trained().find(name) + name.size();
  EXPECT_EQ(trained()[at], 0x12); // field 2, bytes
  for (++at; trained()[at] & 0x80; ++at) {
  }
  return at + 1;
}

// Loads a model and, if that succeeds, uses it.
bool use(const std::string &bytes) {
  try {
    const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(bytes, "model");
    for (const char *line : {"abc def", "\xC2\xBD \xEF\xBC\xA1 \xE2\x84\xAB", "zzzz \xF0\x9F\x98\x80 a"})
      tokenizer->decode(tokenizer->encode(line));
    return true;
  } catch (const Error &) {
    return false;
  }
}

} // namespace

TEST(SentencePieceModel, WholeOnesPass) {
  EXPECT_EQ(faultOfSentencePieceModel(trained()), "");
  EXPECT_TRUE(use(trained()));
}

TEST(SentencePieceModel, TablesThatPointOutsideAreRefused) {
  const size_t table = tableAt();
  uint32_t size;
  std::memcpy(&size, trained().data() + table, sizeof size);
  ASSERT_GT(size, 100000u);
  auto with = [&](size_t at, uint32_t value) {
    std::string bytes = trained();
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return bytes;
  };
  for (uint32_t other : {0u, 1u, size - 4, size + 1024, 0x7FFFFFFFu, 0xFFFFFFFFu})
    EXPECT_NE(faultOfSentencePieceModel(with(table, other)), "") << other;
  // The root's children, and every node's.
  EXPECT_NE(faultOfSentencePieceModel(with(table + 4, 0x7FFFFC00u)), "");
  EXPECT_NE(faultOfSentencePieceModel(with(table + 4, 0xFFFFFFFFu)), "");
  std::string endless = trained();
  size_t end = table + 4 + size; // the strings
  ASSERT_LT(end, endless.size());
  // A value that points past the strings.
  int changed = 0;
  for (uint32_t i = 0; i < size / 4 && changed == 0; ++i) {
    uint32_t unit;
    std::memcpy(&unit, trained().data() + table + 4 + 4 * i, 4);
    if (unit >> 31) {
      EXPECT_NE(faultOfSentencePieceModel(with(table + 4 + 4 * i, 0xFFFFFFF0u)), "");
      ++changed;
    }
  }
  EXPECT_EQ(changed, 1);
}

TEST(SentencePieceModel, EmptyPiecesAndOddScoresAreRefused) {
  // A piece message in front of the model's own: field 1 of the model; in the message field 1 is the text, 2 the score.
  EXPECT_EQ(faultOfSentencePieceModel(std::string("\x0A\x02\x0A\x00", 4) + trained()), "a piece is empty");
  EXPECT_EQ(faultOfSentencePieceModel(std::string("\x0A\x08\x0A\x01x\x15\x00\x00\xC0\x7F", 10) + trained()),
            "a piece has no finite score");
  for (size_t size : {1u, 10u, 1000u})
    EXPECT_FALSE(use(trained().substr(0, size))) << size;
}

// Wherever memory runs out while a model is loaded, what was made until then is released.
TEST(SentencePieceModel, LoadsWithoutMemoryOrThrows) {
  const std::string &model = trained();
  int64_t number = 0;
  do {
    failingAllocation = allocations + ++number;
    try {
      loadSentencePieceModel(model);
    } catch (const std::bad_alloc &) {
    }
  } while (allocations >= failingAllocation);
  failingAllocation = 0;
  EXPECT_GT(number, 60); // more than there are pieces
}

// Random changed bytes, most of them in the tables: no lookup leaves the tables, and no exception other than Error
// escapes.
TEST(SentencePieceModel, DamagedAtRandom) {
  std::mt19937 random(7);
  const size_t table = tableAt();
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = trained();
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes)
      bytes[round % 2 ? table + random() % 4000 : random() % bytes.size()] = static_cast<char>(random());
    refused += !use(bytes);
  }
  EXPECT_GT(refused, 50);
}
