// Reads the files in a zip archive (PKWARE's APPNOTE), stored or deflated.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace xfc {

class Zip {
public:
  // Reads the directory of an archive's contents, which must outlive this; `file` is for messages. Throws an Error if
  // the archive is truncated, one of several parts or encrypted, if a member lies outside it or shares bytes with
  // another one, or if a name comes twice. All members together are thus at most about a thousand times as long as the
  // archive.
  Zip(std::string_view contents, std::string file);

  struct Member {
    std::string_view bytes; // as stored in the archive
    uint64_t size = 0;      // of the file
    uint32_t checksum = 0;  // CRC-32 of the file
    bool deflated = false;
  };
  const std::map<std::string, Member> &members() const { return byName; }
  // The file's contents: a view of the archive if stored, or decompressed into `room`. Throws Error if the checksum
  // does not match.
  std::string_view read(const std::string &name, std::string &room) const;
  // The first bytes of the file's contents, at most `most` of them: a view of the archive, or of `room`. They are not
  // compared with the checksum, which is of the whole file.
  std::string_view readBeginning(const std::string &name, size_t most, std::string &room) const;

private:
  void inflateInto(std::string &room, const std::string &name, const Member &member) const;
  [[noreturn]] void damaged(const std::string &what) const;

  std::string file;
  std::map<std::string, Member> byName;
};

} // namespace xfc
