// Compares BLEU, chrF and TER with the results of sacreBLEU 2.6.0 for the same strings (sacrebleu.BLEU(),
// sacrebleu.CHRF() and sacrebleu.TER(), corpus_score); sacrebleu_check.py compares many more if sacreBLEU is installed.
#include "metrics/Metrics.h"
#include "support/Error.h"
#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>

using namespace xfc;

namespace {

struct Case {
  std::vector<std::string> hypotheses, references;
  double bleu, chrf, ter;
};

const Case cases[] = {
    {{"the cat sat on the mat"}, {"the cat sat on the mat"}, 100, 100, 0},
    {{"the the the the the the the"},
     {"the cat is on the mat"},
     7.809849842300637,
     14.232426848159646,
     83.33333333333334},
    {{"Hello, world! It's 3.14, isn't it?", "no"},
     {"Hello world, it is 3.14, isn't it?", "yes"},
     43.13894320445206,
     61.813146324487654,
     62.5},
    // No-break spaces, guillemets, dashes and entities.
    {{"L'été dernier\u00a0: « très chaud » – n'est-ce pas ?", "1,000-2,000 km/h & <b>5%</b>", ""},
     {"L'été passé\u00a0: « très chaud » — n'est-ce pas ?", "1,000-2,000 km/h &amp; <b>5 %</b>", "vide"},
     78.24976828620954,
     68.56001797409482,
     35.294117647058826},
    // No line is four words long.
    {{"机器翻译很好。", "a\u3000b"}, {"机器翻译非常好。", "a b"}, 0, 33.51604353295314, 33.33333333333333},
    {{"ab"}, {"abc"}, 0, 63.636363636363626, 100},
    // Stops and commas next to digits.
    {{"a.b,c 1.5 1. .5 x..y ,, 3-4 a-b"},
     {"a. b, c 1.5 1 . .5 x.y ,, 3 - 4 a-b"},
     90.09325445966684,
     90.32388425287574,
     69.23076923076923},
    {{"", "x y z w v"}, {"a b", "x y z w u"}, 44.82700320176826, 48.10253636254357, 42.857142857142854},
};

TEST(Metrics, EqualSacreBleu) {
  for (const Case &c : cases) {
    EXPECT_NEAR(metricsOf(c.hypotheses, c.references).bleu().value, c.bleu, 1e-6) << c.hypotheses[0];
    EXPECT_NEAR(metricsOf(c.hypotheses, c.references).chrf().value, c.chrf, 1e-6) << c.hypotheses[0];
    EXPECT_NEAR(metricsOf(c.hypotheses, c.references).ter().value, c.ter, 1e-6) << c.hypotheses[0];
  }
}

// Edits that move words, at the limits of the search.
TEST(Metrics, EditsAreThoseOfSacreBleu) {
  auto words = [](int count, auto number) {
    std::string line;
    for (int i = 0; i < count; ++i)
      line += "w" + std::to_string(number(i)) + " ";
    return line;
  };
  auto counting = [](int i) { return i; };
  struct {
    std::string hypothesis, reference;
    double ter;
  } const lines[] = {
      {"d e f a b c", "a b c d e f", 16.666666666666664},
      {"c a b x d", "a b c d", 50},
      {"Le GRAND chat ΟΔΟΣ ΣΑΣ. İl", "le grand chat οδος σας. i̇l", 0},
      {"a b", "", 100},
      {"", "a b c", 100},
      {"", "", 0},
      {"one", words(80, counting) + "one", 98.76543209876543},
      {words(40, [](int i) { return i * 7 % 40; }), words(40, counting), 92.5},
      {words(45, [](int i) { return i * i % 5; }), words(50, [](int i) { return i * 3 % 5; }), 57.99999999999999},
  };
  for (const auto &[hypothesis, reference, ter] : lines)
    EXPECT_DOUBLE_EQ(metricsOf({hypothesis}, {reference}).ter().value, ter) << hypothesis;
}

TEST(Metrics, Signatures) {
  EXPECT_EQ(metricsOf({"a"}, {"a"}).bleu().signature, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0");
  EXPECT_EQ(metricsOf({"a"}, {"a"}).chrf().signature, "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0");
  EXPECT_EQ(metricsOf({"a"}, {"a"}).ter().signature,
            "nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0");
}

TEST(Metrics, UnequalCountsAreAnError) {
  EXPECT_THROW(metricsOf({"a", "b"}, {"a"}).bleu(), Error);
  EXPECT_THROW(metricsOf({"a"}, {}).chrf(), Error);
}

TEST(Metrics, EmptyIsZero) {
  EXPECT_EQ(metricsOf({""}, {""}).bleu().value, 0);
  EXPECT_EQ(metricsOf({""}, {""}).chrf().value, 0);
}

TEST(Metrics, LongLinesTakeLinearTime) {
  std::string line;
  for (int i = 0; i < 200000; ++i)
    line += "&amp;";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NEAR(metricsOf({line + " a b c d"}, {line + " a b c d"}).bleu().value, 100, 1e-9);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 10);
}

TEST(Metrics, SumsOfPartsAreThoseOfTheWhole) {
  const std::vector<std::string> hypotheses = {"the cat sat on the mat", "a &lt;b&gt; c, d.", ""},
                                 references = {"the cat is on the mat", "a <b> c, d.", "x"};
  MetricSums sums;
  for (size_t i = 0; i < hypotheses.size(); ++i)
    sums.add(hypotheses[i], references[i]);
  EXPECT_EQ(sums.bleu().value, metricsOf(hypotheses, references).bleu().value);
  EXPECT_EQ(sums.chrf().value, metricsOf(hypotheses, references).chrf().value);
  EXPECT_EQ(sums.ter().value, metricsOf(hypotheses, references).ter().value);
  EXPECT_GT(sums.bleu().value, 30);
}

} // namespace

TEST(Metrics, ExpectedUtilitiesAreMeansOverAllLines) {
  // Of each pair, by sacrebleu.sentence_chrf and sentence_bleu.
  const std::vector<std::string> lines = {"the cat sat", "the cat sat", "a cat sits", ""};
  const double there = 27.723243473088623, back = 25.551121214386512;
  const std::vector<double> chrf = expectedUtilities(Utility::Chrf, lines);
  EXPECT_NEAR(chrf[0], (100 + 100 + there) / 4, 1e-9);
  EXPECT_EQ(chrf[0], chrf[1]);
  EXPECT_NEAR(chrf[2], (2 * back + 100) / 4, 1e-9);
  EXPECT_EQ(chrf[3], 0);
  const std::vector<double> bleu = expectedUtilities(Utility::Bleu, lines);
  EXPECT_NEAR(bleu[0], (100 + 100 + 27.516060407455225) / 4, 1e-9);
  EXPECT_NEAR(bleu[2], (2 * 27.516060407455225 + 100) / 4, 1e-9);
  EXPECT_EQ(bleu[3], 0);
  EXPECT_TRUE(expectedUtilities(Utility::Chrf, {}).empty());
}
