// Tests that of a line of a megabyte, only the part that is used is tokenized, and that it is tokenized as in the whole
// line.
#include "corpora/LinePairs.h"
#include "vocabularies/Vocabulary.h"
#include <chrono>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <sentencepiece_trainer.h>

using namespace xfc;

namespace {

// Words of letters from a to h, or, without blanks, one word.
std::string lineOf(size_t bytes, bool blanks) {
  std::mt19937 random(1);
  std::string line;
  while (line.size() < bytes)
    line += blanks && random() % 5 == 0 && line.ends_with(' ') == false ? ' ' : static_cast<char>('a' + random() % 8);
  return line;
}

std::string sentencePiece(const std::string &type) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < 200; ++i)
    lines.push_back(lineOf(8192, true).substr(40 * i, 40));
  std::string model;
  EXPECT_TRUE(sentencepiece::SentencePieceTrainer::Train(
                  {{"model_type", type}, {"vocab_size", "120"}, {"minloglevel", "2"}}, lines, &model)
                  .ok());
  return model;
}

// Byte pair encoding that merges two letters, in an order in which neighbours compete, and then two pairs of them.
std::string bytePairs() {
  nlohmann::json vocabulary = {{"\u0120", 0}}, merges = nlohmann::json::array();
  const auto add = [&](const std::string &token) { vocabulary[token] = vocabulary.size(); };
  std::vector<std::string> letters, pairs;
  for (char letter = 'a'; letter <= 'h'; ++letter)
    letters.emplace_back(1, letter);
  for (const std::string &letter : letters)
    add(letter);
  std::mt19937 random(2);
  const auto merge = [&](const std::string &left, const std::string &right) {
    merges.push_back(left + " " + right);
    add(left + right);
  };
  for (const std::string &left : letters)
    for (const std::string &right : letters)
      pairs.push_back(left + right);
  for (size_t i = pairs.size(); i > 1; --i)
    std::swap(pairs[i - 1], pairs[random() % i]);
  for (const std::string &pair : pairs)
    merge(pair.substr(0, 1), pair.substr(1));
  for (size_t i = 0; i + 1 < pairs.size(); i += 2)
    merge(pairs[i], pairs[i + 1]);
  return nlohmann::json{{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}},
                        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}
      .dump();
}

template <typename Work> std::vector<int32_t> timed(double &seconds, const Work &work) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<int32_t> result = work();
  seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

} // namespace

TEST(LongLines, AreTokenizedAsFarAsTheyAreUsed) {
  const std::pair<const char *, std::string> kinds[] = {
      {"unigrams", sentencePiece("unigram")}, {"SentencePiece's BPE", sentencePiece("bpe")}, {"BPE", bytePairs()}};
  for (const auto &[name, contents] : kinds)
    for (const bool blanks : {true, false}) {
      const Vocabulary vocabulary = Vocabulary::fromBytes(contents, "file", 0);
      const std::string line = lineOf(longestLine, blanks);
      double ofWhole = 0;
      const std::vector<int32_t> whole = timed(ofWhole, [&] { return vocabulary.encode(line, Format::Text, "here"); });
      for (const int64_t most : {1, 512, 4096}) {
        double seconds = 0;
        std::vector<int32_t> first =
            timed(seconds, [&] { return vocabulary.encode(line, Format::Text, "here", most); });
        ASSERT_GE(first.size(), static_cast<size_t>(most)) << name;
        // The number of tokens tells how much of the line was read. That takes less time than the whole line does.
        EXPECT_LT(first.size(), static_cast<size_t>(most) * 16 + 4096) << name;
        EXPECT_LT(seconds, ofWhole / 2) << name;
        first.resize(static_cast<size_t>(most));
        EXPECT_TRUE(std::equal(first.begin(), first.end(), whole.begin())) << name << ", blanks: " << blanks << most;
      }
    }
}
