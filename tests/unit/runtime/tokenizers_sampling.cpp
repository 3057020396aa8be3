// Tests random segmentations: their distribution, their text, and that they depend on the generator only.
#include "tokenizers/Tokenizer.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

using namespace xfc;

namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;
using Probabilities = std::map<Ids, double>;
using Pieces = std::vector<std::pair<std::string, float>>; // with their scores

// Fields of a protocol buffer, of which SentencePiece's models consist.
std::string bytesField(int number, const std::string &bytes) {
  EXPECT_LT(bytes.size(), 128u);
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string numberField(int number, int value) { return {static_cast<char>(number << 3), static_cast<char>(value)}; }
std::string pieceField(const std::string &text, float score, int type) {
  char bytes[sizeof score];
  std::memcpy(bytes, &score, sizeof score);
  return bytesField(1, bytesField(1, text) + static_cast<char>(2 << 3 | 5) + std::string(bytes, sizeof bytes) +
                           numberField(3, type));
}

enum Kind { Unigrams = 1, BytePairs = 2, Words = 3, Characters = 4 };

// A SentencePiece model that takes text as it is: ids 0 to 2 are <unk>, <s> and </s>, and the pieces follow.
std::string sentencePiece(Kind kind, const Pieces &pieces) {
  enum { normal = 1, unknown = 2, control = 3 };
  std::string model = pieceField("<unk>", 0, unknown) + pieceField("<s>", 0, control) + pieceField("</s>", 0, control);
  for (const auto &[text, score] : pieces)
    model += pieceField(text, score, normal);
  const std::string noDummyPrefix = numberField(3, 0);
  return model + bytesField(2, numberField(3, kind)) + bytesField(3, bytesField(1, "identity") + noDummyPrefix);
}

// The vocabulary as a tokenizer.json.
std::string jsonUnigrams(const Pieces &pieces) {
  Json vocab = Json::array({{"<unk>", 0.0}, {"<s>", 0.0}, {"</s>", 0.0}});
  for (const auto &[text, score] : pieces)
    vocab.push_back({text, score});
  return Json{{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}}}.dump();
}

const Pieces &unigramPieces() {
  static const Pieces pieces = {{"a", -1.5f},  {"b", -2.0f},  {"ab", -2.5f},  {"ba", -3.25f},
                                {"aa", -4.0f}, {"aab", -5.f}, {"bab", -4.5f}, {"\u00E9", -6.f}};
  return pieces;
}

// The probability of each segmentation, from the list of all of them.
Probabilities enumerated(const Pieces &pieces, const std::string &text, double alpha) {
  Probabilities all;
  double sum = 0;
  std::function<void(size_t, Ids, double)> extend = [&](size_t at, Ids ids, double score) {
    if (at == text.size()) {
      all[ids] = std::exp(alpha * score);
      sum += all[ids];
    }
    for (size_t i = 0; i < pieces.size(); ++i)
      if (text.compare(at, pieces[i].first.size(), pieces[i].first) == 0) {
        ids.push_back(static_cast<int32_t>(i + 3));
        extend(at + pieces[i].first.size(), ids, score + pieces[i].second);
        ids.pop_back();
      }
  };
  extend(0, {}, 0);
  for (auto &[ids, probability] : all)
    probability /= sum;
  return all;
}

// Draws many segmentations and compares how often each occurs with its probability.
void expectDistribution(const Tokenizer &tokenizer, const std::string &text, double alpha,
                        const Probabilities &expected) {
  constexpr int draws = 20000;
  std::map<Ids, int> counts;
  std::mt19937 random(11);
  for (int i = 0; i < draws; ++i)
    ++counts[tokenizer.sample(text, {alpha, random})];
  for (const auto &[ids, count] : counts)
    EXPECT_TRUE(expected.contains(ids)) << text << ": " << Json(ids).dump();
  for (const auto &[ids, probability] : expected) {
    const double deviation = std::sqrt(probability * (1 - probability) * draws);
    EXPECT_NEAR(counts[ids], probability * draws, 5 * deviation + 1e-9) << text << ": " << Json(ids).dump();
  }
}

} // namespace

TEST(Sampling, UnigramsHaveTheirProbabilities) {
  for (const std::string &contents : {sentencePiece(Unigrams, unigramPieces()), jsonUnigrams(unigramPieces())}) {
    const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(contents, "file");
    ASSERT_TRUE(tokenizer->canSample());
    for (const double alpha : {0.1, 0.5, 1.0})
      for (const char *text : {"a", "ab", "aabab", "ba\u00E9ab"}) {
        const Probabilities expected = enumerated(unigramPieces(), text, alpha);
        expectDistribution(*tokenizer, text, alpha, expected);
        const auto likeliest = std::ranges::max_element(expected, {}, &Probabilities::value_type::second);
        EXPECT_EQ(tokenizer->encode(text), likeliest->first);
      }
    // Unknown characters are one token, as in the best segmentation.
    expectDistribution(*tokenizer, "axyab", 0.5,
                       {{{3, 0, 3, 4}, 1 / (1 + std::exp(0.5))}, {{3, 0, 5}, std::exp(0.5) / (1 + std::exp(0.5))}});
  }
}

