// Reads the files in a zip archive, stored or deflated. The directory is at the end; every offset and size in it is
// checked to lie inside the archive before it is used.
#include "Zip.h"
#include "support/Error.h"
#include "support/Quoted.h"
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>
#include <zlib.h>

namespace xfc {
namespace {

constexpr uint32_t memberMark = 0x04034b50, entryMark = 0x02014b50, endMark = 0x06054b50, end64Mark = 0x06064b50,
                   locatorMark = 0x07064b50;
constexpr size_t memberSize = 30, entrySize = 46, endSize = 22, end64Size = 56, locatorSize = 20;
constexpr uint32_t inExtra = 0xFFFFFFFF; // stands for a number that does not fit and is in a 64-bit record instead

template <typename Number> Number at(std::string_view bytes, size_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number); // the format is little-endian, as is the machine
  return number;
}

} // namespace

void Zip::damaged(const std::string &what) const {
  throw Error(file + ": damaged zip archive: " + what + "; use an intact copy");
}

Zip::Zip(std::string_view contents, std::string name) : file(std::move(name)) {
  // Find the end record, which may be followed by a comment whose length it gives.
  size_t end = contents.size() < endSize ? std::string_view::npos : contents.size() - endSize;
  constexpr size_t longestComment = 65535;
  const size_t last = contents.size() - std::min(contents.size(), endSize + longestComment);
  while (end != std::string_view::npos && !(at<uint32_t>(contents, end) == endMark &&
                                            end + endSize + at<uint16_t>(contents, end + 20) == contents.size()))
    end = end > last ? end - 1 : std::string_view::npos;
  if (end == std::string_view::npos)
    damaged("it has " + std::to_string(contents.size()) + " bytes and no directory at its end");
  uint64_t count = at<uint16_t>(contents, end + 10), size = at<uint32_t>(contents, end + 12),
           begin = at<uint32_t>(contents, end + 16);
  uint64_t directoryEnd = end;
  if (at<uint16_t>(contents, end + 4) != 0 || at<uint16_t>(contents, end + 8) != count)
    damaged("it is one part of a multi-part archive");
  if (count == 0xFFFF || size == inExtra || begin == inExtra) {
    if (end < locatorSize || at<uint32_t>(contents, end - locatorSize) != locatorMark)
      damaged("the 64-bit end record of its directory is missing");
    const uint64_t place = at<uint64_t>(contents, end - locatorSize + 8);
    if (place > end - locatorSize || end - locatorSize - place < end64Size ||
        at<uint32_t>(contents, place) != end64Mark)
      damaged("the 64-bit end record of its directory is missing");
    count = at<uint64_t>(contents, place + 32);
    size = at<uint64_t>(contents, place + 40);
    begin = at<uint64_t>(contents, place + 48);
    directoryEnd = place;
  }
  if (begin > directoryEnd || size != directoryEnd - begin || count > size / entrySize)
    damaged("its directory of " + std::to_string(count) + " files does not lie inside it");

  struct Extent {
    uint64_t begin, end;
    std::string name;
  };
  std::vector<Extent> extents;
  std::string_view directory = contents.substr(begin, size);
  for (uint64_t i = 0; i < count; ++i) {
    const auto broken = [&] { damaged("entry " + std::to_string(i) + " of its directory is cut off or invalid"); };
    if (directory.size() < entrySize || at<uint32_t>(directory, 0) != entryMark)
      broken();
    const uint16_t flags = at<uint16_t>(directory, 8), method = at<uint16_t>(directory, 10);
    uint64_t packed = at<uint32_t>(directory, 20), whole = at<uint32_t>(directory, 24),
             place = at<uint32_t>(directory, 42);
    const size_t nameSize = at<uint16_t>(directory, 28), extraSize = at<uint16_t>(directory, 30),
                 commentSize = at<uint16_t>(directory, 32);
    if (directory.size() - entrySize < nameSize + extraSize + commentSize)
      broken();
    const std::string name(directory.substr(entrySize, nameSize));
    for (std::string_view extra = directory.substr(entrySize + nameSize, extraSize); extra.size() >= 4;) {
      const uint16_t kind = at<uint16_t>(extra, 0);
      const size_t length = at<uint16_t>(extra, 2);
      if (extra.size() - 4 < length)
        broken();
      std::string_view values = extra.substr(4, length);
      for (uint64_t *number : {&whole, &packed, &place})
        if (kind == 1 && *number == inExtra) {
          if (values.size() < 8)
            broken();
          *number = at<uint64_t>(values, 0);
          values.remove_prefix(8);
        }
      extra.remove_prefix(4 + length);
    }
    if (flags & 1)
      throw Error(file + ": " + inQuotes(name) + " is encrypted; expected an archive without encryption");
    if (method != 0 && method != 8)
      throw Error(file + ": " + inQuotes(name) + " is compressed with method " + std::to_string(method) +
                  "; expected a file that is stored or deflated");
    if (place > begin || begin - place < memberSize || at<uint32_t>(contents, place) != memberMark)
      damaged(inQuotes(name) + " is not where its directory says");
    const uint64_t before = memberSize + at<uint16_t>(contents, place + 26) + at<uint16_t>(contents, place + 28);
    if (begin - place < before || packed > begin - place - before)
      damaged(inQuotes(name) + " lies outside it");
    // Deflate shrinks nothing to less than about a thousandth, so a larger size cannot be true.
    if (method == 0 ? whole != packed : whole / 1040 > packed)
      damaged(inQuotes(name) + " cannot have the " + std::to_string(whole) + " bytes that its directory says");
    if (!byName
             .emplace(name,
                      Member{contents.substr(place + before, packed), whole, at<uint32_t>(directory, 16), method == 8})
             .second)
      damaged(inQuotes(name) + " appears twice");
    extents.push_back({place, place + before + packed, name});
    directory.remove_prefix(entrySize + nameSize + extraSize + commentSize);
  }
  if (!directory.empty())
    damaged(std::to_string(directory.size()) + " bytes of its directory belong to no file");
  // Members that share bytes would decompress to much more than an archive of this size can hold.
  std::ranges::stable_sort(extents, {}, &Extent::begin);
  for (size_t i = 1; i < extents.size(); ++i)
    if (extents[i].begin < extents[i - 1].end)
      damaged(inQuotes(extents[i - 1].name) + " and " + inQuotes(extents[i].name) + " overlap");
}

