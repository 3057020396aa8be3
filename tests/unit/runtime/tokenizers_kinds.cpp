// Tests the kinds of tokenizers: how they encode lines, and what they refuse.
#include "support/Error.h"
#include "tokenizers/ByteCharacters.h"
#include "tokenizers/MappedSentencePiece.h"
#include "tokenizers/TokenTable.h"
#include "tokenizers/Tokenizer.h"
#include "tokenizers/Utf8.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sentencepiece_trainer.h>

using namespace xfc;

namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

std::string faultOf(const std::string &contents) {
  try {
    makeTokenizer(contents, "file");
    return "";
  } catch (const Error &error) {
    return error.what();
  }
}

// Letters a, b, c and the blank of byte-level BPE, and their merges.
Json byteLevel() {
  return {{"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"\u0120", 3}, {"ab", 4}, {"bc", 5}, {"\u0120ab", 6}, {"abc", 7}}},
            {"merges", {"b c", "a b", "\u0120 ab", "a bc"}}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"added_tokens",
           {{{"id", 8}, {"content", "<s>"}, {"special", true}}, {{"id", 9}, {"content", "</s>"}, {"special", true}}}},
          {"post_processor", {{"type", "RobertaProcessing"}, {"sep", {"</s>", 9}}, {"cls", {"<s>", 8}}}}};
}

Json unigram() {
  return {
      {"model",
       {{"type", "Unigram"},
        {"unk_id", 0},
        {"vocab",
         Json::array({{"<unk>", 0.0}, {"\u2581", -2.0}, {"a", -1.0}, {"b", -1.5}, {"ab", -2.0}, {"\u2581ab", -3.0}})}}},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}}},
      {"decoder", {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}}}};
}

} // namespace

TEST(Tokenizers, BytePairsAreMergedByRank) {
  const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(byteLevel().dump(), "file");
  EXPECT_EQ(tokenizer->size(), 10);
  // "b c" is merged before "a b", and then "a bc" merges the rest.
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{7}));
  EXPECT_EQ(tokenizer->encode("ab abcb"), (Ids{4, 3, 7, 1}));
  EXPECT_EQ(tokenizer->encode("ab ab"), (Ids{4, 6}));
  EXPECT_EQ(tokenizer->encode("a  b"), (Ids{0, 3, 3, 1}));
  EXPECT_EQ(tokenizer->encode("a</s>b"), (Ids{0, 9, 1}));
  EXPECT_EQ(tokenizer->encode(""), (Ids{}));
  EXPECT_EQ(tokenizer->decode(Ids{8, 4, 6, 9}), "ab ab");
  EXPECT_EQ(tokenizer->frame()->prefix, (Ids{8}));
  EXPECT_EQ(tokenizer->frame()->suffix, (Ids{9}));
  EXPECT_EQ(tokenizer->special().eos, 9);
  EXPECT_EQ(tokenizer->special().pad, -1);
  EXPECT_EQ(tokenizer->idOf("</s>"), 9);
  EXPECT_EQ(tokenizer->idOf("xyz"), -1);
}

TEST(Tokenizers, UnigramTakesTheBestPath) {
  const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(unigram().dump(), "file");
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{5}));            // -3 beats -2 -2
  EXPECT_EQ(tokenizer->encode("aab"), (Ids{1, 2, 4}));     // -2 -1 -2
  EXPECT_EQ(tokenizer->encode("axyb"), (Ids{1, 2, 0, 3})); // consecutive unknown characters are one token
  EXPECT_EQ(tokenizer->encode("a b"), (Ids{1, 2, 1, 3}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 2, 1, 3}), "a b");
  EXPECT_EQ(tokenizer->frame(), nullptr);
}

