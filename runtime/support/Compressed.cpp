// Decompresses gzip (RFC 1952) and Zstandard (RFC 8878) data.
#include "support/Compressed.h"
#include "support/Error.h"
#include <algorithm>
#include <cstdint>
#include <limits>
#include <zlib.h>
#include <zstd.h>

namespace xfc {
namespace {

constexpr std::string_view gzipMark("\x1f\x8b", 2), zstdMark("\x28\xb5\x2f\xfd", 4);

[[noreturn]] void damaged(const std::string &file, const char *kind, const char *why) {
  throw Error(file + ": damaged: its " + kind + " data cannot be decompressed" +
              (why && *why ? std::string(" (") + why + ")" : "") + "; copy it again, or compress it again");
}

// Reads one member after the other, as gzip does with concatenated files.
class Gzip : public Decompressor {
public:
  explicit Gzip(std::string file) : file(std::move(file)) {
    constexpr int gzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream, gzipOnly) != Z_OK)
      throw Error(this->file + ": not enough memory to decompress it");
  }
  ~Gzip() override { inflateEnd(&stream); }

  size_t run(std::string_view &in, char *out, size_t room) override {
    if (complete) {
      // Like gzip, skip the zero padding that a tape or a block device leaves.
      in.remove_prefix(std::min(in.find_first_not_of('\0'), in.size()));
      if (in.empty())
        return 0;
      inflateReset(&stream);
      complete = false;
    }
    const size_t most = std::numeric_limits<uInt>::max();
    stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(in.data()));
    stream.avail_in = static_cast<uInt>(std::min(in.size(), most));
    stream.next_out = reinterpret_cast<Bytef *>(out);
    stream.avail_out = static_cast<uInt>(std::min(room, most));
    const uInt given = stream.avail_in, free = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      damaged(file, "gzip", stream.msg);
    complete = status == Z_STREAM_END;
    in.remove_prefix(given - stream.avail_in);
    return free - stream.avail_out;
  }
  bool atEnd() const override { return complete; }

private:
  std::string file;
  z_stream stream{};
  bool complete = false;
};

class Zstandard : public Decompressor {
public:
  explicit Zstandard(std::string file) : file(std::move(file)), stream(ZSTD_createDStream()) {
    if (!stream)
      throw Error(this->file + ": not enough memory to decompress it");
  }
  ~Zstandard() override { ZSTD_freeDStream(stream); }

  size_t run(std::string_view &in, char *out, size_t room) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out, room, 0};
    const size_t status = ZSTD_decompressStream(stream, &to, &from);
    if (ZSTD_isError(status))
      damaged(file, "zstd", ZSTD_getErrorName(status));
    in.remove_prefix(from.pos);
    if (from.pos > 0 || to.pos > 0)
      complete = status == 0;
    return to.pos;
  }
  bool atEnd() const override { return complete; }

private:
  std::string file;
  ZSTD_DStream *stream;
  bool complete = false;
};

} // namespace

std::unique_ptr<Decompressor> Decompressor::of(std::string_view beginning, const std::string &file) {
  if (beginning.starts_with(gzipMark))
    return std::make_unique<Gzip>(file);
  if (beginning.starts_with(zstdMark))
    return std::make_unique<Zstandard>(file);
  return nullptr;
}

bool Decompressor::mayFollow(std::string_view beginning) {
  return gzipMark.starts_with(beginning) || zstdMark.starts_with(beginning);
}

} // namespace xfc
