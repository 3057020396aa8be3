// Tests that no output of a command is one of its inputs.
#include "folder.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/Inputs.h"
#include "support/LineReader.h"
#include "support/MappedFile.h"
#include <functional>
#include <string>
#include <vector>

using namespace xfc;
namespace fs = std::filesystem;

namespace {

class SupportInputs : public FolderTest {
protected:
  void SetUp() override {
    FolderTest::SetUp();
    writeFile(in("a"), "text\n");
    writeFile(in("b"), "other\n");
    fs::create_symlink("a", in("link"));
    fs::create_hard_link(in("a"), in("hard"));
  }
  std::string refused(const std::string &output, const std::string &input) {
    return in(output) + ": is " + (input == output ? "" : "the same file as " + in(input) + ", ") +
           "an input of this command, which writing the output would replace; name another file for the output";
  }
};

TEST_F(SupportInputs, WhatIsReadIsNotReplaced) {
  const std::vector<std::pair<const char *, std::function<void(const std::string &)>>> readers = {
      {"readFile", [](const std::string &file) { readFile(file); }},
      {"MappedFile", [](const std::string &file) { const MappedFile mapped(file); }},
      {"readOnly", [](const std::string &file) { MappedFile::readOnly(file); }},
      {"LineReader", [](const std::string &file) { const LineReader lines(file); }},
      {"isCompressed", [](const std::string &file) { isCompressed(file); }}};
  for (const auto &[name, read] : readers) {
    const InputsAreKept kept;
    read(in("a"));
    for (const char *output : {"a", "link", "hard"}) {
      EXPECT_EQ(errorOf([&] { writeFile(in(output), "lost"); }), refused(output, "a")) << name;
      EXPECT_EQ(errorOf([&] { checkWritable(in(output)); }), refused(output, "a")) << name;
    }
    writeFile(in("new"), "written");
    writeFile(in("b"), "written");
    EXPECT_EQ(readFile(in("a")), "text\n");
  }
}

TEST_F(SupportInputs, TheProgramIsNotReplaced) {
  const InputsAreKept kept;
  fs::create_symlink("/proc/self/exe", in("program"));
  EXPECT_EQ(errorOf([&] { checkWritable(in("program")); }),
            in("program") +
                ": is the program that is running, which writing the output would replace; name another file "
                "for the output");
}

TEST_F(SupportInputs, WhatIsWrittenIsNotRead) {
  const InputsAreKept kept;
  {
    FileWriter writer(in("a"));
    EXPECT_EQ(errorOf([&] { readFile(in("hard")); }), refused("a", "hard"));
    EXPECT_EQ(errorOf([&] { const LineReader lines(in("a")); }), refused("a", "a"));
    writer.write("new\n");
    writer.commit();
  }
  EXPECT_EQ(readFile(in("a")), "new\n"); // complete
  checkWritable(in("b"));
  EXPECT_EQ(errorOf([&] { readFile(in("b")); }), refused("b", "b"));
}

TEST_F(SupportInputs, WhatIsUpdatedIsReadAndWritten) {
  const InputsAreKept kept;
  makeFolder(in("run"));
  writeFile(in("run/state"), "1");
  isUpdated(in("run"));
  isUpdated(in("b"));
  for (const char *file : {"run/state", "b"}) {
    readFile(in(file));
    writeFile(in(file), "2");
    EXPECT_EQ(readFile(in(file)), "2");
  }
  readFile(in("a"));
  EXPECT_EQ(errorOf([&] { writeFile(in("a"), "2"); }), refused("a", "a"));
}

TEST_F(SupportInputs, NoTwoOutputsHaveOneName) {
  const InputsAreKept kept;
  const auto taken = [&](const std::string &second, const std::string &first) {
    return in(second) + ": is " + (second == first ? "" : "the same file as " + in(first) + ", ") +
           "another output of this command; give each output a name of its own";
  };
  {
    FileWriter first(in("b")), second(in("new"));
    EXPECT_EQ(errorOf([&] { writeFile(in("b"), "2"); }), taken("b", "b"));
    EXPECT_EQ(errorOf([&] { checkWritable(in("./new")); }), taken("./new", "new"));
    writeFile(in("a"), "2");
    EXPECT_EQ(errorOf([&] { const FileWriter folder(in(".")); }), in(".") + ": cannot write: Is a directory");
    EXPECT_EQ(errorOf([&] { const FileWriter folder(in(".")); }), in(".") + ": cannot write: Is a directory");
    second.commit();
  }
  {
    const fs::path before = fs::current_path();
    fs::current_path(folder);
    const FileWriter relative("none");
    EXPECT_EQ(errorOf([&] { checkWritable("./none"); }),
              "./none: is the same file as none, another output of this command; give each output a name of its own");
    fs::current_path(before);
  }
  writeFile(in("b"), "2"); // the first one was given up
  EXPECT_EQ(errorOf([&] { writeFile(in("new"), "2"); }), taken("new", "new"));
}

TEST_F(SupportInputs, DevicesCountForNothing) {
  const InputsAreKept kept;
  const FileWriter one("/dev/null"), two("/dev/null");
  const LineReader nothing("/dev/null");
  writeFile("/dev/null", "x");
}

TEST_F(SupportInputs, OutsideOfCommandsNothingIsRefused) {
  {
    const InputsAreKept kept;
    readFile(in("a"));
  }
  writeFile(in("a"), "new\n");
  EXPECT_EQ(readFile(in("a")), "new\n");
}

} // namespace
