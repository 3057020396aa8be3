// Writes and reads shards, the files of corpora.
#include "text/Shard.h"
#include "support/Checksum.h"
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace xfc {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are mapped as they lie in the file");

constexpr char magic[8] = {'x', 'f', 'c', 'p', 'a', 'i', 'r', 's'};
constexpr size_t hashDigits = 16;

struct Header {
  char mark[8];
  uint32_t version;
  Weighting weighting;
};
constexpr uint32_t newestVersion = 2;
// Without weights, a file has the version that executables without support for weights read.
Header headerOf(Weighting weighting) {
  return {{'x', 'f', 'c', 'p', 'a', 'i', 'r', 's'}, weighting == Weighting::None ? 1u : newestVersion, weighting};
}

enum SourceEos : uint32_t { None, Added, Verbatim }; // a model without eos, a model with eos, ids taken verbatim

struct Footer {
  int64_t pairs, tokens[2], skippedLong, skippedEmpty; // as CorpusTotals has them
  uint64_t hash;
  char vocabularies[2][hashDigits]; // Vocabulary::hash(); zeros for ids without a vocabulary
  uint32_t shortest[2], longest[2];
  int32_t start, eos;
  uint32_t sourceEos, blockPairs;
  uint32_t tableSum, sum; // CRC-32C of the table; of the header and of the footer up to `sum`
  char mark[8];
};
constexpr size_t summed = offsetof(Footer, sum), entrySize = 16;
static_assert(sizeof(Header) == 16 && sizeof(Footer) == 128 && summed == 116);

template <typename T> std::string_view bytesOf(const T &value, size_t size = sizeof(T)) {
  return {reinterpret_cast<const char *>(&value), size};
}
template <typename T> std::string_view bytesOf(const std::vector<T> &values) {
  return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T)};
}
template <typename T> T at(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

} // namespace

ShardWriter::ShardWriter(const std::string &name, const VocabularyPair &vocabularies, const Module &module,
                         Format format, Weighting weighting)
    : file(name), vocabularies(vocabularies), module(module), format(format), weighting(weighting) {
  file.write(bytesOf(headerOf(weighting)));
  written = sizeof(Header);
}

void ShardWriter::add(std::span<const int32_t> source, std::span<const int32_t> target, Weights weights) {
  block.add(source, target, weights);
  sourceTokens += static_cast<uint32_t>(source.size());
  if (block.pairs() == blockPairs)
    writeBlock();
}

void ShardWriter::writeBlock() {
  uint32_t sum = 0;
  for (const std::string_view part : {bytesOf(block.ends), bytesOf(block.ids), bytesOf(block.weights)}) {
    file.write(part);
    written += part.size();
    sum = crc32c(part, sum);
  }
  table.push_back({written, sum, sourceTokens});
  block.clear();
  sourceTokens = 0;
}

void ShardWriter::commit(const CorpusTotals &totals) {
  if (block.pairs() > 0)
    writeBlock();
  static_assert(sizeof(Entry) == entrySize);
  file.write(bytesOf(table));
  Footer footer{};
  footer.pairs = totals.pairs;
  footer.skippedLong = totals.skippedLong;
  footer.skippedEmpty = totals.skippedEmpty;
  footer.hash = totals.hash;
  const Vocabulary *both[] = {&vocabularies.source, &vocabularies.target};
  for (int set : {XFC_SOURCE, XFC_TARGET}) {
    footer.tokens[set] = totals.tokens[set];
    footer.shortest[set] = static_cast<uint32_t>(totals.shortest[set]);
    footer.longest[set] = static_cast<uint32_t>(totals.longest[set]);
    if (!both[set]->bytes().empty())
      std::memcpy(footer.vocabularies[set], both[set]->hash().data(), hashDigits);
  }
  footer.start = module.start;
  footer.eos = module.eos;
  footer.sourceEos = format == Format::Ids ? Verbatim : module.sourceEos ? Added : None;
  footer.blockPairs = blockPairs;
  footer.tableSum = crc32c(bytesOf(table));
  footer.sum = crc32c(bytesOf(footer, summed), crc32c(bytesOf(headerOf(weighting))));
  std::memcpy(footer.mark, magic, sizeof magic);
  file.write(bytesOf(footer));
  file.commit();
}

Shard::Shard(const std::string &name, const VocabularyPair &vocabularies, const Module &module)
    : file(MappedFile::readOnly(name)), contents(file->contents()), name(name) {
  open(vocabularies, module);
}

