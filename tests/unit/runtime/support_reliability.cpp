// Tests that files stay intact and command lines exact in spite of interference: links, locks, streams and odd numbers.
#include "folder.h"
#include "support/Checksum.h"
#include "support/CommandLine.h"
#include "support/FileLock.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/LineReader.h"
#include "support/Signals.h"
#include "support/TemporaryFolder.h"
#include "support/Uncaught.h"
#include "support/Verb.h"
#include <algorithm>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace xfc;
namespace fs = std::filesystem;

using Reliability = FolderTest;

namespace {

// Parses a command line with one option of each type into `number` and `seed`, and returns the status.
int parse(const std::vector<std::string> &words, int64_t &number, uint64_t &seed, std::string *message = nullptr) {
  CommandLine app("test", "test");
  app.addOption("--number", number).notNegative();
  Command verb = app.addVerb("verb", "");
  verb.addOption("--seed", seed);
  std::vector<std::string> copy = words;
  copy.insert(copy.begin(), "test");
  std::vector<char *> pointers;
  for (std::string &word : copy)
    pointers.push_back(word.data());
  testing::internal::CaptureStderr();
  const int status = runCommandLine(app, static_cast<int>(pointers.size()), pointers.data());
  const std::string said = testing::internal::GetCapturedStderr();
  if (message)
    *message = said;
  return status;
}

} // namespace

TEST_F(Reliability, WriterStreamsAndKeepsTheLastGeneration) {
  writeFile(in("state"), "one");
  {
    FileWriter writer(in("state"));
    writer.write("two");
    EXPECT_EQ(readFile(in("state")), "one");
    writer.write(" and more");
    writer.commit(in("previous"));
  }
  EXPECT_EQ(readFile(in("state")), "two and more");
  EXPECT_EQ(readFile(in("previous")), "one");
  {
    FileWriter abandoned(in("state"));
    abandoned.write("three");
  }
  EXPECT_EQ(readFile(in("state")), "two and more");
  EXPECT_EQ(namesIn(folder), (std::vector<std::string>{"previous", "state"}));
}