TEST(Tokenizers, WhatIsNotKnownIsRefusedByName) {
  auto with = [](Json json, const char *pointer, const Json &value) {
    json[Json::json_pointer(pointer)] = value;
    return faultOf(json.dump());
  };
  auto expect = [](const std::string &fault, const char *what) {
    EXPECT_NE(fault.find(what), std::string::npos) << fault;
  };
  expect(with(byteLevel(), "/model/type", "WordPiece"), "file: model.type: unknown model");
  expect(with(byteLevel(), "/normalizer", {{"type", "BertNormalizer"}}), "normalizer.type: unknown normalizer");
  expect(with(byteLevel(), "/pre_tokenizer/type", "Split"), "found \"Split\"");
  expect(with(byteLevel(), "/decoder/type", "CTC"), "decoder.type: unknown decoder");
  expect(with(byteLevel(), "/post_processor/type", "Other"), "post_processor.type: unknown post-processor");
  expect(with(byteLevel(), "/post_processor/sep/1", 10),
         "post_processor.sep[1]: expected an integer from 0 to 9, found 10");
  expect(with(byteLevel(), "/model/merges/0", "b d"), "model.merges[0]: d is not in vocab");
  expect(with(byteLevel(), "/model/merges/0", "b"), "model.merges[0]: expected two tokens");
  expect(with(byteLevel(), "/model/vocab/a", 1000000000), "a token has the id 1000000000");
  expect(with(byteLevel(), "/model/vocab/a", -1), "model.vocab.a: expected an integer from 0");
  expect(with(byteLevel(), "/added_tokens/0/id", 1000000000), "added_tokens[0].id: expected");
  expect(with(byteLevel(), "/normalizer", {{"type", "Replace"}, {"content", ""}, {"pattern", {{"Regex", "(a|b)*"}}}}),
         "normalizer.pattern: unsupported regular expression");
  expect(with(byteLevel(), "/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}),
         "normalization table");
  expect(with(unigram(), "/model/unk_id", 6), "model.unk_id: expected an integer from 0 to 5");
  expect(with(unigram(), "/model/vocab/1/1", "x"), "model.vocab[1][1]: expected a number");
  expect(faultOf("{}"), "file: the file: not a tokenizer.json");
  expect(faultOf("{\"model\": "), "file: line 1, column 11: not JSON");
  expect(faultOf("[1]"), "file: not a vocabulary");
  expect(faultOf(""), "not a SentencePiece model (it is empty)");
}

// As tokenizers 0.23 does: found in normalized text, a token is decoded to what it was found as.
TEST(Tokenizers, AddedTokensAreDecodedNormalized) {
  Json json = unigram();
  json["normalizer"] = {{"type", "Lowercase"}};
  json["added_tokens"] = {{{"id", 6}, {"content", "AB c"}, {"special", false}, {"normalized", true}},
                          {{"id", 7}, {"content", "AB"}, {"special", false}, {"normalized", false}}};
  const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(json.dump(), "file");
  EXPECT_EQ(tokenizer->encode("aB C"), Ids{6});
  EXPECT_EQ(tokenizer->decode(Ids{6}), "ab c");
  EXPECT_EQ(tokenizer->decode(Ids{7}), "AB");
  EXPECT_EQ(tokenizer->piece(6), "AB c");
  EXPECT_EQ(tokenizer->idOf("AB c"), 6);
}

TEST(Tokenizers, WordsAndDictionaries) {
  const std::unique_ptr<Tokenizer> words = makeTokenizer("<pad>\n<unk>\n</s>\nthe\nhou@@\nse\n", "file");
  EXPECT_EQ(words->encode("the hou@@ se  zebra"), (Ids{3, 4, 5, 1}));
  EXPECT_EQ(words->decode(Ids{3, 4, 5, 2, 0}), "the house");
  EXPECT_EQ(words->special().pad, 0);
  EXPECT_EQ(words->size(), 6);
  const std::unique_ptr<Tokenizer> dictionary = makeTokenizer("the 100\r\nhou@@ 50\r\nse 7\r\n", "file");
  EXPECT_EQ(dictionary->encode("the se"), (Ids{4, 6}));
  EXPECT_EQ(dictionary->special().eos, 2);
}

TEST(Tokenizers, SentencePieceWithIdsOfItsOwn) {
  MappedSentencePiece map;
  std::vector<std::string> lines;
  for (int i = 0; i < 200; ++i)
    lines.push_back("the little house number " + std::to_string(i));
  ASSERT_TRUE(sentencepiece::SentencePieceTrainer::Train(
                  {{"model_type", "bpe"}, {"vocab_size", "60"}, {"minloglevel", "2"}}, lines, &map.model)
                  .ok());
  map.tokens = {"</s>", "<unk>", ">>fr<<", "\u2581the", "\u2581", "", "<pad>"};
  map.ids = {.pad = 6, .unk = 1, .bos = -1, .eos = 0};
  map.special = {0, 1, 6};
  map.tags = true;
  map.frame.suffix = {0};
  const std::string contents = map.written();
  const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(contents, "file");
  EXPECT_EQ(tokenizer->size(), 7);
  EXPECT_EQ(tokenizer->encode("the"), (Ids{3}));
  EXPECT_EQ(tokenizer->encode(">>fr<< the"), (Ids{2, 3}));
  EXPECT_EQ(tokenizer->encode(">>de<< the"), (Ids{1, 3})); // a language that the model does not have
  EXPECT_EQ(tokenizer->encode("the</s>the"), (Ids{3, 0, 3}));
  EXPECT_EQ(tokenizer->decode(Ids{3, 1, 3, 0}), "the the");
  EXPECT_EQ(tokenizer->decode(Ids{4, 3, 4}), "the");
  map.strip = false;
  EXPECT_EQ(makeTokenizer(map.written(), "file")->decode(Ids{4, 3, 4}), "the "); // as SentencePiece does
  EXPECT_TRUE(stripsLines(contents));
  EXPECT_FALSE(stripsLines(map.written()));
  EXPECT_FALSE(stripsLines(map.model));
  map.strip = true;
  EXPECT_EQ(tokenizer->frame()->suffix, (Ids{0}));
  EXPECT_EQ(tokenizer->special().eos, 0);
  EXPECT_FALSE(tokenizer->fillsTables());
  EXPECT_NE(faultOf(contents.substr(0, 40)), "");
  EXPECT_NE(faultOf(contents.substr(0, contents.size() - map.model.size() / 2)).find("file: not a SentencePiece model"),
            std::string::npos);
  // Lines may get normalized punctuation first.
  EXPECT_EQ(tokenizer->encode("the  the"), tokenizer->encode("the the"));
  EXPECT_NE(tokenizer->encode("the ( the"), tokenizer->encode("the (the"));
  const std::string normalizing = withPunctuation(contents, "en");
  EXPECT_EQ(makeTokenizer(normalizing, "file")->encode(">>fr<<the ( the"), tokenizer->encode(">>fr<<the (the"));
  map.punctuation = "en";
  EXPECT_EQ(makeTokenizer(map.written(), "file")->encode("the ( the"), tokenizer->encode("the (the"));
  try {
    withPunctuation(byteLevel().dump(), "en");
    FAIL();
  } catch (const Error &error) {
    EXPECT_NE(std::string(error.what()).find("this tokenizer has its own normalization"), std::string::npos);
  }
  map.special = {7};
  EXPECT_NE(faultOf(map.written()).find("special[0]: expected an integer from 0 to 6"), std::string::npos);
}

namespace {

using Texts = std::vector<std::string>;

// What the line has for its unknown tokens, and the line that its tokens give with these texts in their place.
void expectUnknowns(const Tokenizer &tokenizer, const std::string &line, const Texts &expected,
                    const std::string &again) {
  const Ids ids = tokenizer.encode(line);
  const Texts found = tokenizer.unknowns(line);
  EXPECT_EQ(found, expected) << line;
  EXPECT_EQ(static_cast<size_t>(std::ranges::count(ids, tokenizer.special().unk)), found.size()) << line;
  EXPECT_EQ(tokenizer.decode(ids, found), again);
}

} // namespace

TEST(Tokenizers, UnknownTokensAreWhatTheLineHas) {
  expectUnknowns(*makeTokenizer("<pad>\n<unk>\n</s>\nthe\nhou@@\nse\n", "file"),
                 "the zebra hou@@  se \xC3\xA9@@ se <unk>", {"zebra", "\xC3\xA9@@", "<unk>"},
                 "the zebra house \xC3\xA9se <unk>");
  // Unknown characters that follow each other are one token.
  const std::unique_ptr<Tokenizer> pieces = makeTokenizer(unigram().dump(), "file");
  expectUnknowns(*pieces, "ab xya z", {"xy", "z"}, "ab xya z");
  expectUnknowns(*pieces, "<unk>x", {"<unk>x"}, "<unk>x");
  Json pairs = {{"model",
                 {{"type", "BPE"},
                  {"vocab", {{"<unk>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}}},
                  {"merges", {"a b"}},
                  {"unk_token", "<unk>"},
                  {"fuse_unk", false}}},
                {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                {"added_tokens", {{{"id", 0}, {"content", "<unk>"}, {"special", true}}}}};
  expectUnknowns(*makeTokenizer(pairs.dump(), "file"), "abxy <unk>", {"x", "y", "<unk>"}, "ab x y <unk>");
  pairs["model"]["fuse_unk"] = true;
  expectUnknowns(*makeTokenizer(pairs.dump(), "file"), "xyabxy", {"xy", "xy"}, "xy ab xy");
  // Without texts, unknown tokens are what they were.
  EXPECT_EQ(makeTokenizer(pairs.dump(), "file")->decode(Ids{0, 3}), "ab");

  MappedSentencePiece map;
  const Texts lines(100, "the little house of the other house there");
  ASSERT_TRUE(sentencepiece::SentencePieceTrainer::Train(
                  {{"model_type", "bpe"}, {"vocab_size", "30"}, {"minloglevel", "2"}}, lines, &map.model)
                  .ok());
  const std::unique_ptr<Tokenizer> own = makeTokenizer(map.model, "file");
  expectUnknowns(*own, "the \xCE\xBE\xCE\xBF house q\xCE\xBE", {"\xCE\xBE\xCE\xBF", "q\xCE\xBE"},
                 "the \xCE\xBE\xCE\xBF house q\xCE\xBE");
  // A piece that begins a word brings its blank.
  const int32_t unk = own->special().unk, the = own->idOf("\u2581the");
  ASSERT_NE(the, unk);
  EXPECT_EQ(own->decode(Ids{the, unk, the}, Texts{"\u2581xyz"}), "the xyz the");
  EXPECT_EQ(own->decode(Ids{the, unk, the}, Texts{"xyz"}), "thexyz the");
  EXPECT_EQ(own->decode(Ids{unk, the}, Texts{"\u2581xyz"}), "xyz the");
  map.tokens = {"</s>", "<unk>", ">>fr<<", "\u2581the", "\u2581"};
  map.ids = {.pad = -1, .unk = 1, .bos = -1, .eos = 0};
  map.special = {0, 1};
  map.tags = true;
  const std::unique_ptr<Tokenizer> mapped = makeTokenizer(map.written(), "file");
  // A piece that is no token is unknown, too.
  expectUnknowns(*mapped, ">>de<< the \xCE\xBE", {">>de<<", "\xCE\xBE"}, ">>de<< the \xCE\xBE");
  EXPECT_EQ(mapped->decode(Ids{3, 1, 3, 0}, Texts{"\u2581house"}), "the house the");
  EXPECT_EQ(mapped->decode(Ids{1, 3, 0}, Texts{"\u2581house"}), "house the");
}

// A megabyte of text that makes queues and lists long, or is not valid UTF-8, takes no more than seconds and gives only
// valid ids.
TEST(Tokenizers, HostileLines) {
  Json composing = unigram();
  composing["normalizer"] = {{"type", "NFKC"}};
  for (const std::string &contents : {byteLevel().dump(), unigram().dump(), composing.dump()}) {
    const std::unique_ptr<Tokenizer> tokenizer = makeTokenizer(contents, "file");
    std::string marks;
    for (int i = 0; i < 100000; ++i)
      marks += i < 50000 ? "\u0301" : "\u0323"; // in the wrong order
    std::string pairs;
    for (int i = 0; i < 200000; ++i)
      pairs += "ab";
    for (const std::string &line : {std::string(500000, 'a'), std::string(500000, ' '), pairs, "a" + marks,
                                    std::string("\x00\xFF\xC3", 3), std::string("\xED\xA0\x80\xF4\x90\x80\x80 a")})
      for (const int32_t id : tokenizer->encode(line))
        ASSERT_TRUE(id >= 0 && id < tokenizer->size());
    tokenizer->decode(Ids{-1, 0, 1000000});
  }
}

TEST(Tokenizers, ValidUtf8) {
  EXPECT_EQ(validUtf8("a\u00e9\U0001F600"), "a\u00e9\U0001F600");
  EXPECT_EQ(validUtf8("\xF0\x9F\x98"), "\uFFFD");             // truncated: one for the whole sequence
  EXPECT_EQ(validUtf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD"); // a surrogate
  EXPECT_EQ(validUtf8("\xC3("), "\uFFFD(");
  std::string all;
  for (int i = 0; i < 256; ++i)
    all += static_cast<char>(i);
  EXPECT_EQ(charactersAsBytes(bytesAsCharacters(all)), all);
  EXPECT_EQ(charactersAsBytes("a b"), "a b"); // a blank stands for no byte
}

TEST(Tokenizers, PrefixesAreFoundShortestFirst) {
  TokenTable table;
  for (const char *token : {"a", "abc", "", "ab", "b"})
    table.add(static_cast<int32_t>(table.size()), token);
  table.finish();
  std::vector<std::pair<size_t, int32_t>> found;
  table.prefixes().forEachPrefix("abcd", [&](size_t length, int32_t id) { found.emplace_back(length, id); });
  EXPECT_EQ(found, (std::vector<std::pair<size_t, int32_t>>{{1, 0}, {2, 3}, {3, 1}}));
  EXPECT_EQ(table.find(""), -1);
  EXPECT_EQ(table.find("abcd"), -1);
  EXPECT_EQ(table.text(3), "ab");
}