Shard::Shard(std::string_view contents, const std::string &name, const VocabularyPair &vocabularies,
             const Module &module)
    : contents(contents), name(name) {
  open(vocabularies, module);
}

void Shard::damaged(const std::string &what) const {
  throw Error(name + ": the file is damaged: " + what + "; copy it again, or make it again with `prepare`");
}

void Shard::open(const VocabularyPair &vocabularies, const Module &module) {
  if (contents.size() < sizeof magic || std::memcmp(contents.data(), magic, sizeof magic) != 0)
    throw Error(
        name +
        ": not a file of pairs; --data takes files written by `prepare --out`; give text with --source and --target");
  if (contents.size() >= sizeof(Header) && at<Header>(contents, 0).version > newestVersion)
    throw Error(name + ": a file of pairs of version " + std::to_string(at<Header>(contents, 0).version) +
                ", but this executable reads versions up to " + std::to_string(newestVersion) +
                "; make it again with `prepare` of this executable");
  if (contents.size() < sizeof(Header) + entrySize + sizeof(Footer) ||
      std::memcmp(contents.data() + contents.size() - sizeof magic, magic, sizeof magic) != 0)
    damaged("its end is missing");
  const size_t footerAt = contents.size() - sizeof(Footer);
  const auto footer = at<Footer>(contents, footerAt);
  if (footer.sum != crc32c(contents.substr(footerAt, summed), crc32c(contents.substr(0, sizeof(Header)))))
    damaged("its footer does not match its checksum");

  // The footer matches its checksum, but it may still be forged: check every count.
  weighting = at<Header>(contents, 0).weighting;
  if (weighting > Weighting::Word || at<Header>(contents, 0).version != headerOf(weighting).version)
    damaged("its version is not that of the weights that its header names");
  if (footer.blockPairs != blockPairs || footer.pairs < 1 ||
      footer.pairs > static_cast<int64_t>(contents.size() / sizeof(uint64_t)))
    damaged("its footer counts pairs that it cannot hold");
  const size_t count = static_cast<size_t>((footer.pairs + blockPairs - 1) / blockPairs);
  if (count > (footerAt - sizeof(Header)) / entrySize)
    damaged("its footer counts pairs that it cannot hold");
  const size_t tableAt = footerAt - count * entrySize;
  const std::string_view table = contents.substr(tableAt, count * entrySize);
  if (footer.tableSum != crc32c(table))
    damaged("its table of blocks does not match its checksum");
  counts.pairs = footer.pairs;
  counts.skippedLong = footer.skippedLong;
  counts.skippedEmpty = footer.skippedEmpty;
  counts.hash = footer.hash;
  int64_t tokens[2] = {0, 0};
  begins.assign(1, sizeof(Header));
  views.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto end = at<uint64_t>(table, i * entrySize);
    const uint64_t begin = begins.back(), ends = 2 * static_cast<uint64_t>(pairsOf(i)) * sizeof(uint32_t);
    if (end < begin || end > tableAt || end - begin < ends || (end - begin) % sizeof(int32_t) != 0)
      damaged("block " + std::to_string(i + 1) + " does not fit in it");
    begins.push_back(end);
    const int64_t ids = idsOf(i);
    if (ids < 0)
      damaged("block " + std::to_string(i + 1) + " does not hold its weights");
    const auto *words = reinterpret_cast<const int32_t *>(contents.data() + begin + ends);
    views.push_back({reinterpret_cast<const uint32_t *>(contents.data() + begin), words,
                     reinterpret_cast<const float *>(words + ids), weighting});
    const int64_t sources = at<uint32_t>(table, i * entrySize + 12);
    tokens[XFC_SOURCE] += sources;
    tokens[XFC_TARGET] += ids - sources - pairsOf(i);
  }
  if (begins.back() != tableAt)
    damaged("its blocks leave a gap");
  for (int set : {XFC_SOURCE, XFC_TARGET}) {
    counts.tokens[set] = footer.tokens[set];
    counts.shortest[set] = footer.shortest[set];
    counts.longest[set] = footer.longest[set];
    if (footer.tokens[set] != tokens[set] || footer.shortest[set] < 1 || footer.shortest[set] > footer.longest[set])
      damaged("its footer and its blocks count different numbers of tokens");
  }

  const Vocabulary *both[] = {&vocabularies.source, &vocabularies.target};
  for (int set : {XFC_SOURCE, XFC_TARGET}) {
    const std::string theirs(footer.vocabularies[set], footer.vocabularies[set][0] == 0 ? 0 : hashDigits);
    if (!theirs.empty() && !both[set]->bytes().empty() && theirs != both[set]->hash())
      throw Error(name + ": its " + (set == XFC_SOURCE ? "source" : "target") +
                  " was made with another vocabulary (hash " + theirs + ") than " + both[set]->name() + " (hash " +
                  both[set]->hash() + "); give that one, or make the file again with `prepare`");
  }
  if (footer.start != module.start || footer.eos != module.eos ||
      (footer.sourceEos != Verbatim && (footer.sourceEos == Added) != module.sourceEos))
    throw Error(name + ": it was made for a model with other tokens (start " + std::to_string(footer.start) + ", eos " +
                std::to_string(footer.eos) + (footer.sourceEos == Added ? ", eos after" : ", none after") +
                " the source) than this one (" + std::to_string(module.start) + ", " + std::to_string(module.eos) +
                (module.sourceEos ? ", eos after it" : ", none") +
                "); make it again with `prepare` of this executable");
  const int64_t most[] = {module.maxLength, module.maxTargetLength};
  for (int set : {XFC_SOURCE, XFC_TARGET})
    if (most[set] > 0 && counts.longest[set] > most[set])
      throw Error(name + ": it holds a " + (set == XFC_SOURCE ? "source" : "target") + " of " +
                  std::to_string(counts.longest[set]) + " tokens, longer than this model's max_length of " +
                  std::to_string(most[set]) + "; make it again with `prepare` of this executable");
  sizes[XFC_SOURCE] = module.sourceVocab;
  sizes[XFC_TARGET] = module.targetVocab;
  start = module.start;
  eos = module.eos;
}