// What replaces a file has its permissions, but is not run with its owner's rights.
TEST_F(Reliability, WriterTakesNoRightsOfTheOwner) {
  writeFile(in("file"), "old");
  ASSERT_EQ(chmod(in("file").c_str(), 06751), 0);
  writeFile(in("file"), "new", /*executable=*/true);
  struct stat info{};
  ASSERT_EQ(stat(in("file").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0751u);
}

// Files that belong together replace the old ones only when all of them are complete.
TEST_F(Reliability, WritersCommitTogether) {
  for (const char *name : {"a", "b"})
    writeFile(in(name), "old");
  {
    FileWriter a(in("a")), b(in("b")), c(in("c"));
    for (FileWriter *writer : {&a, &b, &c})
      writer->write("new");
    EXPECT_EQ(readFile(in("a")) + readFile(in("b")), "oldold");
    FileWriter *const together[] = {&a, &b, &c};
    FileWriter::commitTogether(together);
  }
  EXPECT_EQ(readFile(in("a")) + readFile(in("b")) + readFile(in("c")), "newnewnew");
  EXPECT_EQ(namesIn(folder), (std::vector<std::string>{"a", "b", "c"}));
}

// Writing a file touches nothing else, whatever was planted next to it, and nobody gains read access.
TEST_F(Reliability, WriterFollowsNoPlantedName) {
  writeFile(in("victim"), "mine");
  const std::string before = in("file.partial." + std::to_string(getpid()));
  fs::create_symlink("victim", before);
  writeFile(in("file"), "x");
  EXPECT_EQ(readFile(in("victim")), "mine");
  EXPECT_TRUE(fs::is_symlink(before));
  fs::permissions(in("file"), fs::perms::owner_read | fs::perms::owner_write);
  FileWriter writer(in("file"));
  for (const std::string &name : namesIn(folder))
    if (name.starts_with("file.partial.") && !fs::is_symlink(in(name))) {
      struct stat info{};
      ASSERT_EQ(stat(in(name).c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 077, 0u) << name;
    }
}

TEST_F(Reliability, OnlyOurOwnAbandonedFilesGo) {
  for (const char *name : {"thesis.partial.tex", "last.safetensors.partial.0123456789abcdef",
                           "last.safetensors.partial.4711", "other.partial.0123456789abcdef",
                           "last.safetensors.partial.backup", "last.safetensors.partial.0123456789abcdef0"})
    std::ofstream(in(name)) << "x";
  FileWriter living(in("last.safetensors"));
  const auto count = namesIn(folder).size();
  removeAbandoned(folder, [](std::string_view name) { return name == "last.safetensors"; });
  EXPECT_FALSE(exists(in("last.safetensors.partial.0123456789abcdef")));
  EXPECT_FALSE(exists(in("last.safetensors.partial.4711")));
  EXPECT_EQ(namesIn(folder).size(), count - 2);
  living.write("whole");
  living.commit();
  EXPECT_EQ(readFile(in("last.safetensors")), "whole");
}

// A file, and a folder with all that is in it, but not what was finished before.
TEST_F(Reliability, ASignalRemovesWhatIsUnfinished) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGQUIT, SIGALRM, SIGVTALRM, SIGPROF, SIGUSR2, SIGIO})
    for (const int noted : {0, 1}) { // the second signal, where the first is recorded
      const bool isNoted = signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
      if (noted && !isNoted)
        continue;
      const pid_t child = fork();
      if (child == 0) {
        std::signal(signal, SIG_DFL);
        installSignals();
        const FileLock lock(in("lock"), "");
        FileWriter file(in("file"));
        file.write("x");
        const TemporaryFolder part = TemporaryFolder::beginningWith(in("folder."));
        makeFolder(part.file("a/b"));
        writeFile(part.file("a/b/c"), "x");
        fs::create_directory_symlink(folder, part.file("a/link"));
        writeFile(in("finished"), "x");
        std::optional<InterruptGuard> guard;
        if (noted)
          guard.emplace();
        for (int i = 0; i <= noted; ++i)
          raise(signal);
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
      EXPECT_EQ(namesIn(folder), (std::vector<std::string>{"finished"})) << signal << " " << noted;
      fs::remove(in("finished"));
    }
  // A signal that the process ignored before is still ignored.
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGHUP, SIG_IGN);
    installSignals();
    raise(SIGHUP);
    _exit(7);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

// Where two signals reach two threads, neither ends the process while the other removes.
TEST_F(Reliability, ASecondSignalWaitsForTheRemoval) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    installSignals();
    const TemporaryFolder part = TemporaryFolder::beginningWith(in("folder."));
    for (int i = 0; i < 500; ++i)
      std::ofstream(part.file(std::to_string(i)));
    std::thread other([] {
      for (;;)
        pause();
    });
    (void)!write(ready[1], "x", 1);
    for (;;)
      pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGINT);
  kill(child, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(namesIn(folder), std::vector<std::string>());
  close(ready[0]), close(ready[1]);
}

