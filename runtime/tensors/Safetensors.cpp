// Reads and writes safetensors files: an 8-byte little-endian header size, a JSON header, and the tensors' bytes.
#include "tensors/Safetensors.h"
#include "support/Checksum.h"
#include "support/FileWriter.h"
#include "support/Json.h"
#include "support/MappedFile.h"
#include "support/Quoted.h"
#include "tensors/Numbers.h"
#include <atomic>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace xfc {

std::string textOf(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

static const std::map<std::string, int64_t> typeBytes = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                                                         {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};

TensorViews viewsOf(const Tensors &tensors) {
  TensorViews views;
  for (auto &[name, tensor] : tensors)
    views.push_back(
        {name, tensor.type, tensor.shape, {reinterpret_cast<const char *>(tensor.bytes.data()), tensor.bytes.size()}});
  return views;
}

// Metadata keys: of the checksum of the header without this entry, and, followed by a tensor's name, of the checksum of
// its bytes.
static constexpr const char *headerChecksum = "checksum";
static constexpr const char *tensorChecksum = "crc32c.";

Metadata identityOf(const std::string &model, const std::string &hash, const std::string &description) {
  return {{"format", "xfc"}, {"model", model}, {modelHashKey, hash}, {"description", description}};
}

Tensors readSafetensors(const std::string &file, Metadata *metadata) {
  const MappedFile contents(file);
  Metadata found;
  TensorViews views = parseSafetensors(contents.contents(), file, &found);
  verifyChecksums(nullptr, views, found, file);
  if (metadata)
    *metadata = std::move(found);
  Tensors tensors;
  for (TensorView &view : views)
    tensors[view.name] = {std::move(view.type), std::move(view.shape), {view.bytes.begin(), view.bytes.end()}};
  return tensors;
}

TensorViews parseSafetensors(std::string_view contents, const std::string &file, Metadata *metadata) {
  auto bad = [&](const std::string &what) { throw Error(file + ": not a valid safetensors file: " + what); };
  if (contents.size() < 8)
    bad("it has " + std::to_string(contents.size()) + " bytes");
  uint64_t headerSize;
  std::memcpy(&headerSize, contents.data(), 8);
  if (headerSize > contents.size() - 8)
    bad("its header should have " + std::to_string(headerSize) + " bytes, but only " +
        std::to_string(contents.size() - 8) + " follow");
  nlohmann::json header;
  try {
    header = parseJson(contents.substr(8, headerSize), "its header", mostLargeBytes);
  } catch (const Error &error) {
    bad(error.what());
  }
  if (!header.is_object())
    bad("its header is not a JSON object");
  std::string_view data = contents.substr(8 + headerSize);
  TensorViews tensors;
  for (auto &[name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object())
        bad("its __metadata__ is not a JSON object");
      bool summed = false;
      for (auto &[key, value] : entry.items()) {
        summed |= key.starts_with(tensorChecksum);
        if (!value.is_string())
          bad(inQuotes(key) + " of its __metadata__ is not a string");
        else if (metadata)
          (*metadata)[key] = value.get<std::string>();
      }
      if (summed && !entry.contains(headerChecksum))
        throw Error(file + ": damaged: its header has checksums of tensors but none of its own; use an intact copy");
      if (auto given = entry.find(headerChecksum); given != entry.end()) {
        const std::string sum = *given;
        entry.erase(given);
        if (sum != checksumOf(header.dump()))
          throw Error(file + ": damaged: its header does not match its checksum (a program that changes the file must "
                             "leave out the metadata `checksum`); use an intact copy");
      }
      continue;
    }
    auto numbers = [&, &name = name, &entry = entry](const char *key) {
      auto list = entry.is_object() ? entry.find(key) : entry.end();
      if (list == entry.end() || !list->is_array())
        bad(inQuotes(name) + " has no list " + inQuotes(key));
      std::vector<int64_t> result;
      for (const nlohmann::json &number : *list) {
        if (!number.is_number_unsigned() || number.get<uint64_t>() > std::numeric_limits<int64_t>::max())
          bad(inQuotes(name) + " has " + shownJson(number) + " in " + inQuotes(key) +
              ", which takes whole numbers from 0");
        result.push_back(number.get<int64_t>());
      }
      return result;
    };
    TensorView tensor{name, {}, numbers("shape"), {}};
    const std::vector<int64_t> offsets = numbers("data_offsets");
    if (auto type = entry.find("dtype"); type != entry.end() && type->is_string())
      tensor.type = type->get<std::string>();
    else
      bad(inQuotes(name) + " has no string 'dtype'");
    auto known = typeBytes.find(tensor.type);
    if (known == typeBytes.end())
      bad(inQuotes(name) + " has the unknown type " + inQuotes(tensor.type));
    uint64_t bytes = std::count(tensor.shape.begin(), tensor.shape.end(), 0) ? 0 : known->second;
    for (int64_t extent : tensor.shape) {
      if (bytes > 0 && bytes > data.size() / extent)
        bad(inQuotes(name) + " has a shape that does not fit the file");
      bytes *= extent;
    }
    if (offsets.size() != 2 || offsets[0] > offsets[1] || static_cast<uint64_t>(offsets[1]) > data.size() ||
        static_cast<uint64_t>(offsets[1] - offsets[0]) != bytes)
      bad("the bytes of " + inQuotes(name) + " lie outside it or do not match its shape");
    tensor.bytes = data.substr(offsets[0], bytes);
    tensors.push_back(std::move(tensor));
  }
  // Every byte must belong to exactly one tensor.
  auto begin = [&](const TensorView &tensor) { return static_cast<uint64_t>(tensor.bytes.data() - data.data()); };
  std::sort(tensors.begin(), tensors.end(), [&](const TensorView &a, const TensorView &b) {
    return std::pair(begin(a), a.bytes.size()) < std::pair(begin(b), b.bytes.size());
  });
  uint64_t end = 0;
  for (const TensorView &tensor : tensors) {
    if (begin(tensor) < end)
      bad("the bytes of " + inQuotes(tensor.name) + " begin inside another tensor's");
    if (begin(tensor) > end)
      bad(std::to_string(begin(tensor) - end) + " bytes before " + inQuotes(tensor.name) + " belong to no tensor");
    end += tensor.bytes.size();
  }
  if (end < data.size())
    bad(std::to_string(data.size() - end) + " bytes follow the last tensor");
  return tensors;
}