// Fills the room with the first bytes of a member; with all of them, if the room is as long as the member.
void Zip::inflateInto(std::string &room, const std::string &name, const Member &member) const {
  constexpr size_t most = std::numeric_limits<uInt>::max();
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
    throw Error(file + ": not enough memory to decompress " + inQuotes(name));
  const bool whole = room.size() == member.size;
  int status = Z_OK;
  size_t taken = 0, made = 0;
  while (status == Z_OK && (whole || made < room.size())) {
    stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(member.bytes.data() + taken));
    stream.next_out = reinterpret_cast<Bytef *>(room.data() + made);
    const uInt in = static_cast<uInt>(std::min(member.bytes.size() - taken, most)),
               out = static_cast<uInt>(std::min(room.size() - made, most));
    stream.avail_in = in;
    stream.avail_out = out;
    status = inflate(&stream, Z_NO_FLUSH);
    taken += in - stream.avail_in;
    made += out - stream.avail_out;
  }
  inflateEnd(&stream);
  if ((status != Z_STREAM_END && (whole || status != Z_OK)) || made != room.size())
    damaged(inQuotes(name) + " does not decompress to the size that its directory says");
}

std::string_view Zip::readBeginning(const std::string &name, size_t most, std::string &room) const {
  const Member &member = byName.at(name);
  if (!member.deflated)
    return member.bytes.substr(0, most);
  room.resize(std::min<uint64_t>(member.size, most));
  inflateInto(room, name, member);
  return room;
}

std::string_view Zip::read(const std::string &name, std::string &room) const {
  const Member &member = byName.at(name);
  std::string_view whole = member.bytes;
  if (member.deflated) {
    room.resize(member.size);
    inflateInto(room, name, member);
    whole = room;
  }
  constexpr size_t most = std::numeric_limits<uInt>::max();
  uLong sum = crc32(0, nullptr, 0);
  for (std::string_view rest = whole; !rest.empty();) {
    const size_t part = std::min(rest.size(), most);
    sum = crc32(sum, reinterpret_cast<const Bytef *>(rest.data()), static_cast<uInt>(part));
    rest.remove_prefix(part);
  }
  if (sum != member.checksum)
    damaged("the bytes of " + inQuotes(name) + " do not match their checksum");
  return whole;
}

} // namespace xfc