// The merges are bc, ab and abc, in this order.
TEST(Sampling, BytePairsLeaveOutMerges) {
  const Json file = {{"model",
                      {{"type", "BPE"},
                       {"vocab", {{"<unk>", 0}, {"a", 3}, {"b", 4}, {"c", 5}, {"bc", 6}, {"ab", 7}, {"abc", 8}}},
                       {"ignore_merges", true},
                       {"merges", {"b c", "a b", "a bc"}}}}};
  const std::string model =
      sentencePiece(BytePairs, {{"a", -9.f}, {"b", -9.f}, {"c", -9.f}, {"bc", -1.f}, {"ab", -2.f}, {"abc", -3.f}});
  for (const double p : {0.1, 0.6})
    for (const std::string &contents : {file.dump(), model}) {
      const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(contents, "file");
      ASSERT_TRUE(tokenizer->canSample());
      const double kept = 1 - p;
      // SentencePiece merges any two parts that are a piece together, so that there ab and c may still become abc.
      const double late = contents == model ? p * kept * kept : 0;
      expectDistribution(
          *tokenizer, "abc", p,
          {{{8}, kept * kept + late}, {{3, 6}, kept * p}, {{7, 5}, p * kept - late}, {{3, 4, 5}, p * p}});
      // In a tokenizer.json, a merge that was left out has another chance after the next merge.
      const double both = kept * kept * (contents == model ? 1 : 1 + p);
      expectDistribution(
          *tokenizer, "bcab", p,
          {{{6, 7}, both}, {{6, 3, 4}, kept * p}, {{4, 5, 7}, p * kept - (both - kept * kept)}, {{4, 5, 3, 4}, p * p}});
    }
  std::mt19937 random;
  for (const std::string &contents : {file.dump(), model}) {
    const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(contents, "file");
    EXPECT_EQ(tokenizer->sample("abcab", {1, random}), (Ids{3, 4, 5, 3, 4}));
  }
}

// Equal generators give equal segmentations, in any order, on any thread.
TEST(Sampling, DependsOnTheGeneratorOnly) {
  const std::vector<std::string> lines = {"aabababab", "babaab", "ababaabaabab"};
  for (const std::string &contents : {sentencePiece(Unigrams, unigramPieces()), jsonUnigrams(unigramPieces())}) {
    const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(contents, "file");
    auto drawn = [&](size_t i) {
      std::mt19937 random(static_cast<uint32_t>(5 + i));
      return tokenizer->sample(lines[i % lines.size()], {0.3, random});
    };
    std::vector<Ids> forwards(60), backwards(60), elsewhere(60);
    for (size_t i = 0; i < 60; ++i)
      forwards[i] = drawn(i);
    for (size_t i = 60; i-- > 0;)
      backwards[i] = drawn(i);
    std::thread([&] {
      for (size_t i = 0; i < 60; i += 2)
        elsewhere[i] = drawn(i);
    }).join();
    for (size_t i = 1; i < 60; i += 2)
      elsewhere[i] = drawn(i);
    EXPECT_EQ(forwards, backwards);
    EXPECT_EQ(forwards, elsewhere);
    EXPECT_NE(forwards[0], forwards[3]); // the same line from another generator
    // A generator goes on where it was, so that the parts of a line are drawn independently.
    std::mt19937 random(5);
    const Ids first = tokenizer->sample(lines[0], {0.3, random});
    EXPECT_NE(random, std::mt19937(5));
    EXPECT_EQ(first, forwards[0]);
  }
}

TEST(Sampling, TextStaysTheSame) {
  std::mt19937 random(3);
  for (const std::string &contents :
       {sentencePiece(Unigrams, unigramPieces()), sentencePiece(BytePairs, unigramPieces())}) {
    const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(contents, "file");
    for (int i = 0; i < 200; ++i) {
      std::string line;
      for (unsigned length = random() % 30; length > 0; --length)
        line += "ab"[random() % 2];
      EXPECT_EQ(tokenizer->decode(tokenizer->sample(line, {0.4, random})), line);
    }
  }
}

TEST(Sampling, NeedsSeveralSegmentations) {
  const Pieces pieces = {{"a", -1.f}, {"b", -1.f}};
  EXPECT_FALSE(makeTokenizer(sentencePiece(Characters, pieces), "file")->canSample());
  EXPECT_FALSE(makeTokenizer(sentencePiece(Words, pieces), "file")->canSample());
  EXPECT_FALSE(makeTokenizer("<unk>\na\nb\n", "file")->canSample());
}
