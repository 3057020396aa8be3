// Compressed bytes, gzip's (RFC 1952) or Zstandard's (RFC 8878), into what they were made of.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace xfc {

class Decompressor {
public:
  // Of the kind that the first bytes of a file tell; null for bytes that are not compressed. `file` is for messages.
  static std::unique_ptr<Decompressor> of(std::string_view beginning, const std::string &file);
  // Whether a file may be compressed of which no more than these first bytes are known. No text in UTF-8 begins like
  // one that is, so that text is known by its first bytes too.
  static bool mayFollow(std::string_view beginning);

  virtual ~Decompressor() = default;
  // Takes bytes from the front of `in`, and writes at most `room` bytes to `out`; returns how many. What is taken and
  // written may be nothing where `in` is empty. Throws Error where the bytes are damaged, or take more memory than 128
  // MB to decompress.
  virtual size_t run(std::string_view &in, char *out, size_t room) = 0;
  // Whether all that was begun is complete: a file that ends elsewhere was cut off.
  virtual bool atEnd() const = 0;
};

} // namespace xfc
