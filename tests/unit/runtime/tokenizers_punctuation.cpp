// Tests the normalization of punctuation. The expected lines are those of sacremoses 0.2.0.
#include "tokenizers/Punctuation.h"
#include "tokenizers/Utf8.h"
#include <gtest/gtest.h>
#include <string>

using namespace xfc;

TEST(Punctuation, IsThatOfMoses) {
  static const struct {
    const char *language, *line, *expected;
  } lines[] = {
      {"en", "  He said ( quietly ) : \u201CYes\u201D , and left .\r", "He said (quietly): \"Yes\" , and left ."},
      {"en", "\u201CYes\u201D, he said; \"no\".,. ``quoted''", "\"Yes,\" he said; \"no.,.\" \" quoted \""},
      {"en", "It\u2019s 5 % \u2013 or 6% \u2014 he\u2018s sure\u2026", "It's 5% - or 6% - he's sure..."},
      {"en", "1\u00A0000\u00A0000 and 12\u00A0%", "1.000.000 and 12%"},
      {"en", "\u0663\u00A0\u0664 a(b)c (d) . e(f)!", "\u0663.\u0664 a (b) c (d). e (f)!"},
      {"de", "Er sagte: \u201EGut,\u201C dann ging er.", "Er sagte: \"Gut\", dann ging er."},
      {"de", "\u201EEs ist gut.\u201C Dann ging er. \u201EJa.\u201C", "\"Es ist gut\". Dann ging er. \"Ja.\""},
      {"de", "\u201EJa.\u201C<b> \u201ENein...\u201C  <i> 3\u00A0000\u00A0Euro",
       "\"Ja.\"<b> \"Nein\"... <i> 3,000\u00A0Euro"},
      {"fr",
       "\u00AB\u00A0Bonjour\u00A0\u00BB\u00A0: \u00E7a va\u00A0? Oui\u00A0! n\u00BA\u00A05, 20\u00A0cm, "
       "20\u00A0\u00BAC,\u00A0vu\u00A0;",
       "\"Bonjour\": \u00E7a va? Oui! n\u00BA 5, 20 cm, 20 \u00BAC, vu;"},
      {"fr", "L\u2019\u00E9t\u00E9, l\u2019an 2000 ; `oui' ''non'' \u00B4\u00B4",
       "L'\u00E9t\u00E9, l'an 2000; 'oui' \" non \" \""},
      {"es", "\u00ABHola,\u00BB dijo. \u00BFQu\u00E9\u00A0? 2\u00A0500", "\"Hola\", dijo. \u00BFQu\u00E9? 2,500"},
      {"cs", "\u201EAno,\u201C \u0159ekl. 2\u00A0500 \u201ANe\u2018", "\"Ano,\" \u0159ekl. 2,500 'Ne'"},
      {"eng", "\"Yes\", 2\u00A0500", "\"Yes\", 2.500"},
      {"ru",
       "\u00AB\u0414\u0430,\u00BB \u0441\u043A\u0430\u0437\u0430\u043B \u043E\u043D. 2\u00A0500 \u2013 "
       "\u044D\u0442\u043E \u043C\u043D\u043E\u0433\u043E",
       "\"\u0414\u0430,\" \u0441\u043A\u0430\u0437\u0430\u043B \u043E\u043D. 2.500 - \u044D\u0442\u043E "
       "\u043C\u043D\u043E\u0433\u043E"},
      {"en", "a\u2019b\u2019c x\u2018y\u2018z", "a'b'c x'y'z"},
      {"en", "\u00A0 \x1C(  ) ", "()"},
      {"de", "a.\".\"b", "a\"..\"b"},
      {"de", "\"Nein.\".\" .", "\"Nein\"..\" ."},
      {"en", "", ""},
  };
  for (const auto &[language, line, expected] : lines)
    EXPECT_EQ(normalizePunctuation(line, language), expected) << language << ": " << line;
}

// Every rule takes time linear in the line's length.
TEST(Punctuation, LongLines) {
  for (const char *part : {"(", ")", " ", "\"", "\".", ".\" ", "''", "\u00A0\u00BB\u00A0", "1\u00A0", "a\u2019", ",\""})
    for (const char *language : {"en", "de", "ru"}) {
      std::string line;
      while (line.size() < 1000000)
        line += part;
      EXPECT_EQ(validUtf8(normalizePunctuation(line, language)), normalizePunctuation(line, language));
    }
}
