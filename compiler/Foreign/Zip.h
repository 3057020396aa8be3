// The files in a zip archive (PKWARE's APPNOTE), stored or deflated.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace xfc {

class Zip {
public:
  // Reads the directory of an archive's contents, which must outlive this; `file` is for messages. Throws Error:
  // truncated, of several parts, encrypted, members that lie outside it, a name that comes twice.
  Zip(std::string_view contents, std::string file);

  struct Member {
    std::string_view bytes; // as they lie in the archive
    uint64_t size = 0;      // of the file
    uint32_t checksum = 0;  // CRC-32 of the file
    bool deflated = false;
  };
  const std::map<std::string, Member> &members() const { return byName; }
  // The file: as it lies in the archive, or decompressed into `room`. Throws Error where it is not what its checksum
  // says.
  std::string_view read(const std::string &name, std::string &room) const;

private:
  [[noreturn]] void damaged(const std::string &what) const;

  std::string file;
  std::map<std::string, Member> byName;
};

} // namespace xfc
