// Tests what a confined process can and cannot do. Each test runs in a process of its own.
#include "support/Confinement.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace xfc;

namespace {

// Runs the work in a process confined to `written`; returns 0 if it succeeds, else the line of the failed check.
template <typename Work> int confined(const std::vector<std::string> &written, Work work) {
  const pid_t child = fork();
  if (child == 0) {
    allowConfinement();
    confine(written);
    _exit(work());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

#define EXPECT_INSIDE(condition)                                                                                       \
  if (!(condition))                                                                                                    \
  return 1 + __LINE__ % 250

class Confinement : public testing::Test {
protected:
  Confinement() {
    std::string pattern = testing::TempDir() + "xfc-confinement-XXXXXX";
    folder = mkdtemp(pattern.data());
    std::filesystem::create_directory(folder + "/named");
    std::filesystem::create_directory(folder + "/other");
    writeFile(folder + "/other/there", "text");
  }
  ~Confinement() override { std::filesystem::remove_all(folder); }
  std::string folder;
};

} // namespace

TEST_F(Confinement, NoProgramNoProcessNoSocket) {
  EXPECT_EQ(confined({},
                     [] {
                       EXPECT_INSIDE(execl("/bin/true", "true", nullptr) == -1 && errno == EPERM);
                       EXPECT_INSIDE(socket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EPERM);
                       EXPECT_INSIDE(fork() == -1 && errno == EPERM);
                       bool ran = false;
                       std::thread([&] { ran = true; }).join();
                       EXPECT_INSIDE(ran);
                       return 0;
                     }),
            0);
}

TEST_F(Confinement, FilesOfOtherFoldersAreOnlyRead) {
  if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
    GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(confined({folder + "/named/result", "-", ""},
                     [&] {
                       writeFile(folder + "/named/result", "new");
                       EXPECT_INSIDE(readFile(folder + "/named/result") == "new");
                       EXPECT_INSIDE(readFile(folder + "/other/there") == "text");
                       const std::string there = folder + "/other/there", fresh = folder + "/other/fresh";
                       EXPECT_INSIDE(open(there.c_str(), O_WRONLY) == -1 && errno == EACCES);
                       EXPECT_INSIDE(open(fresh.c_str(), O_WRONLY | O_CREAT, 0600) == -1 && errno == EACCES);
                       EXPECT_INSIDE(unlink(there.c_str()) == -1 && errno == EACCES);
                       EXPECT_INSIDE(rename((folder + "/named/result").c_str(), fresh.c_str()) == -1);
                       return 0;
                     }),
            0);
  EXPECT_EQ(readFile(folder + "/named/result"), "new");
}

TEST_F(Confinement, NamesAreOfTheWorkingFolder) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder + "/other");
  for (const std::string name : {"fresh", "./fresh", "../named/fresh"})
    EXPECT_EQ(confined({name},
                       [&] {
                         writeFile(name, "new");
                         EXPECT_INSIDE(readFile(name) == "new");
                         return 0;
                       }),
              0)
        << name;
  std::filesystem::current_path(before);
}

// The process of these tests is such a process.
TEST_F(Confinement, NothingUnlessTheProcessIsTheCommands) {
  confine({});
  EXPECT_EQ(confined({}, [] { return 0; }), 0); // confined() forks
}

TEST_F(Confinement, DevicesArePassedThrough) {
  EXPECT_EQ(confined({"/dev/null"},
                     [] {
                       EXPECT_INSIDE(open("/dev/null", O_WRONLY) >= 0);
                       return 0;
                     }),
            0);
}