template <typename Type> static bool areFinite(std::string_view numbers) {
  using Bits = Type::Bits;
  using Vector [[gnu::vector_size(16)]] = Bits;
  constexpr size_t vectors = 4; // at a time
  auto read = [&]<typename T>(T &to, size_t at) { std::memcpy(&to, numbers.data() + at, sizeof to); };
  size_t at = 0;
  Vector found{}; // a lane is not 0 if one of its numbers is not finite
  for (; at + vectors * sizeof(Vector) <= numbers.size(); at += vectors * sizeof(Vector)) {
#pragma GCC unroll vectors
    for (size_t i = 0; i < vectors; ++i) {
      Vector bits;
      read(bits, at + i * sizeof(Vector));
      found |= reinterpret_cast<Vector>((bits & Type::exponent) == Type::exponent);
    }
  }
  Bits bad = 0;
  for (size_t lane = 0; lane < sizeof(Vector) / sizeof(Bits); ++lane)
    bad |= found[lane];
  for (Bits bits; at < numbers.size(); at += sizeof bits) {
    read(bits, at);
    bad |= (bits & Type::exponent) == Type::exponent;
  }
  return bad == 0;
}

// The findings of one pass over a tensor's bytes.
namespace {
struct Examined {
  std::atomic<bool> finite = true;
  std::vector<uint32_t> sums; // of its blocks
};
} // namespace