std::string_view Shard::bytesOf(size_t i) const { return contents.substr(begins[i], begins[i + 1] - begins[i]); }

int64_t Shard::pairsOf(size_t i) const {
  return std::min(blockPairs, counts.pairs - static_cast<int64_t>(i) * blockPairs);
}

// Follows from the size of the block; -1 if no number of ids and weights has that size.
int64_t Shard::idsOf(size_t i) const {
  const int64_t rest = static_cast<int64_t>(bytesOf(i).size() / sizeof(int32_t)) - 2 * pairsOf(i);
  if (weighting == Weighting::Word)
    return rest % 2 == 0 ? rest / 2 : -1;
  return weighting == Weighting::None ? rest : std::max<int64_t>(rest - pairsOf(i), -1);
}

void Shard::check(size_t i) const {
  const std::string_view entry = contents.substr(begins.back() + i * entrySize, entrySize);
  const std::string block = "block " + std::to_string(i + 1) + " of " + std::to_string(views.size());
  if (crc32c(bytesOf(i)) != at<uint32_t>(entry, 8))
    damaged(block + " does not match its checksum");
  const auto [ends, ids, weights, unused] = views[i];
  const int64_t pairs = pairsOf(i), all = idsOf(i);
  int64_t begin = 0, sources = 0;
  for (int64_t k = 0; k < 2 * pairs; ++k) {
    const int set = k % 2 == 0 ? XFC_SOURCE : XFC_TARGET;
    const int64_t end = ends[k], length = end - begin - (set == XFC_TARGET);
    if (end > all || length < counts.shortest[set] || length > counts.longest[set])
      damaged(block + " holds a sequence longer or shorter than its footer says");
    if (set == XFC_SOURCE)
      sources += length;
    else if (ids[begin] != start || ids[end - 1] != eos)
      damaged(block + " holds a target without start or end");
    uint32_t largest = 0; // as unsigned numbers, negative ids are the largest
    for (int64_t j = begin; j < end; ++j)
      largest = std::max(largest, static_cast<uint32_t>(ids[j]));
    if (largest >= sizes[set])
      throw Error(name + ": " + block + " holds the id " + std::to_string(static_cast<int32_t>(largest)) +
                  ", but this model's vocabulary has " + std::to_string(sizes[set]) +
                  " tokens; train with the model it was made for, or make it again with `prepare`");
    begin = end;
  }
  if (begin != all || sources != at<uint32_t>(entry, 12))
    damaged(block + " does not hold the number of tokens that its table says");
  const auto *const end = reinterpret_cast<const float *>(bytesOf(i).data() + bytesOf(i).size());
  if (!std::all_of(weights, end, [](float weight) { return weight >= 0 && std::isfinite(weight); }))
    damaged(block + " holds a weight that is negative, infinite or no number");
}

void Shard::release() const {
  if (file)
    file->release();
}

} // namespace xfc
