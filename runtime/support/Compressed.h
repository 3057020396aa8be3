// Decompresses gzip (RFC 1952) and Zstandard (RFC 8878) data.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace xfc {

class Decompressor {
public:
  // A decompressor for the format that the first bytes of a file indicate; null if the bytes are not compressed. `file`
  // is for messages.
  static std::unique_ptr<Decompressor> of(std::string_view beginning, const std::string &file);
  // Whether a file may turn out to be compressed when only these first bytes of it are known. No UTF-8 text begins like
  // a compressed file, so the first bytes identify text as well.
  static bool mayFollow(std::string_view beginning);

  virtual ~Decompressor() = default;
  // Consumes bytes from the front of `in`, writes at most `room` bytes to `out`, and returns how many it wrote. It may
  // consume and write nothing if `in` is empty. Throws Error if the data is damaged or needs more than 128 MB of memory
  // to decompress.
  virtual size_t run(std::string_view &in, char *out, size_t room) = 0;
  // Whether the input so far ends at the end of a member or frame: a file that ends anywhere else was truncated.
  virtual bool atEnd() const = 0;
};

} // namespace xfc