static std::vector<Examined> examine(ThreadPool *pool, const std::vector<const TensorView *> &tensors, bool finite,
                                     bool sums, const MappedFile *mapped = nullptr) {
  std::vector<Examined> examined(tensors.size());
  if (sums)
    for (size_t i = 0; i < tensors.size(); ++i)
      examined[i].sums.resize((tensors[i]->bytes.size() + checksumBlock - 1) / checksumBlock);
  inParts(pool, tensors, [&](size_t which, int64_t begin, int64_t end) {
    const TensorView &tensor = *tensors[which];
    const size_t bytes = static_cast<size_t>(typeBytes.at(tensor.type));
    static_assert((1 << 18) % checksumBlock == 0); // so a part begins at a block boundary, for any element size
    const std::string_view part = tensor.bytes.substr(begin * bytes, (end - begin) * bytes);
    bool allFinite = true;
    std::function<void(std::string_view)> check;
    if (finite)
      withType(tensor, [&]<typename Type>(Type) {
        check = [&](std::string_view numbers) { allFinite &= areFinite<Type>(numbers); };
      });
    if (sums)
      blockSums(part, examined[which].sums.data() + begin * bytes / checksumBlock, check);
    else if (check)
      check(part);
    if (!allFinite)
      examined[which].finite = false;
    // The first pages stay until weights are packed, which maps them again; so few are no burden.
    constexpr int64_t staying = 16 << 20;
    if (mapped && part.data() - mapped->contents().data() >= staying)
      mapped->releaseBehind(part);
  });
  return examined;
}

static std::vector<const TensorView *> pointersTo(const TensorViews &tensors) {
  std::vector<const TensorView *> pointers;
  for (const TensorView &tensor : tensors)
    pointers.push_back(&tensor);
  return pointers;
}

static void verify(const TensorView &tensor, const Examined &examined, const Metadata &metadata,
                   const std::string &file) {
  if (auto given = metadata.find(tensorChecksum + tensor.name);
      given != metadata.end() && given->second != checksumOf(examined.sums))
    throw Error(file + ": damaged: the bytes of " + inQuotes(tensor.name) + " have the checksum " +
                checksumOf(examined.sums) + ", but it was " + escaped(given->second) +
                " when they were written; use an intact copy");
}

void verifyChecksums(ThreadPool *pool, const TensorViews &tensors, const Metadata &metadata, const std::string &file) {
  if (!metadata.contains(headerChecksum)) // the file has no checksums
    return;
  const std::vector<Examined> examined = examine(pool, pointersTo(tensors), false, true);
  for (size_t i = 0; i < tensors.size(); ++i)
    verify(tensors[i], examined[i], metadata, file);
}

const TensorView *notFinite(ThreadPool *pool, const TensorViews &tensors) {
  const std::vector<Examined> examined = examine(pool, pointersTo(tensors), true, false);
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!examined[i].finite)
      return &tensors[i];
  return nullptr;
}

void verifyWeights(ThreadPool *pool, const std::vector<const TensorView *> &tensors, const Metadata &metadata,
                   const std::string &file, const MappedFile *mapped) {
  const bool summed = metadata.contains(headerChecksum);
  const std::vector<Examined> examined = examine(pool, tensors, true, summed, mapped);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (summed)
      verify(*tensors[i], examined[i], metadata, file);
    if (!examined[i].finite)
      throw Error(file + ": " + inQuotes(tensors[i]->name) +
                  " holds NaN or infinity; the weights are damaged or training diverged");
  }
}

// The checksum of each tensor.
static std::vector<std::string> checksumsOf(ThreadPool *pool, const TensorViews &tensors,
                                            const std::function<void(size_t)> &bring) {
  std::vector<std::string> sums;
  if (!bring)
    for (const Examined &examined : examine(pool, pointersTo(tensors), false, true))
      sums.push_back(checksumOf(examined.sums));
  else
    for (size_t i = 0; i < tensors.size(); ++i) {
      bring(i);
      sums.push_back(checksumOf(examine(pool, {&tensors[i]}, false, true).front().sums));
    }
  return sums;
}

void writeSafetensors(const std::string &file, const TensorViews &tensors, const Metadata &metadata, ThreadPool *pool,
                      const std::string &previous, const std::function<void(size_t)> &bring) {
  FileWriter writer(file);
  const std::vector<std::string> sums = checksumsOf(pool, tensors, bring);
  nlohmann::ordered_json header = {{"__metadata__", metadata}};
  uint64_t offset = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView &tensor = tensors[i];
    header["__metadata__"][tensorChecksum + tensor.name] = sums[i];
    header[tensor.name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  header["__metadata__"][headerChecksum] = checksumOf(nlohmann::json(header).dump());
  std::string text = header.dump();
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');
  const uint64_t size = text.size();
  writer.write({reinterpret_cast<const char *>(&size), 8});
  writer.write(text);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (bring)
      bring(i);
    writer.write(tensors[i].bytes);
  }
  writer.commit(previous);
}

} // namespace xfc