// A process that is forked leaves the files of its parent alone. What nobody catches removes them too.
TEST_F(Reliability, WhoEndsAProcessRemovesItsFilesOnly) {
  const pid_t child = fork();
  if (child == 0) {
    installSignals();
    reportUncaught();
    FileWriter file(in("file"));
    if (const pid_t forked = fork(); forked == 0)
      raise(SIGTERM);
    else
      waitpid(forked, nullptr, 0);
    if (namesIn(folder).size() != 1)
      _exit(2);
    (void)!freopen("/dev/null", "w", stderr);
    std::thread([] { throw Error("in a thread"); }).join();
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_EQ(namesIn(folder), std::vector<std::string>());
}

TEST_F(Reliability, OneProcessHoldsALock) {
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    FileLock lock(in("lock"), "");
    char byte = 1;
    (void)!write(ready[1], &byte, 1);
    (void)!read(go[0], &byte, 1);
    _exit(0); // without releasing the lock
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const std::string message = errorOf([&] { FileLock lock(in("lock"), "busy: "); });
  EXPECT_EQ(message.find("busy: process " + std::to_string(child) + " on "), 0u) << message;
  ASSERT_EQ(write(go[1], &byte, 1), 1);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(errorOf([&] { FileLock lock(in("lock"), "busy: "); }), "no error");
  EXPECT_FALSE(exists(in("lock")));
}

TEST_F(Reliability, LinesOfAnyLength) {
  std::ofstream(in("lines"), std::ios::binary) << "one\r\n\n" + std::string(200000, 'x') + "\n" + "a\xC3\xA9z\nlast";
  std::vector<std::string> lines;
  LineReader reader(in("lines"));
  for (std::string line; reader.next(line);)
    lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "", std::string(200000, 'x'), "a\xC3\xA9z", "last"}));
  EXPECT_EQ(reader.where(), in("lines") + ":5");
  EXPECT_DOUBLE_EQ(reader.fraction(), 1);

  // Truncated between characters, with a warning.
  testing::internal::CaptureStderr();
  LineReader cutting(in("lines"), 2);
  lines.clear();
  for (std::string line; cutting.next(line);)
    lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{"on", "", "xx", "a", "la"}));
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_NE(warnings.find("lines:3: the line is cut to its first 2 bytes"), std::string::npos) << warnings;

  writeFile(in("bad"), "good\nb\xFFx\n");
  LineReader bad(in("bad"));
  std::string line;
  EXPECT_TRUE(bad.next(line));
  EXPECT_NE(errorOf([&] { bad.next(line); }).find("bad:2: byte 2 is not valid UTF-8"), std::string::npos);
}

// A stream tells whether a line is available; a signal ends the wait for one.
TEST_F(Reliability, StreamsAreReadAsTheyCome) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int standardInput = dup(STDIN_FILENO);
  dup2(ends[0], STDIN_FILENO);
  {
    LineReader reader("-");
    EXPECT_FALSE(reader.ready(1));
    ASSERT_EQ(write(ends[1], "one\ntwo\n", 8), 8);
    EXPECT_TRUE(reader.ready(1));
    std::string line;
    EXPECT_TRUE(reader.next(line));
    EXPECT_EQ(line, "one");
    EXPECT_TRUE(reader.ready(0));
    EXPECT_TRUE(reader.next(line));
    EXPECT_FALSE(reader.ready(1));
    const InterruptGuard guard;
    std::thread sender([self = pthread_self()] {
      usleep(50000);
      pthread_kill(self, SIGTERM);
    });
    EXPECT_THROW(reader.next(line), Interrupted);
    sender.join();
    EXPECT_EQ(interrupted(), SIGTERM);
  }
  dup2(standardInput, STDIN_FILENO);
  close(standardInput), close(ends[0]), close(ends[1]);
}

// The values of RFC 3720, B.4, and a comparison of one block with many.
TEST(Checksum, Castagnoli) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c("6789", crc32c("12345")), 0xE3069283u);
  std::string data(5 * checksumBlock + 123, '\0');
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<char>(i * 2654435761u >> 13);
  std::vector<uint32_t> sums(6), expected;
  blockSums(data, sums.data());
  for (size_t at = 0; at < data.size(); at += checksumBlock)
    expected.push_back(crc32c(std::string_view(data).substr(at, checksumBlock)));
  EXPECT_EQ(sums, expected);
  // Each byte is handed on once, in small parts.
  std::fill(sums.begin(), sums.end(), 0);
  std::vector<int> used(data.size());
  blockSums(data, sums.data(), [&](std::string_view part) {
    const size_t begin = part.data() - data.data();
    EXPECT_EQ(begin % 1024, 0u);
    EXPECT_LE(part.size(), 4096u);
    for (size_t i = 0; i < part.size(); ++i)
      ++used[begin + i];
  });
  EXPECT_EQ(sums, expected);
  EXPECT_EQ(std::ranges::count(used, 1), static_cast<int64_t>(used.size()));
  const std::string sum = checksumOf(data);
  data[3 * checksumBlock + 1] ^= 1;
  EXPECT_NE(checksumOf(data), sum);
}

