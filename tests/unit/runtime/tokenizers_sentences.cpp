// Where sentences end, and how long ones are cut.
#include "tokenizers/Sentences.h"
#include <gtest/gtest.h>
#include <string>

using namespace xfc;

namespace {

// The parts, with a bar between two of them.
std::string joined(const std::vector<std::string_view> &parts) {
  std::string result;
  for (const std::string_view part : parts)
    result += (result.empty() ? "" : "|") + std::string(part);
  return result;
}
std::string split(const std::string &line) { return joined(sentencesOf(line)); }
std::string cut(const std::string &sentence, size_t most) {
  return joined(partsThatFit(sentence, [&](std::string_view part) { return part.size() <= most; }));
}

} // namespace

TEST(Sentences, WhereTheyEnd) {
  EXPECT_EQ(split(""), "");
  EXPECT_EQ(split(" \t"), "");
  EXPECT_EQ(split("one"), "one");
  EXPECT_EQ(split("  One.  Two!\tThree?  "), "One.|Two!|Three?");
  EXPECT_EQ(split("He said: \"Go.\" She went (at last). \xC2\xBBNo!\xC2\xAB Yes."),
            "He said: \"Go.\"|She went (at last).|\xC2\xBBNo!\xC2\xAB|Yes.");
  EXPECT_EQ(split("Wait... What?! No way!!! 3 more."), "Wait...|What?!|No way!!!|3 more.");
  EXPECT_EQ(split("\"Why?\" he asked. \xC2\xBFQu\xC3\xA9? \xC2\xA1No!"),
            "\"Why?\" he asked.|\xC2\xBFQu\xC3\xA9?|\xC2\xA1No!");
  EXPECT_EQ(split("It is 3.5 at example.com/a.b, v1.2.Next"), "It is 3.5 at example.com/a.b, v1.2.Next");
  EXPECT_EQ(split("... One. ... ! Two. ..."), "... One.|... ! Two. ...");
  EXPECT_EQ(split("!? ..."), "!? ...");
}

TEST(Sentences, AfterAbbreviationsTheyGoOn) {
  EXPECT_EQ(split("Dr. Smith and Mrs. J. R. Jones came, e.g. Tom. They left."),
            "Dr. Smith and Mrs. J. R. Jones came, e.g. Tom.|They left.");
  EXPECT_EQ(split("Am 3. Mai kam z.B. Hr. Meier. Er blieb bis zum 12. Tag. Im Jahr 1999. Dann ging er."),
            "Am 3. Mai kam z.B. Hr. Meier.|Er blieb bis zum 12. Tag.|Im Jahr 1999.|Dann ging er.");
  EXPECT_EQ(split("See No. 5 in Fig. 2. He said no. Then he left."), "See No. 5 in Fig. 2. He said no.|Then he left.");
  EXPECT_EQ(split("the end. and more. \xC3\x89t\xC3\xA9. \xC3\xA9t\xC3\xA9."),
            "the end. and more.|\xC3\x89t\xC3\xA9. \xC3\xA9t\xC3\xA9.");
  EXPECT_EQ(
      split("\xD0\x9D\xD0\xB0 \xD1\x83\xD0\xBB. \xD0\x9B\xD0\xB5\xD0\xBD\xD0\xB8\xD0\xBD\xD0\xB0. \xD0\x94\xD0\xB0."),
      "\xD0\x9D\xD0\xB0 \xD1\x83\xD0\xBB. \xD0\x9B\xD0\xB5\xD0\xBD\xD0\xB8\xD0\xBD\xD0\xB0.|\xD0\x94\xD0\xB0.");
}

TEST(Sentences, OtherScripts) {
  EXPECT_EQ(split("你好。\xE3\x80\x8C再见！\xE3\x80\x8D他说了？好 。"), "你好。|「再见！」|他说了？|好 。");
  EXPECT_EQ(split("यह है। वह था।"), "यह है।|वह था।");
  EXPECT_EQ(split("كيف؟ هذا. نعم۔ لا"), "كيف؟|هذا.|نعم۔|لا");
}

TEST(Sentences, LongOnesAreCut) {
  EXPECT_EQ(cut("one two", 7), "one two");
  EXPECT_EQ(cut("one two, three four", 12), "one two,|three four");
  EXPECT_EQ(cut("a, bbbb cccc dddd eeee ffff", 14), "a, bbbb cccc|dddd eeee ffff");
  EXPECT_EQ(cut("abcdefghij", 4), "ab|cde|fg|hij");
  EXPECT_EQ(cut("你好，再见", 9), "你好，|再见");
  EXPECT_EQ(cut("ab", 0), "a|b"); // as far as it can be done
  EXPECT_EQ(cut("\xC3\xA9\xC3\xA9", 1), "\xC3\xA9|\xC3\xA9");
  const std::string line(100000, 'a');
  EXPECT_EQ(cut(line, 10).size(), 100000 + 16383);
}
