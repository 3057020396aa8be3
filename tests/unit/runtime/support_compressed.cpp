// Tests reading compressed files: their lines equal those of the originals, and damaged data is refused.
#include "folder.h"
#include "support/FileWriter.h"
#include "support/LineReader.h"
#include <fcntl.h>
#include <random>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

using namespace xfc;

namespace {

std::string gzipped(const std::string &text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef *>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd(const std::string &text) { // with a checksum of the contents, as the command-line tool writes it
  ZSTD_CCtx *context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return packed;
}

// More text than the buffers hold, with lines longer than the buffers.
std::string manyLines() {
  std::mt19937 random(1);
  std::string text;
  for (int line = 0; line < 3000; ++line) {
    for (size_t length = line == 7 ? 200000 : random() % 100; length > 0; --length)
      text += static_cast<char>('a' + random() % 26);
    text += line % 5 ? "\n" : "\r\n";
  }
  return text + "the last";
}

class Compressed : public FolderTest {
protected:
  std::string lines(const std::string &contents) {
    writeFile(in("lines"), contents);
    std::string all;
    for (const std::string &line : readLines(in("lines")))
      all += line + "\n";
    return all;
  }
  const std::string text = manyLines(), expected = lines(text);
};

} // namespace

TEST_F(Compressed, LinesAreThoseOfTheText) {
  for (auto pack : {gzipped, zstd}) {
    EXPECT_EQ(lines(pack(text)), expected);
    EXPECT_EQ(lines(pack("one\ntw") + pack("o\n") + pack("") + pack("three")),
              "one\ntwo\nthree\n"); // concatenated files
    EXPECT_EQ(lines(pack("")), "");
    writeFile(in("file"), pack(text));
    LineReader reader(in("file"));
    double before = -1;
    for (std::string line; reader.next(line); before = reader.fraction())
      EXPECT_GE(reader.fraction(), before);
    EXPECT_EQ(before, 1);
  }
  EXPECT_EQ(lines(gzipped("one\n") + std::string(1000, '\0')), "one\n"); // padding of a tape block
  EXPECT_EQ(lines("("), "(\n");                                          // zstd's magic number begins like this
  EXPECT_EQ(lines("\x1f"), "\x1f\n");
}

TEST_F(Compressed, ArrivesInPieces) {
  for (auto pack : {gzipped, zstd}) {
    const std::string packed = pack("one\ntwo\n");
    ASSERT_EQ(mkfifo(in("pipe").c_str(), 0600), 0);
    std::thread writer([&] {
      const int pipe = open(in("pipe").c_str(), O_WRONLY);
      for (char byte : packed) {
        EXPECT_EQ(write(pipe, &byte, 1), 1);
        usleep(200);
      }
      close(pipe);
    });
    EXPECT_EQ(readLines(in("pipe")), (std::vector<std::string>{"one", "two"}));
    writer.join();
    unlink(in("pipe").c_str());
  }
}

TEST_F(Compressed, WhatIsDamagedIsRefused) {
  for (auto pack : {gzipped, zstd}) {
    const std::string packed = pack(text);
    for (size_t size : {size_t(5), size_t(30), packed.size() / 2, packed.size() - 1})
      EXPECT_NE(errorOf([&] { lines(packed.substr(0, size)); }).find("lines: damaged: its compressed data is cut off"),
                std::string::npos)
          << size;
    std::mt19937 random(2);
    for (int round = 0; round < 30; ++round) {
      std::string changed = packed;
      changed[20 + random() % (changed.size() - 20)] ^= static_cast<char>(1 << random() % 8);
      const std::string error = errorOf([&] { EXPECT_EQ(lines(changed), expected); });
      EXPECT_NE(error.find("lines: damaged: its "), std::string::npos) << round << ": " << error;
    }
    EXPECT_NE(errorOf([&] { lines(packed + "and more"); }).find("damaged"), std::string::npos);
  }
  // The line length is bounded, however well it was compressed.
  writeFile(in("long"), gzipped(std::string(50 << 20, 'x')));
  LineReader reader(in("long"), 1000);
  std::string line;
  EXPECT_TRUE(reader.next(line));
  EXPECT_EQ(line, std::string(1000, 'x'));
  EXPECT_FALSE(reader.next(line));
}
