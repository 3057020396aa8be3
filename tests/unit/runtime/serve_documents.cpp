// What is translated in a text and in HTML, and that everything else stays as it is.
#include "serve/Documents.h"
#include <chrono>
#include <gtest/gtest.h>

using namespace xfc;

namespace {

using Lines = std::vector<std::string>;

// The document with each line in brackets.
std::string marked(const Document &document) {
  Lines lines;
  for (const std::string &line : document.lines())
    lines.push_back("[" + line + "]");
  return document.with(lines);
}
std::string text(const std::string &given) { return marked(Document::ofText(given)); }
std::string html(const std::string &given) { return marked(Document::ofHtml(given)); }

} // namespace

TEST(Documents, EveryLineOfATextThatIsNotBlank) {
  EXPECT_EQ(text(""), "");
  EXPECT_EQ(text("one"), "[one]");
  EXPECT_EQ(text("one\n"), "[one]\n");
  EXPECT_EQ(text("one\r\n\r\n \ttwo \n\n"), "[one]\r\n\r\n[ \ttwo ]\n\n");
  EXPECT_EQ(text("\n \nthree"), "\n \n[three]");
  EXPECT_EQ(text("a < b & c"), "[a < b & c]");
}

TEST(Documents, PartsOfALine) {
  const auto words = [](std::string_view line) {
    std::vector<std::string_view> parts;
    for (size_t begin = 0; (begin = line.find_first_not_of(' ', begin)) != std::string_view::npos;) {
      const size_t end = std::min(line.find(' ', begin), line.size());
      parts.push_back(line.substr(begin, end - begin));
      begin = end;
    }
    return parts;
  };
  Document text = Document::ofText(" a  b\r\n\nc\n");
  text.split(words);
  EXPECT_EQ(marked(text), " [a]  [b]\r\n\n[c]\n");
  text.split([](std::string_view) { return std::vector<std::string_view>(); });
  EXPECT_EQ(marked(text), " a  b\r\n\nc\n");
  Document html = Document::ofHtml("<p>one&lt;  two</p> <b>x</b>");
  html.split(words);
  EXPECT_EQ(html.lines(), (Lines{"one<", "two", "x"}));
  EXPECT_EQ(marked(html), "<p>[one&lt;]  [two]</p> <b>[x]</b>");
}

TEST(Documents, TextBetweenTags) {
  EXPECT_EQ(html(""), "");
  EXPECT_EQ(html("plain"), "[plain]");
  EXPECT_EQ(html("<p>one<br />two</p>"), "<p>[one]<br />[two]</p>");
  EXPECT_EQ(html("<p>\n  one\n  two\n</p>\n"), "<p>\n  [one   two]\n</p>\n");
  EXPECT_EQ(html("<a href='x>y' title=\"<b>\">one</a> two"), "<a href='x>y' title=\"<b>\">[one]</a> [two]");
  EXPECT_EQ(html("one <!-- <b>not</b> --> two <!doctype html><?x?>three"),
            "[one] <!-- <b>not</b> --> [two] <!doctype html><?x?>[three]");
  EXPECT_EQ(html("<script>if (a < b) \"</p>\"</script>one<STYLE>p { }</STYLE >two"),
            "<script>if (a < b) \"</p>\"</script>[one]<STYLE>p { }</STYLE >[two]");
}

TEST(Documents, ElementsThatAreNotTranslated) {
  EXPECT_EQ(html("one <span translate=\"no\">:<b>two</b>:</span> three"),
            "[one] <span translate=\"no\">:<b>two</b>:</span> [three]");
  EXPECT_EQ(html("<div class='a notranslate b'><div>x</div>y</div>z"),
            "<div class='a notranslate b'><div>x</div>y</div>[z]");
  EXPECT_EQ(html("<div class=notranslated>x</div>"), "<div class=notranslated>[x]</div>");
  EXPECT_EQ(html("<span translate=yes>x</span>"), "<span translate=yes>[x]</span>");
  EXPECT_EQ(html("<img translate=no>x<br translate=no/>y"), "<img translate=no>[x]<br translate=no/>[y]");
  EXPECT_EQ(html("<p translate=no>x<p>y"), "<p translate=no>x<p>y") << "it has no end";
}

TEST(Documents, CharacterReferences) {
  EXPECT_EQ(Document::ofHtml("a &lt; b &amp;amp; &quot;c&quot; &#233;&#xE9; d").lines(),
            Lines{"a < b &amp; \"c\" \xC3\xA9\xC3\xA9 d"});
  EXPECT_EQ(html("a &lt; b &amp; c > d"), "[a &lt; b &amp; c &gt; d]");
  EXPECT_EQ(html("one &unknown; two"), "[one] &unknown; [two]");
  EXPECT_EQ(html("this & that; &; &#; &#xyz; &#0; &#x110000;"), "[this &amp; that; &amp;;] &#; &#xyz; &#0; &#x110000;");
  EXPECT_EQ(html("<p>&nbsp;</p>&nbsp;x"), "<p>&nbsp;</p>[\xC2\xA0x]");
}

TEST(Documents, WhatLooksLikeATagAndIsNone) {
  EXPECT_EQ(html("1 < 2 <3 a<b"), "[1 &lt; 2 &lt;3 a&lt;b]");
  EXPECT_EQ(html("x <a href='y"), "[x &lt;a href='y]");
  EXPECT_EQ(html("</>x</ y>"), "[&lt;/&gt;x&lt;/ y&gt;]");
  EXPECT_EQ(html("x<!-- y"), "[x]<!-- y");
}

// Whatever an input is, it takes a time proportional to its size.
TEST(Documents, LargeInputsTakeNoLonger) {
  for (const std::string part :
       {"<a '", "<", "&", "&a", "<!--", "<script>", "</", "<p translate=no>", "<a b=", "&#1;"}) {
    std::string large;
    while (large.size() < 1 << 20)
      large += part;
    const auto begin = std::chrono::steady_clock::now();
    const Document document = Document::ofHtml(large);
    document.with(document.lines());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2)) << part;
  }
}
