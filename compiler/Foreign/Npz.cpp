// Reads the arrays of an .npz file.
#include "Npz.h"
#include "support/Error.h"
#include "support/MappedFile.h"
#include "support/Quoted.h"
#include <charconv>
#include <cstring>

namespace xfc {
namespace {

// The header of an .npy file: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class Header {
public:
  Header(std::string_view text, const std::string &where) : rest(text), where(where) {
    expect('{');
    while (!takes('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && peek() == '\'')
        type = string();
      else if (key == "descr")
        throw Error(where + ": is an array of records; expected numbers");
      else if (key == "fortran_order")
        columnsFirst = boolean();
      else if (key == "shape")
        readShape();
      else
        fail(inQuotes(key) + " is not one of its keys");
      takes(',');
    }
    if (peek() != 0)
      fail(inQuotes(rest, 20) + " follows its end");
    if (type.empty() || !hasShape)
      fail("'descr' or 'shape' is missing");
  }

  std::string type;
  bool columnsFirst = false;
  std::vector<int64_t> shape;

private:
  [[noreturn]] void fail(const std::string &what) const {
    throw Error(where + ": its header is not a valid array header: " + what);
  }
  char peek() {
    while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\n'))
      rest.remove_prefix(1);
    return rest.empty() ? '\0' : rest.front();
  }
  bool takes(char c) {
    if (peek() != c)
      return false;
    rest.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!takes(c))
      fail(std::string("expected ") + c);
  }
  std::string string() {
    expect('\'');
    const size_t end = rest.find('\'');
    if (end == std::string_view::npos)
      fail("expected ' at the end of a string");
    const std::string value(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    return value;
  }
  bool boolean() {
    peek();
    for (const std::string_view value : {"True", "False"})
      if (rest.starts_with(value)) {
        rest.remove_prefix(value.size());
        return value == "True";
      }
    fail("expected True or False");
  }
  void readShape() {
    expect('(');
    hasShape = true;
    while (!takes(')')) {
      peek();
      int64_t extent = 0;
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), extent);
      if (error != std::errc() || extent < 0 || shape.size() == 32)
        fail("expected the extents of an array");
      rest.remove_prefix(static_cast<size_t>(end - rest.data()));
      shape.push_back(extent);
      if (!takes(',') && peek() != ')')
        fail("expected , or )");
    }
  }

  std::string_view rest;
  const std::string &where;
  bool hasShape = false;
};

constexpr size_t longestHeader = 65535; // in bytes; version 1 allows no longer one
// Where the header begins: a version's number of bytes for the length of the header decides.
constexpr size_t headerOfVersion1 = 10, headerOfVersion2 = 12;

// The array that an .npy file's header describes, without its bytes, and the offset of the numbers in the file.
struct Beginning {
  TensorView array;
  size_t numbers;
};

// Parses the header of a file of `size` bytes, of which `beginning` holds the first: all of the header, if the header
// is not longer than it may be.
Beginning parseBeginning(std::string_view beginning, uint64_t size, const std::string &name, const std::string &where) {
  constexpr std::string_view magic("\x93NUMPY", 6);
  const auto cutOff = [&] {
    throw Error(where + ": is not an .npy file, or is cut off: it has " + std::to_string(size) + " bytes");
  };
  if (beginning.size() < headerOfVersion1 || !beginning.starts_with(magic))
    cutOff();
  const int version = static_cast<unsigned char>(beginning[6]);
  if (version < 1 || version > 3)
    throw Error(where + ": is an .npy file of version " + std::to_string(version) + "; expected 1 to 3");
  const size_t begin = version == 1 ? headerOfVersion1 : headerOfVersion2;
  if (beginning.size() < begin)
    cutOff();
  uint32_t headerSize = 0;
  std::memcpy(&headerSize, beginning.data() + 8, version == 1 ? 2 : 4);
  if (headerSize > size - begin)
    cutOff();
  if (headerSize > longestHeader)
    throw Error(where + ": has a header of " + std::to_string(headerSize) + " bytes; expected at most " +
                std::to_string(longestHeader));
  const Header header(beginning.substr(begin, headerSize), where);
  if (header.type.find('O') != std::string::npos)
    throw Error(
        where +
        ": is an array of Python objects, a pickle, which runs whatever code it contains when it is read; expected "
        "an array of numbers, as numpy.savez writes it");
  static const std::map<std::string, std::pair<const char *, uint64_t>> types = {
      {"<f4", {"F32", 4}}, {"<f8", {"F64", 8}}, {"<f2", {"F16", 2}}, {"|i1", {"I8", 1}},   {"|u1", {"U8", 1}},
      {"<i2", {"I16", 2}}, {"<i4", {"I32", 4}}, {"<i8", {"I64", 8}}, {"|b1", {"BOOL", 1}}, {"|S1", {"U8", 1}}};
  const auto type = types.find(header.type);
  if (type == types.end())
    throw Error(where + ": has the type " + inQuotes(header.type) +
                "; expected little-endian numbers, '<f4' for weights");
  if (header.columnsFirst && header.shape.size() > 1)
    throw Error(where + ": is stored by columns (fortran_order); expected storage by rows");
  const uint64_t rest = size - begin - headerSize;
  uint64_t bytes = type->second.second;
  for (const int64_t extent : header.shape) {
    if (extent != 0 && bytes > rest / static_cast<uint64_t>(extent))
      bytes = rest + 1; // leads to the error below
    else
      bytes *= static_cast<uint64_t>(extent);
    if (bytes > rest)
      break;
  }
  if (bytes != rest)
    throw Error(where + ": its header says " + textOf(header.shape) + " of " + inQuotes(header.type) + ", but " +
                std::to_string(rest) + " bytes follow");
  return {{name, type->second.first, header.shape, {}}, begin + headerSize};
}

constexpr std::string_view suffix = ".npy";

} // namespace

TensorView parseNpy(std::string_view contents, const std::string &name, const std::string &where) {
  Beginning found = parseBeginning(contents, contents.size(), name, where);
  found.array.bytes = contents.substr(found.numbers);
  return found.array;
}

Npz::Npz(const std::string &file) : name(file), map(MappedFile::readOnly(file)) { readHeaders(map->contents()); }

Npz::Npz(std::string_view contents, std::string file) : name(std::move(file)) { readHeaders(contents); }

void Npz::readHeaders(std::string_view archive) {
  zip.emplace(archive, name);
  std::string room;
  for (const auto &[member, how] : zip->members()) {
    if (!member.ends_with(suffix))
      throw Error(name + ": " + inQuotes(member) + " is not an array; expected .npy files, as numpy.savez writes them");
    const std::string array = member.substr(0, member.size() - suffix.size());
    const std::string_view beginning = zip->readBeginning(member, headerOfVersion2 + longestHeader, room);
    byName.emplace(array, parseBeginning(beginning, how.size, array, name + ": " + inQuotes(array)).array);
  }
}

const TensorView *Npz::find(const std::string &array) const {
  auto found = byName.find(array);
  return found == byName.end() ? nullptr : &found->second;
}

TensorView Npz::read(const std::string &array) {
  const std::string member = array + std::string(suffix);
  std::string_view contents;
  if (const auto kept = decompressed.find(array); kept != decompressed.end()) {
    contents = kept->second;
  } else {
    std::string room;
    contents = zip->read(member, room);
    if (zip->members().at(member).deflated)
      contents = decompressed.emplace(array, std::move(room)).first->second;
  }
  return parseNpy(contents, array, name + ": " + inQuotes(array));
}

} // namespace xfc