TEST(Verbs, OnlyTheOneThatIsUsedIsAdded) {
  static constexpr Verb verbs[] = {{"bake", [](Command app) { app.addVerb("bake"); }},
                                   {"boil", [](Command app) { app.addVerb("boil"); }}};
  auto added = [](std::string_view first) {
    CommandLine app;
    addVerbs(app, verbs, first);
    std::string names;
    for (const Command &verb : app.verbs())
      names += verb.name() + " ";
    return names;
  };
  EXPECT_EQ(added("bake"), "bake ");
  EXPECT_EQ(added("boil"), "boil ");
  for (const char *other : {"", "--help", "boi", "boiled", "Bake", "bake "})
    EXPECT_EQ(added(other), "bake boil completion man ") << other;
}

TEST(Integers, AreDecimalAndInRange) {
  int64_t number = -1;
  uint64_t seed = 0;
  EXPECT_EQ(parse({"--number", "010"}, number, seed), 0);
  EXPECT_EQ(number, 10);
  EXPECT_EQ(parse({"--number", "+7"}, number, seed), 0);
  EXPECT_EQ(number, 7);
  EXPECT_EQ(parse({"verb", "--seed", "18446744073709551615"}, number, seed), 0);
  EXPECT_EQ(seed, 18446744073709551615u);
  std::string message;
  for (const char *wrong :
       {"-1", "18446744073709551616", "99999999999999999999", "0x10", "1e3", "5.0", "", "7 8", "seven"}) {
    EXPECT_EQ(parse({"verb", "--seed", wrong}, number, seed, &message), 2) << wrong;
    EXPECT_NE(message.find("--seed"), std::string::npos) << message;
  }
  EXPECT_EQ(parse({"--number", "9223372036854775808"}, number, seed, &message), 2);
  EXPECT_NE(message.find("9223372036854775807"), std::string::npos) << message;
}

// The system sends SIGXCPU every second once the limit is reached: however many there are, the work ends as it does
// after SIGTERM, and a second SIGTERM still ends the process.
TEST(Signals, TheLimitOfTimeIsNotedAndRepeated) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXCPU, SIG_DFL); // another test's guard may have noted a signal
    installSignals();
    {
      const InterruptGuard guard;
      for (int i = 0; i < 3; ++i)
        raise(SIGXCPU);
      raise(SIGTERM);
      raise(SIGXCPU);
      if (interrupted() != SIGXCPU)
        _exit(1);
    }
    raise(SIGXCPU); // when the work was saved, and the process ends
    const InterruptGuard again;
    raise(SIGTERM);
    raise(SIGXCPU);
    if (interrupted() != SIGTERM)
      _exit(2);
    raise(SIGTERM);
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

// From the first instruction on, whoever asks for it later, and even if the process was started to ignore it.
TEST(Signals, ARequestToSaveIsKept) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGUSR1, SIG_IGN);
    installSignals();
    raise(SIGUSR1);
    raise(SIGUSR1);
    const InterruptGuard guard;
    const bool first = saveRequested(), second = saveRequested();
    _exit(first && !second && interrupted() == 0 ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

// A file that grows beyond the limit is an error of that file, and is removed.
TEST_F(Reliability, ALimitOfSizeIsAnError) {
  const auto write = [&] {
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(reportErrors([&] {
      writeFile(in("file"), std::string(2000, 'x'));
      return 0;
    }));
  };
  EXPECT_EXIT(write(), testing::ExitedWithCode(1), "error: " + in("file") + ": cannot write: File too large");
  EXPECT_EQ(namesIn(folder), std::vector<std::string>());
}

TEST(Interrupt, TheFirstSignalIsNotedAndTheSecondEnds) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = fork();
    if (child == 0) {
      std::signal(SIGINT, SIG_DFL);
      const InterruptGuard guard;
      raise(signal);
      if (interrupted() != signal)
        _exit(1);
      raise(signal);
      _exit(2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
  }
  // nohup
  std::signal(SIGHUP, SIG_IGN);
  {
    const InterruptGuard guard;
    raise(SIGHUP);
    EXPECT_EQ(interrupted(), 0);
    raise(SIGTERM);
    raise(SIGHUP); // ignored even now
    EXPECT_EQ(interrupted(), SIGTERM);
  }
  std::signal(SIGHUP, SIG_DFL);
}
