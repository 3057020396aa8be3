// A folder for a test's files, removed after it.
#pragma once

#include "support/Error.h"
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

namespace xfc {

class FolderTest : public testing::Test {
protected:
  FolderTest() {
    std::string pattern = testing::TempDir() + "xfc-test-XXXXXX";
    folder = mkdtemp(pattern.data());
  }
  ~FolderTest() override { std::filesystem::remove_all(folder); }
  std::string in(const std::string &name) const { return folder + "/" + name; }
  // Writes a file; returns its path.
  std::string written(const std::string &name, const std::string &contents) const {
    std::ofstream(in(name), std::ios::binary) << contents;
    return in(name);
  }
  // The message of the Error that `run` throws.
  template <typename Run> static std::string errorOf(Run run) {
    try {
      run();
    } catch (const Error &error) {
      return error.what();
    }
    return "no error";
  }
  std::string folder;
};

} // namespace xfc
