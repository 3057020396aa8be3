// Tests packing: this test writes a copy of itself with a model inside, and the copy must find it.
#include "decode/Packed.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

using namespace xfc;

namespace {

struct Parts {
  std::string weights, vocabulary, targetVocabulary;
  void write(const std::string &file) const { writePacked(weights, vocabulary, targetVocabulary, file); }
};
const Parts model{std::string("weights\0with a zero", 19), "vocabulary", "target vocabulary"};
const Parts smaller{"w", "", ""};

int runCopy(const std::string &file, const char *expectation) {
  std::string command = "XFC_TEST_PACKED=" + std::string(expectation) + " '" + file +
                        "' --gtest_filter=Packed.CopyFindsItsModel > /dev/null 2>&1";
  return std::system(command.c_str());
}

} // namespace

TEST(Packed, CopyFindsItsModel) {
  const char *expectation = std::getenv("XFC_TEST_PACKED");
  if (expectation && std::string(expectation) == "damaged") {
    EXPECT_THROW(packedModel(), Error);
    return;
  }
  std::optional<PackedModel> found = packedModel();
  ASSERT_EQ(found.has_value(), expectation != nullptr);
  if (!found)
    return;
  const Parts &expected = std::string(expectation) == "whole" ? model : smaller;
  EXPECT_EQ(found->weights.contents(), expected.weights);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(found->weights.contents().data()) % 64, 0u);
  EXPECT_EQ(found->vocabulary, expected.vocabulary);
  EXPECT_EQ(found->targetVocabulary, expected.targetVocabulary);
  if (const char *again = std::getenv("XFC_TEST_REPACK"))
    smaller.write(again);
}

TEST(Packed, WholeDamagedAndPackedAgain) {
  std::string folder = testing::TempDir() + "xfc-packed";
  makeFolder(folder);
  std::string first = folder + "/first", second = folder + "/second";
  model.write(first);
  EXPECT_EQ(runCopy(first, "whole"), 0);
  EXPECT_NE(runCopy(first, "smaller"), 0) << "the copy does not really look";

  // Packing a packed executable copies only the original executable.
  setenv("XFC_TEST_REPACK", second.c_str(), 1);
  EXPECT_EQ(runCopy(first, "whole"), 0);
  unsetenv("XFC_TEST_REPACK");
  EXPECT_EQ(runCopy(second, "smaller"), 0);
  std::string own = readFile("/proc/self/exe"), packed = readFile(first), again = readFile(second);
  EXPECT_EQ(packed.substr(0, own.size()), own);
  EXPECT_EQ(again.substr(0, own.size()), own);
  const size_t line = (own.size() + 63) / 64 * 64;
  EXPECT_EQ(again.size(), line + 1 + 32);
  EXPECT_EQ(packed.size(), line + 19 + 10 + 17 + 32);

  // The recorded sizes exceed the file.
  packed.replace(packed.size() - 32 + 6, 1, "\x7f");
  writeFile(first, packed);
  std::filesystem::permissions(first, std::filesystem::perms::owner_all);
  EXPECT_EQ(runCopy(first, "damaged"), 0);
  std::filesystem::remove_all(folder);
}
