// Makes the file formats of other programs byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xfc {

template <typename Number> std::string little(Number number) {
  return {reinterpret_cast<const char *>(&number), sizeof number};
}
inline std::string u16(size_t number) { return little(static_cast<uint16_t>(number)); }
inline std::string u32(size_t number) { return little(static_cast<uint32_t>(number)); }

inline std::string npy(const std::string &header, const std::string &data) {
  return std::string("\x93NUMPY\x01\x00", 8) + u16(header.size()) + header + data;
}

// CRC-32 by the definition of the zip format, bit by bit.
inline uint32_t crc(const std::string &bytes) {
  uint32_t sum = ~0u;
  for (const unsigned char byte : bytes) {
    sum ^= byte;
    for (int bit = 0; bit < 8; ++bit)
      sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320u : 0);
  }
  return ~sum;
}

// A stored block of the deflate format.
inline std::string deflated(const std::string &bytes) {
  return "\x01" + u16(bytes.size()) + u16(~bytes.size()) + bytes;
}

struct ZipMember {
  std::string name, whole;
  bool deflate = false, wide = false; // wide: 64-bit sizes in an extra field, as numpy writes them
  size_t size = 0;                    // if not 0, recorded in place of the true size
};

inline std::string zip(const std::vector<ZipMember> &members, const std::string &comment = "") {
  std::string contents, directory;
  for (const ZipMember &member : members) {
    const std::string packed = member.deflate ? deflated(member.whole) : member.whole;
    const size_t size = member.size ? member.size : member.whole.size(), offset = contents.size();
    const std::string common = u16(20) + u16(0) + u16(member.deflate ? 8 : 0) + u32(0) + u32(crc(member.whole));
    const std::string sizes64 = u16(1) + u16(16) + little<uint64_t>(size) + little<uint64_t>(packed.size());
    contents += "PK\x03\x04" + common + (member.wide ? u32(~0u) + u32(~0u) : u32(packed.size()) + u32(size)) +
                u16(member.name.size()) + u16(member.wide ? sizes64.size() : 0) + member.name +
                (member.wide ? sizes64 : "") + packed;
    directory += "PK\x01\x02" + u16(20) + common +
                 (member.wide ? u32(~0u) + u32(~0u) : u32(packed.size()) + u32(size)) + u16(member.name.size()) +
                 u16(member.wide ? sizes64.size() : 0) + u16(0) + u16(0) + u16(0) + u32(0) + u32(offset) + member.name +
                 (member.wide ? sizes64 : "");
  }
  return contents + directory + "PK\x05\x06" + u16(0) + u16(0) + u16(members.size()) + u16(members.size()) +
         u32(directory.size()) + u32(contents.size()) + u16(comment.size()) + comment;
}

inline std::string named(const std::string &name) { return u16(name.size() + 1) + name + '\0'; }

} // namespace xfc
