// Validates and loads untrusted SentencePiece models, and segments text with them.
#include "tokenizers/SentencePieceModel.h"
#include "support/Error.h"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <sentencepiece_processor.h>

// Declared in a header of the library that needs further ones of its sources.
namespace sentencepiece::random {
std::mt19937 *GetRandomGenerator();
}

namespace xfc {
namespace {

// A field of a protocol buffer: its number, and its bytes if it is length-delimited or of fixed size, or else its
// value.
struct Field {
  uint64_t number = 0;
  std::string_view bytes;
  uint64_t value = 0;
};

// Calls use(field) for each field of a message until one returns false; returns false then, or if the encoding is
// broken.
template <typename Use> bool eachField(std::string_view message, Use use) {
  auto varint = [&](uint64_t &value) {
    value = 0;
    for (int shift = 0; shift < 64 && !message.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message.front());
      message.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128)
        return true;
    }
    return false;
  };
  while (!message.empty()) {
    uint64_t tag, length = 0, value = 0;
    if (!varint(tag))
      return false;
    switch (tag & 7) {
    case 0:
      if (!varint(value))
        return false;
      break;
    case 1:
      length = 8;
      break;
    case 2:
      if (!varint(length))
        return false;
      break;
    case 5:
      length = 4;
      break;
    default:
      return false;
    }
    if (length > message.size())
      return false;
    if (!use(Field{tag >> 3, message.substr(0, length), value}))
      return false;
    message.remove_prefix(length);
  }
  return true;
}

std::string faultOfPiece(std::string_view message) {
  std::string_view piece;
  float score = 0;
  const bool whole = eachField(message, [&](const Field &field) {
    if (field.number == 1)
      piece = field.bytes;
    else if (field.number == 2 && field.bytes.size() == sizeof score)
      std::memcpy(&score, field.bytes.data(), sizeof score);
    return true;
  });
  return !whole                  ? "a piece is malformed"
         : piece.empty()         ? "a piece is empty"
         : !std::isfinite(score) ? "a piece has no finite score"
                                 : "";
}

// The library draws from a generator that every thread has of its own, and that can be seeded only once. This puts
// another one in its place for a while, so that what is drawn does not depend on what the thread did before.
class LentGenerator {
public:
  explicit LentGenerator(std::mt19937 &lent) : lent(lent) {
    std::swap(*sentencepiece::random::GetRandomGenerator(), lent);
  }
  ~LentGenerator() { std::swap(*sentencepiece::random::GetRandomGenerator(), lent); }
  LentGenerator(const LentGenerator &) = delete;
  LentGenerator &operator=(const LentGenerator &) = delete;

private:
  std::mt19937 &lent;
};

template <typename Piece>
auto sampleText(const sentencepiece::SentencePieceProcessor &model, std::string_view text,
                const SegmentationSampling &sampling, std::vector<Piece> &pieces) {
  constexpr int fromAll = -1; // not from the n best segmentations only
  const LentGenerator lent(sampling.random);
  return model.SampleEncode({text.data(), text.size()}, fromAll, static_cast<float>(sampling.alpha), &pieces);
}

} // namespace

// The normalization table consists of the size of a trie, the trie as a Darts double array, and zero-terminated
// strings, into which the trie's values point.
std::string faultOfCharsMap(std::string_view map) {
  if (map.empty())
    return "";
  uint32_t size = 0;
  if (map.size() < sizeof size)
    return "its normalization table is truncated";
  std::memcpy(&size, map.data(), sizeof size);
  map.remove_prefix(sizeof size);
  constexpr size_t block = 256 * sizeof(uint32_t); // the children of a node lie in one block
  if (size == 0 || size % block != 0 || size >= map.size() || map.back() != 0)
    return "its normalization table has parts of the wrong size";
  const size_t units = size / sizeof(uint32_t), strings = map.size() - size;
  auto unit = [&](size_t i) {
    uint32_t value;
    std::memcpy(&value, map.data() + i * sizeof value, sizeof value);
    return value;
  };
  constexpr uint32_t isValue = 1u << 31;
  for (size_t i = 0; i < units; ++i) {
    const uint32_t node = unit(i);
    if (node & isValue) {
      if (i == 0) // the root
        return "its normalization table has no root";
      continue;
    }
    const size_t children = i ^ (static_cast<size_t>(node >> 10) << ((node & 512) >> 6));
    const bool hasValue = node >> 8 & 1;
    if ((children | 255) >= units || (hasValue && (unit(children) & ~isValue) >= strings))
      return "its normalization table points outside itself";
  }
  return "";
}

