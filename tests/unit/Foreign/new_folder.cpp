// Folders that import and export make: their permissions, and which names are refused before any work.
#include "Foreign/NewFolder.h"
#include "runtime/folder.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include <gtest/gtest.h>
#include <sys/stat.h>

using namespace xfc;
namespace fs = std::filesystem;

namespace {

using NewFolders = FolderTest;

} // namespace

TEST_F(NewFolders, HaveThePermissionsOfOthers) {
  for (const mode_t mask : {022, 077, 002}) {
    const std::string name = in("with/parents" + std::to_string(mask) + "/");
    const mode_t before = umask(mask);
    {
      NewFolder folder(name);
      writeFile(folder.file("file"), "x");
      EXPECT_FALSE(exists(name));
      folder.commit();
    }
    umask(before);
    struct stat info{};
    ASSERT_EQ(stat(name.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0777 & ~mask);
    EXPECT_EQ(namesIn(name), std::vector<std::string>{"file"});
  }
  EXPECT_EQ(namesIn(in("with")).size(), 3u); // nothing else is left
}

TEST_F(NewFolders, AreRefusedWhereNothingCanBeRenamed) {
  fs::create_directory(in("empty"));
  fs::create_directory(in("full"));
  writeFile(in("full/file"), "x");
  fs::create_directory_symlink("empty", in("link"));
  const auto refusal = [&](const std::string &name) { return errorOf([&] { const NewFolder folder(name); }); };
  EXPECT_EQ(refusal(in("link")), in("link") + ": is a link; expected the name of a new folder");
  EXPECT_EQ(refusal(in("link/")), in("link/") + ": is a link; expected the name of a new folder");
  const std::string current =
      ": is in use as a current or a mounted folder, which cannot be replaced; expected a new one";
  const fs::path before = fs::current_path();
  fs::current_path(in("empty"));
  EXPECT_EQ(refusal("."), "." + current);
  EXPECT_EQ(refusal(in("empty")), in("empty") + current);
  fs::current_path(before);
  EXPECT_NE(refusal(in("full")).find("is not an empty folder"), std::string::npos);
  EXPECT_NE(refusal(in("full/file")).find("is not an empty folder"), std::string::npos);
  EXPECT_EQ(refusal(in("empty")), "no error");
  EXPECT_EQ(namesIn(folder), (std::vector<std::string>{"empty", "full", "link"}));
}

TEST_F(NewFolders, ReplaceEmptyOnes) {
  fs::create_directory(in("empty"));
  NewFolder made(in("empty"));
  writeFile(made.file("file"), "x");
  made.commit();
  EXPECT_EQ(readFile(in("empty/file")), "x");
}
