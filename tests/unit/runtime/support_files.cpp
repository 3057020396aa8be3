// Tests that files are written atomically, and what is refused.
#include "folder.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/LineReader.h"
#include "support/MappedFile.h"
#include "support/Signals.h"
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace xfc;
namespace fs = std::filesystem;

using SupportFiles = FolderTest;

TEST_F(SupportFiles, WrittenWholeAndReplaced) {
  writeFile(in("a"), "one");
  writeFile(in("a"), std::string("t\0wo", 4));
  EXPECT_EQ(readFile(in("a")), std::string("t\0wo", 4));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  makeFolder(in("x/y/z"));
  makeFolder(in("x/y/z"));
  EXPECT_TRUE(exists(in("x/y/z")));
  EXPECT_NE(errorOf([&] { makeFolder(in("a/b")); }).find("/a: cannot create the folder"), std::string::npos);
  EXPECT_NE(errorOf([&] { readFile(in("none")); }).find("No such file"), std::string::npos);
  EXPECT_NE(errorOf([&] { readFile(folder); }).find("directory"), std::string::npos);
}

TEST_F(SupportFiles, AFailedWriteLeavesWhatWasThere) {
  writeFile(in("kept"), "before");
  EXPECT_NE(errorOf([&] { writeFile(in("none/kept"), "x"); }).find("none/kept"), std::string::npos);
  EXPECT_NE(errorOf([&] { writeFile("/proc/xfc", "x"); }).find("/proc/xfc"), std::string::npos);

  // Simulate a full disk by a limit on file sizes.
  auto *ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{}, small{};
  getrlimit(RLIMIT_FSIZE, &limit);
  small = {4096, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message = errorOf([&] { writeFile(in("kept"), std::string(100000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, ignored);
  EXPECT_NE(message.find("kept: cannot write"), std::string::npos) << message;
  EXPECT_EQ(readFile(in("kept")), "before");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

// The target of a write may be a link, a device or a pipe.
TEST_F(SupportFiles, LinksPermissionsDevicesAndPipes) {
  writeFile(in("real"), "one");
  fs::permissions(in("real"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("real", in("link"));
  checkWritable(in("link"));
  writeFile(in("link"), "two");
  EXPECT_TRUE(fs::is_symlink(in("link")));
  EXPECT_EQ(readFile(in("real")), "two");
  EXPECT_EQ(fs::status(in("real")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  writeFile(in("program"), "three", true);
  EXPECT_NE(fs::status(in("program")).permissions() & fs::perms::owner_exec, fs::perms::none);

  checkWritable("/dev/null");
  writeFile("/dev/null", "four");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_NE(errorOf([&] { writeFile("/dev/full", "five"); }).find("/dev/full: cannot write: No space"),
            std::string::npos);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));

  ASSERT_EQ(mkfifo(in("pipe").c_str(), 0600), 0);
  checkWritable(in("pipe"));
  std::thread writer([&] { writeFile(in("pipe"), std::string(100000, 'x')); });
  std::string through;
  {
    std::ifstream pipe(in("pipe"));
    std::getline(pipe, through, '\0');
  }
  writer.join();
  EXPECT_EQ(through, std::string(100000, 'x'));
  EXPECT_TRUE(fs::is_fifo(in("pipe")));
}

// A pipe as a shell passes it to a program, with a writer at its other end.
class PassedPipe {
public:
  explicit PassedPipe(std::string text) {
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    writer = std::thread([this, text = std::move(text)] {
      for (size_t done = 0; done < text.size();) {
        const ssize_t wrote = write(ends[1], text.data() + done, text.size() - done);
        if (wrote < 0)
          break; // the reader has closed it
        done += static_cast<size_t>(wrote);
      }
      close(ends[1]);
    });
  }
  PassedPipe(const PassedPipe &) = delete;
  ~PassedPipe() {
    close(ends[0]);
    writer.join();
  }
  std::string name() const { return "/dev/fd/" + std::to_string(ends[0]); }

private:
  int ends[2] = {-1, -1};
  std::thread writer;
};

TEST_F(SupportFiles, WhatIsReadWholeHasAnEnd) {
  const std::string expected = ": is a device, a pipe or a socket; expected a file";
  for (const std::string device : {"/dev/zero", "/dev/null", "/dev/random"}) {
    EXPECT_EQ(errorOf([&] { readFile(device); }), device + expected);
    EXPECT_EQ(errorOf([&] { MappedFile file(device); }), device + expected);
  }
  fs::create_symlink("/dev/zero", in("config.json"));
  EXPECT_EQ(errorOf([&] { readFile(in("config.json")); }), in("config.json") + expected);
  ASSERT_EQ(mkfifo(in("named").c_str(), 0600), 0); // nobody writes to it, and nobody waits
  EXPECT_EQ(errorOf([&] { readFile(in("named")); }), in("named") + expected);

  writeFile(in("a"), std::string(1 << 20, 'x'));
  EXPECT_EQ(readFile(in("a"), 1 << 20).size(), size_t{1} << 20);
  EXPECT_EQ(errorOf([&] { readFile(in("a"), (1 << 20) - 1); }),
            in("a") + ": larger than 0 MB; no file of this use is that large");
  fs::resize_file(in("a"), mostTextBytes + 1); // sparse
  EXPECT_EQ(errorOf([&] { readFile(in("a")); }), in("a") + ": larger than 16 MB; no file of this use is that large");
  PassedPipe whole(std::string(200000, 'p')), endless(std::string(3 << 20, 'p'));
  EXPECT_EQ(readFile(whole.name()), std::string(200000, 'p'));
  std::signal(SIGPIPE, SIG_IGN); // of the writer, whose reader goes away
  EXPECT_EQ(errorOf([&] { readFile(endless.name(), 2 << 20); }),
            endless.name() + ": larger than 2 MB; no file of this use is that large");
}

TEST_F(SupportFiles, WhatCannotBeWrittenIsKnownBefore) {
  writeFile(in("kept"), "before");
  checkWritable(in("kept"));
  checkWritable(in("new"));
  EXPECT_EQ(readFile(in("kept")), "before");
  EXPECT_FALSE(exists(in("new")));
  EXPECT_EQ(errorOf([&] { checkWritable(in("none/new")); }),
            in("none/new") + ": cannot write: No such file or directory");
  EXPECT_EQ(errorOf([&] { checkWritable(folder); }), folder + ": cannot write: Is a directory");
  EXPECT_EQ(errorOf([&] { writeFile(folder, "x"); }), folder + ": cannot write: Is a directory");
}

TEST_F(SupportFiles, LinesAndUtf8) {
  writeFile(in("lines"), "one\r\nzwei\n\nd\xC3\xA9j\xC3\xA0 \xF0\x9F\x98\x80");
  EXPECT_EQ(readLines(in("lines")),
            (std::vector<std::string>{"one", "zwei", "", "d\xC3\xA9j\xC3\xA0 \xF0\x9F\x98\x80"}));
  for (const char *bad :
       {"\xC3", "\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\x80", "\xE0\x9F\xBF"}) {
    writeFile(in("bad"), std::string("fine\nab") + bad + "\n");
    std::string message = errorOf([&] { readLines(in("bad")); });
    EXPECT_NE(message.find("bad:2: byte 3"), std::string::npos) << message;
  }
}

TEST_F(SupportFiles, Mapped) {
  const std::string text(10000, 'x');
  writeFile(in("a"), "12345678" + text);
  MappedFile whole(in("a")), part(in("a"), 5000, 3), none(in("a"), 4096, 0);
  EXPECT_EQ(whole.contents(), "12345678" + text);
  EXPECT_EQ(part.contents(), "xxx");
  EXPECT_EQ(none.contents(), "");
  MappedFile moved(std::move(whole));
  EXPECT_EQ(moved.contents().substr(0, 9), "12345678x");
  // Replacing the file does not affect the mapping.
  writeFile(in("a"), "other");
  EXPECT_EQ(moved.contents(), "12345678" + text);
  EXPECT_EQ(MappedFile(in("a")).contents(), "other");
  for (size_t size : {0, 1, 4095, 4096, 4097}) { // 128 bytes beyond the end can be read
    writeFile(in("b"), std::string(size, 'y'));
    MappedFile file(in("b"));
    EXPECT_EQ(file.contents(), std::string(size, 'y'));
    for (size_t i = 0; i < 128; ++i)
      EXPECT_EQ(file.contents().data()[size + i], 0) << size << " " << i;
  }
  // A pipe cannot be mapped, and is read instead.
  PassedPipe pipe(text);
  EXPECT_EQ(MappedFile(pipe.name()).contents(), text);
  EXPECT_EQ(errorOf([&] { MappedFile file(in("nothing")); }),
            in("nothing") + ": cannot open: No such file or directory");
  EXPECT_EQ(errorOf([&] { MappedFile file(folder); }), folder + ": cannot read: Is a directory");
}

// The resident kilobytes of the mapping that holds this address.
int64_t residentKilobytes(const char *address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2)
      inside = reinterpret_cast<unsigned long>(address) >= from && reinterpret_cast<unsigned long>(address) < to;
    else if (inside && line.starts_with("Rss:"))
      return std::stoll(line.substr(4));
  }
  return -1;
}

TEST_F(SupportFiles, PagesThatWereNotWrittenAreGivenBack) {
  constexpr size_t half = 1 << 20;
  writeFile(in("a"), std::string(half, 'x') + std::string(half, 'y'));
  MappedFile file(in("a"));
  char *const begin = const_cast<char *>(file.contents().data());
  EXPECT_EQ(file.contents(), std::string(half, 'x') + std::string(half, 'y')); // accesses all of it
  EXPECT_EQ(residentKilobytes(begin), 2048);
  begin[half + 5000] = 'z'; // outside the released part
  file.releaseUnwritten(file.contents().substr(0, half - 1));
  EXPECT_EQ(residentKilobytes(begin), 1024 + 4); // the page at the part's end lies only partly in it
  EXPECT_EQ(file.contents().substr(0, half), std::string(half, 'x'));
  EXPECT_EQ(begin[half + 5000], 'z');
  // Data from a pipe is stored nowhere else.
  PassedPipe pipe(std::string(half, 'p'));
  MappedFile read(pipe.name());
  read.releaseUnwritten(read.contents());
  EXPECT_EQ(read.contents(), std::string(half, 'p'));
}

TEST_F(SupportFiles, MegabytesAreGivenBackOnceTheirEndIsRead) {
  constexpr size_t megabyte = 1 << 20;
  writeFile(in("a"), std::string(5 * megabyte / 2, 'x'));
  MappedFile file(in("a"));
  char *const begin = const_cast<char *>(file.contents().data());
  EXPECT_EQ(file.contents(), std::string(5 * megabyte / 2, 'x')); // accesses all of it
  file.releaseBehind(file.contents().substr(0, megabyte - 1));
  EXPECT_EQ(residentKilobytes(begin), 2560);
  file.releaseBehind(file.contents().substr(megabyte - 1, megabyte / 2)); // ends in the second megabyte
  EXPECT_EQ(residentKilobytes(begin), 1536);
  file.releaseBehind(file.contents().substr(3 * megabyte / 2));
  EXPECT_EQ(residentKilobytes(begin), 512); // the last half is no whole megabyte
}

TEST_F(SupportFiles, AFileThatIsCutOffInUseIsAnError) {
  writeFile(in("a"), std::string(100000, 'x'));
  auto use = [&] {
    installSignals();
    FileWriter unfinished(in("b"));
    MappedFile file(in("a"));
    fs::resize_file(in("a"), 50000);
    volatile char last = file.contents().back();
    (void)last;
  };
  EXPECT_EXIT(use(), testing::ExitedWithCode(1), "error: " + in("a") + " was truncated while in use");
  EXPECT_EQ(namesIn(folder), (std::vector<std::string>{"a"}));
}