std::string faultOfSentencePieceModel(std::string_view bytes) {
  std::string fault;
  auto checkNormalizer = [&](std::string_view message) {
    const bool whole = eachField(message, [&](const Field &field) {
      if (field.number == 2)
        fault = faultOfCharsMap(field.bytes);
      return fault.empty();
    });
    return whole || !fault.empty() ? fault : "its normalization rules are malformed";
  };
  const bool whole = eachField(bytes, [&](const Field &field) {
    if (field.number == 1)
      fault = faultOfPiece(field.bytes);
    else if (field.number == 3 || field.number == 5) // normalization and its inverse
      fault = checkNormalizer(field.bytes);
    return fault.empty();
  });
  return whole || !fault.empty() ? fault : "it is truncated or malformed";
}

bool isUnigramModel(std::string_view bytes) {
  constexpr uint64_t unigram = 1;
  uint64_t kind = unigram; // unless the options that it was trained with say otherwise
  eachField(bytes, [&](const Field &field) {
    return field.number != 2 || eachField(field.bytes, [&](const Field &option) {
             if (option.number == 3)
               kind = option.value;
             return true;
           });
  });
  return kind == unigram;
}

std::unique_ptr<sentencepiece::SentencePieceProcessor> loadSentencePieceModel(std::string_view bytes) {
  auto model = std::make_unique<sentencepiece::SentencePieceProcessor>();
  auto loads = [&] {
    try {
      return model->LoadFromSerializedProto({bytes.data(), bytes.size()}).ok();
    } catch (const std::exception &thrown) { // by the library's tables of pieces, where memory is out too
      if (std::string_view(thrown.what()).ends_with("std::bad_alloc"))
        throw std::bad_alloc();
      return false;
    }
  };
  std::string fault = bytes.empty() ? "it is empty" : faultOfSentencePieceModel(bytes);
  if (fault.empty() && !loads())
    fault = "it cannot be loaded";
  if (!fault.empty())
    throw Error("not a SentencePiece model (" + fault + "); `xfc vocab` makes one");
  return model;
}

template <typename Piece>
std::vector<Piece> segmentText(const sentencepiece::SentencePieceProcessor &model, std::string_view text,
                               const SegmentationSampling *sampling) {
  std::vector<Piece> pieces;
  const auto status =
      sampling ? sampleText(model, text, *sampling, pieces) : model.Encode({text.data(), text.size()}, &pieces);
  if (!status.ok())
    throw Error("SentencePiece cannot encode this line: " + status.ToString());
  return pieces;
}
template std::vector<int> segmentText(const sentencepiece::SentencePieceProcessor &, std::string_view,
                                      const SegmentationSampling *);
template std::vector<std::string> segmentText(const sentencepiece::SentencePieceProcessor &, std::string_view,
                                              const SegmentationSampling *);

static constexpr std::string_view space = "\xE2\x96\x81";

std::string withoutBlank(std::string_view piece) {
  if (piece.starts_with(space))
    piece.remove_prefix(space.size());
  return std::string(piece);
}

std::string withBlanks(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find(space, at), text.size());
    result.append(text, at, next - at);
    if (next < text.size())
      result += ' ';
    at = next + space.size();
  }
  return result;
}

bool canSample(const sentencepiece::SentencePieceProcessor &model) {
  std::mt19937 random;
  std::vector<int> none;
  return sampleText(model, "", {1, random}, none).ok(); // the library refuses even to sample an empty text
}

} // namespace xfc
