// Tests the page of `xfc inspect --html`: which lines of two texts differ, and what is shown of them.
#include "Tools/IRPage.h"
#include "Tools/LineDiff.h"
#include <gtest/gtest.h>
#include <random>
#include <string>

using namespace xfc;

namespace {

// The differing lines, "-" before those of the first text and "+" before those of the second.
std::string differences(const std::string &before, const std::string &after) {
  const auto one = linesOf(before), other = linesOf(after);
  std::string text;
  for (const DiffPart &part : diffOf(one, other)) {
    if (part.equal)
      continue;
    for (size_t i = part.beforeBegin; i < part.beforeEnd; ++i)
      text += "-" + std::string(one[i]) + "\n";
    for (size_t i = part.afterBegin; i < part.afterEnd; ++i)
      text += "+" + std::string(other[i]) + "\n";
  }
  return text;
}

TEST(LineDiff, NewNumbersAreNoChange) {
  EXPECT_EQ(
      differences("%0 = a %arg0\n%1 = b %0\n%2 = c %1\nend\n", "%0 = a %arg0\n%1 = n\n%2 = b %0\n%3 = c %2\nend\n"),
      "+%1 = n\n");
}

TEST(LineDiff, OtherValuesAreAChange) {
  EXPECT_EQ(differences("%0 = a\n%1 = b\n%2 = c %0\n", "%0 = a\n%1 = b\n%2 = c %1\n"), "-%2 = c %0\n+%2 = c %1\n");
  EXPECT_EQ(differences("%0 = a %arg0\n", "%0 = a %arg1\n"), "-%0 = a %arg0\n+%0 = a %arg1\n");
  EXPECT_EQ(differences("%0:2 = a\n%1 = b %0#0\n", "%0:2 = a\n%1 = b %0#1\n"), "-%1 = b %0#0\n+%1 = b %0#1\n");
}

// Lines of a whole model's parameters are broken between these, but neither within a type, an attribute or a string,
// nor where an arrow ends no bracket. Nothing is lost.
TEST(LineDiff, LongLinesAreBrokenBetweenOperands) {
  auto signature = [](const std::string &name) {
    std::string text = "func.func @update(";
    for (int i = 0; i < 20; ++i)
      text += (i ? ", %arg" : "%arg") + std::to_string(i) + ": () -> tensor<4x4xf32, #layout<a, b>> {xfc.name = \"" +
              (i == 7 ? name : "a, (b") + "\", xfc.role = \"parameter\"}";
    return text + ") {\n}\n";
  };
  const std::string before = signature("a, (b");
  EXPECT_EQ(linesOf(before).size(), 20U + 1U); // and the brace
  EXPECT_EQ(differences(before, signature("other")),
            "- %arg7: () -> tensor<4x4xf32, #layout<a, b>> {xfc.name = \"a, (b\", xfc.role = \"parameter\"},\n"
            "+ %arg7: () -> tensor<4x4xf32, #layout<a, b>> {xfc.name = \"other\", xfc.role = \"parameter\"},\n");
  std::string together;
  for (std::string_view line : linesOf(before))
    together += line;
  EXPECT_EQ(together, before.substr(0, before.find('\n')) + "}");
  const std::string word(1000, 'x');
  EXPECT_EQ(linesOf(word).size(), 1U);
}

TEST(LineDiff, OfNothing) {
  EXPECT_EQ(differences("", ""), "");
  EXPECT_EQ(differences("", "a\nb\n"), "+a\n+b\n");
  EXPECT_EQ(differences("a\nb", ""), "-a\n-b\n");
}

// Every line of both texts is in exactly one part, equal lines are equal, and no more lines differ than were edited.
TEST(LineDiff, FindsNoMoreThanWhatWasEdited) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> before, after;
    const int lines = static_cast<int>(random() % 80);
    for (int i = 0; i < lines; ++i)
      before.push_back("line " + std::to_string(random() % 9));
    after = before;
    const size_t edits = random() % 12;
    for (size_t i = 0; i < edits; ++i)
      if (after.empty() || random() % 2)
        after.insert(after.begin() + static_cast<long>(random() % (after.size() + 1)), "new");
      else
        after.erase(after.begin() + static_cast<long>(random() % after.size()));
    const std::vector<std::string_view> one(before.begin(), before.end()), other(after.begin(), after.end());
    size_t beforeAt = 0, afterAt = 0, changed = 0;
    for (const DiffPart &part : diffOf(one, other)) {
      EXPECT_EQ(part.beforeBegin, beforeAt);
      EXPECT_EQ(part.afterBegin, afterAt);
      beforeAt = part.beforeEnd;
      afterAt = part.afterEnd;
      if (!part.equal)
        changed += part.beforeEnd - part.beforeBegin + part.afterEnd - part.afterBegin;
      for (size_t i = 0; part.equal && i < part.beforeEnd - part.beforeBegin; ++i)
        EXPECT_EQ(one[part.beforeBegin + i], other[part.afterBegin + i]);
    }
    EXPECT_EQ(beforeAt, one.size());
    EXPECT_EQ(afterAt, other.size());
    EXPECT_LE(changed, edits);
  }
}

TEST(LineDiff, OfLargeTextsThatHaveNothingInCommon) {
  std::string before, after;
  for (int i = 0; i < 20000; ++i) {
    before += "before " + std::to_string(i) + "\n";
    after += "after " + std::to_string(i) + "\n";
  }
  const std::vector<DiffPart> parts = diffOf(linesOf(before), linesOf(after));
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].afterEnd, 20000U);
}

TEST(IRPage, ShowsWhatPassesChange) {
  std::string before, after;
  for (int i = 0; i < 100; ++i) {
    before += "line" + std::to_string(i) + "\n";
    after += i == 50 ? "</pre><script>alert(1)</script>\n" : "line" + std::to_string(i) + "\n";
  }
  PassHistory history;
  history.passes = {{"fused", "canonicalize", {}}, {"fused", "fuse-all", {{"forward", before, after}}}};
  history.stages.push_back({"fused", {}});
  history.stages.back().text["forward"] = after;
  const std::string page = irPage("model <b>", history);
  const std::string changed = page.substr(0, page.find("The program, fused"));
  EXPECT_NE(changed.find("2. fuse-all"), std::string::npos);
  EXPECT_NE(page.find("changed nothing: 1. canonicalize"), std::string::npos);
  EXPECT_NE(changed.find("<pre class=\"removed\">\nline50\n</pre><pre class=\"added\">\n&lt;/pre&gt;&lt;script"),
            std::string::npos);
  EXPECT_NE(changed.find("<pre>\nline47\nline48\nline49\n</pre><pre>\nline47\nline48\nline49\n</pre>"),
            std::string::npos);
  EXPECT_NE(changed.find("47 equal lines"), std::string::npos);
  EXPECT_NE(changed.find("46 equal lines"), std::string::npos);
  EXPECT_EQ(changed.find("line46\n"), std::string::npos) << "long runs are left out";
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("model <b>"), std::string::npos);
  EXPECT_EQ(page.find("http"), page.find("http-equiv")) << "nothing is loaded";
  // The page's own script is the only one.
  EXPECT_EQ(page.find("<script>"), page.rfind("<script>"));
}

} // namespace
