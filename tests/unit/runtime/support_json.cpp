// Tests the limits of what is read from outside, and how messages show it.
#include "folder.h"
#include "support/Json.h"
#include "support/Quoted.h"
#include <string>

using namespace xfc;

namespace {

using SupportJson = FolderTest;

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST_F(SupportJson, DepthSizeAndKeysAreLimited) {
  EXPECT_EQ(parseJson(R"({"a": [1, {"b": null}], "c": 2.5})", "f")["a"][1]["b"], nullptr);
  EXPECT_EQ(parseOrderedJson(R"({"b": 1, "a": 2})", "f").dump(), R"({"b":1,"a":2})");
  EXPECT_EQ(parseJson(nested(64), "f").dump(), nested(64));
  std::string path;
  for (int level = 0; level < 64; ++level)
    path += "[0]";
  for (const size_t depth : {65, 100000}) {
    EXPECT_EQ(errorOf([&] { parseJson(nested(depth), "f"); }), "f: " + path + ": nested deeper than 64 levels");
    EXPECT_EQ(errorOf([&] { parseOrderedJson(nested(depth), "f"); }), "f: " + path + ": nested deeper than 64 levels");
    EXPECT_FALSE(jsonIn(nested(depth)));
  }
  // Objects count as lists do, and a list that has ended does not.
  std::string objects;
  for (int level = 0; level < 65; ++level)
    objects += "{\"a\":";
  EXPECT_NE(errorOf([&] { parseJson(objects, "f"); }).find("a.a.a: nested deeper than 64 levels"), std::string::npos);
  EXPECT_EQ(parseJson("[" + nested(63) + "," + nested(63) + "]", "f").size(), 2u);

  EXPECT_EQ(errorOf([] { parseJson(R"({"a": [0, {"b": 1, "c": 2, "b": 1}]})", "f"); }),
            "f: a[1].b: given twice in one object; remove one");
  EXPECT_EQ(errorOf([] { parseOrderedJson(R"({"": 1, "": 2})", ""); }),
            "[\"\"]: given twice in one object; remove one");
  EXPECT_EQ(parseJson(R"([{"a": 1}, {"a": 1}])", "f").size(), 2u);
  EXPECT_EQ(errorOf([] { parseJson("[0, 1e999]", "f"); }), "f: [1]: the number is too large for a double");
  EXPECT_EQ(errorOf([] { parseJson("[" + std::string(mostTextBytes, ' ') + "]", "f"); }),
            "f: larger than 16 MB; JSON of that size is not read");
  EXPECT_EQ(parseJson("[" + std::string(mostTextBytes, ' ') + "]", "f", mostLargeBytes).size(), 0u);
}

TEST_F(SupportJson, SyntaxErrorsHaveAPlace) {
  EXPECT_EQ(errorOf([] { parseJson("{\n  \"a\": ]}", "f"); }).substr(0, 32), "f:2:8: not JSON: unexpected ']';");
  EXPECT_EQ(errorOf([] { parseJson("{\n  \"a\": ]}", ""); }).substr(0, 24), "line 2, column 8: not JS");
  EXPECT_FALSE(jsonIn("{"));
  EXPECT_EQ(errorOf([] { parseJson({"{}\n\0x", 5}, "f"); }), "f:2:1: not JSON: a byte of 0");
  EXPECT_EQ(jsonIn(" 7 ").value(), 7);
  // The parser quotes what it read last.
  const std::string message = errorOf([] { parseJson("\"" + std::string(100000, 'x'), "f"); });
  EXPECT_LT(message.size(), 250u) << message;
  EXPECT_EQ(shownJson(nlohmann::json::array({std::string(1000, 'x')})).size(), 63u);
  EXPECT_EQ(shownJson("\n\xC3\xA4"), R"("\n\u00e4")");
}

TEST(SupportQuoted, ForeignTextIsOneShortLine) {
  EXPECT_EQ(escaped("plain, \xC3\xA4 and \xF0\x9F\x98\x80"), "plain, \xC3\xA4 and \xF0\x9F\x98\x80");
  EXPECT_EQ(escaped(std::string("a\nb\r\tc\0\x1b[31m\x7f", 13)), "a\\nb\\r\\tc\\x00\\x1b[31m\\x7f");
  EXPECT_EQ(escaped("\xFFz\xC3"), "\\xffz\\xc3");
  EXPECT_EQ(escaped("\xC2\x9B"), "\\xc2\\x9b"); // a control character of Latin-1
  std::string umlauts;
  for (int i = 0; i < 201; ++i)
    umlauts += "\xC3\xA4";
  EXPECT_EQ(escaped(umlauts), umlauts.substr(0, 400) + "...");
  EXPECT_EQ(escaped(umlauts.substr(0, 400)), umlauts.substr(0, 400));
  EXPECT_EQ(inQuotes("ab", 1), "'a...'");
  std::string words, path = "/";
  for (int i = 0; i < 400; ++i)
    words += "nine more ";
  EXPECT_EQ(oneLine(words), words);
  EXPECT_EQ(oneLine(words + words).size(), 4005u);
  path += std::string(255, 'd') + "/" + std::string(255, 'f');
  EXPECT_EQ(oneLine(path + " is a path"), path + " is a path");
  EXPECT_EQ(oneLine("'" + std::string(900, 'x') + "' is not"),
            "'" + std::string(99, 'x') + " ... " + std::string(99, 'x') + "' is not");
  EXPECT_EQ(oneLine(inQuotes(umlauts) + " is not"), "'" + umlauts.substr(0, 400) + "...' is not");
  const std::string many = umlauts + umlauts + umlauts;
  EXPECT_EQ(oneLine(many + "x"), umlauts.substr(0, 100) + " ... " + umlauts.substr(0, 98) + "x");
  EXPECT_LT(oneLine(std::string(100000, '\x01')).size(), 8100u);
  const std::string cut = oneLine("first" + std::string(1000000, '\n') + "last");
  EXPECT_TRUE(cut.starts_with("first\\n") && cut.ends_with("\\nlast")) << cut;
  EXPECT_LT(cut.size(), 450u);
}

} // namespace
