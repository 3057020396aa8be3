// Writes and reads shards, the files of corpora.
#include "corpora/Shard.h"
#include "support/Checksum.h"
#include "support/Format.h"
#include "support/LineReader.h"
#include "support/MappedFile.h"
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
  uint8_t weighting, linksPerLabel;
  uint16_t tokensPerLabel;
};
constexpr uint32_t newestVersion = 5;
// A file has the first version that can hold what it holds, so that earlier executables can read it.
Header headerOf(Weighting weighting, int64_t tokensPerLabel, int64_t linksPerLabel, bool withLines) {
  const uint32_t version = withLines                      ? newestVersion
                           : linksPerLabel > 0            ? 4
                           : tokensPerLabel > 0           ? 3
                           : weighting != Weighting::None ? 2
                                                          : 1;
  return {{'x', 'f', 'c', 'p', 'a', 'i', 'r', 's'},
          version,
          static_cast<uint8_t>(weighting),
          static_cast<uint8_t>(linksPerLabel),
          static_cast<uint16_t>(tokensPerLabel)};
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

// How many weights belong to so many pairs and ids.
int64_t weightsOf(Weighting weighting, int64_t pairs, int64_t ids) {
  return weighting == Weighting::None ? 0 : weighting == Weighting::Sentence ? pairs : ids;
}

} // namespace

ShardWriter::ShardWriter(const std::string &name, const VocabularyPair &vocabularies, const Module &module,
                         Format format, Weighting weighting, int64_t tokensPerLabel, int64_t linksPerLabel,
                         bool withLines)
    : file(name), vocabularies(vocabularies), module(module), format(format), weighting(weighting),
      tokensPerLabel(tokensPerLabel), linksPerLabel(linksPerLabel), withLines(withLines) {
  file.write(bytesOf(headerOf(weighting, tokensPerLabel, linksPerLabel, withLines)));
  written = sizeof(Header);
}

void ShardWriter::add(std::span<const int32_t> source, std::span<const int32_t> target, Weights weights,
                      Distribution distributions, Links links, const PairLines *lines) {
  block.add(source, target, weights, distributions, links, withLines ? lines : nullptr);
  for (const auto [token, probability] : distributions)
    ofDistributions.mix(static_cast<uint64_t>(static_cast<uint32_t>(token)) << 32 |
                        std::bit_cast<uint32_t>(probability));
  sourceTokens += static_cast<uint32_t>(source.size());
  if (block.pairs() == blockPairs)
    writeBlock();
}

void ShardWriter::writeBlock() {
  if (linksPerLabel > 0)
    linkCounts.push_back(block.linkEnds.back());
  else
    block.linkEnds.clear();
  if (withLines) {
    textSizes.push_back(static_cast<uint32_t>(block.text.size()));
    block.text.resize((block.text.size() + 3) / 4 * 4);
  }
  uint32_t sum = 0;
  for (const std::string_view part :
       {bytesOf(block.ends), bytesOf(block.ids), bytesOf(block.weights), bytesOf(block.labelEnds),
        bytesOf(block.distributions), bytesOf(block.linkEnds), bytesOf(block.links), bytesOf(block.prefixes),
        bytesOf(block.lineEnds), bytesOf(block.text)}) {
    file.write(part);
    written += part.size();
    sum = crc32c(part, sum);
  }
  table.push_back({written, sum, sourceTokens});
  block.clear();
  sourceTokens = 0;
}

void ShardWriter::commit(const CorpusTotals &ofPairs) {
  CorpusTotals totals = ofPairs;
  if (tokensPerLabel > 0) // otherwise, the hash is that of the text
    totals.mix(ofDistributions.hash);
  if (block.pairs() > 0)
    writeBlock();
  static_assert(sizeof(Entry) == entrySize);
  file.write(bytesOf(table));
  file.write(bytesOf(linkCounts));
  file.write(bytesOf(textSizes));
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
  footer.tableSum = crc32c(bytesOf(textSizes), crc32c(bytesOf(linkCounts), crc32c(bytesOf(table))));
  footer.sum =
      crc32c(bytesOf(footer, summed), crc32c(bytesOf(headerOf(weighting, tokensPerLabel, linksPerLabel, withLines))));
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
  const auto header = at<Header>(contents, 0);
  weighting = static_cast<Weighting>(header.weighting);
  tokensPerLabel = header.tokensPerLabel;
  linksPerLabel = header.linksPerLabel;
  withLines = header.version == newestVersion;
  if (weighting > Weighting::Word || tokensPerLabel > mostProbableTokens ||
      header.version != headerOf(weighting, tokensPerLabel, linksPerLabel, withLines).version)
    damaged("its version is not that of the weights, distributions and links that its header names");
  if (footer.blockPairs != blockPairs || footer.pairs < 1 ||
      footer.pairs > static_cast<int64_t>(contents.size() / sizeof(uint64_t)))
    damaged("its footer counts pairs that it cannot hold");
  const size_t count = static_cast<size_t>((footer.pairs + blockPairs - 1) / blockPairs);
  const size_t ofBlock = entrySize + ((linksPerLabel > 0) + withLines) * sizeof(uint32_t); // in the table
  if (count > (footerAt - sizeof(Header)) / ofBlock)
    damaged("its footer counts pairs that it cannot hold");
  const size_t tableAt = footerAt - count * ofBlock;
  const std::string_view table = contents.substr(tableAt, count * ofBlock);
  if (footer.tableSum != crc32c(table))
    damaged("its table of blocks does not match its checksum");
  counts.pairs = footer.pairs;
  counts.skippedLong = footer.skippedLong;
  counts.skippedEmpty = footer.skippedEmpty;
  counts.hash = footer.hash;
  for (size_t i = 0; linksPerLabel > 0 && i < count; ++i)
    linkCounts.push_back(at<uint32_t>(table, count * entrySize + i * sizeof(uint32_t)));
  for (size_t i = 0; withLines && i < count; ++i)
    textSizes.push_back(at<uint32_t>(table, count * (ofBlock - sizeof(uint32_t)) + i * sizeof(uint32_t)));
  int64_t tokens[2] = {0, 0};
  begins.assign(1, sizeof(Header));
  views.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto end = at<uint64_t>(table, i * entrySize);
    const uint64_t begin = begins.back(), ends = 2 * static_cast<uint64_t>(pairsOf(i)) * sizeof(uint32_t);
    if (end < begin || end > tableAt || end - begin < ends || (end - begin) % sizeof(int32_t) != 0)
      damaged("block " + std::to_string(i + 1) + " does not fit in it");
    begins.push_back(end);
    const int64_t sources = at<uint32_t>(table, i * entrySize + 12), ids = idsOf(i, sources);
    if (ids < 0)
      damaged("block " + std::to_string(i + 1) + " does not hold its weights, distributions, links or lines");
    const auto *words = reinterpret_cast<const int32_t *>(contents.data() + begin + ends);
    views.push_back({reinterpret_cast<const uint32_t *>(contents.data() + begin), words,
                     reinterpret_cast<const float *>(words + ids), weighting});
    Block &view = views.back();
    const int64_t pairs = pairsOf(i);
    if (tokensPerLabel > 0) {
      view.tokensPerLabel = tokensPerLabel;
      view.labelEnds = reinterpret_cast<const uint32_t *>(view.weights + weightsOf(weighting, pairs, ids));
      view.distributions = reinterpret_cast<const TokenProbability *>(view.labelEnds + pairs);
    }
    // Links, and then lines, are at the end of the block.
    const auto *const lines = reinterpret_cast<const uint32_t *>(contents.data() + end) - wordsOfLines(i);
    if (withLines) {
      view.prefixes = lines;
      view.lineEnds = view.prefixes + 2 * pairs;
      view.text = reinterpret_cast<const char *>(view.lineEnds + 2 * pairs);
    }
    if (linksPerLabel > 0) {
      view.linksPerLabel = linksPerLabel;
      view.links = reinterpret_cast<const Link *>(lines) - linkCounts[i];
      view.linkEnds = reinterpret_cast<const uint32_t *>(view.links) - pairs;
    }
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
  pad = module.pad;
}

std::string_view Shard::bytesOf(size_t i) const { return contents.substr(begins[i], begins[i + 1] - begins[i]); }

int64_t Shard::pairsOf(size_t i) const {
  return std::min(blockPairs, counts.pairs - static_cast<int64_t>(i) * blockPairs);
}

// The size of the lines of block i, with their prefixes and ends, in words of 4 bytes.
int64_t Shard::wordsOfLines(size_t i) const {
  return withLines ? 4 * pairsOf(i) + (static_cast<int64_t>(textSizes[i]) + 3) / 4 : 0;
}

// Follows from the size of the block and its numbers of source tokens, of links and of bytes of text; -1 if no number
// of ids, with their weights, distributions, links and lines, has that size. A label is an id that is neither of a
// source nor a start.
int64_t Shard::idsOf(size_t i, int64_t sources) const {
  const int64_t pairs = pairsOf(i), words = static_cast<int64_t>(bytesOf(i).size() / sizeof(int32_t)) - 2 * pairs,
                ofLabel = 2 * tokensPerLabel;
  const int64_t ofLinks = (linksPerLabel > 0 ? pairs + 2 * static_cast<int64_t>(linkCounts[i]) : 0) + wordsOfLines(i);
  const int64_t ofIds = words - (weighting == Weighting::Sentence ? pairs : 0) - (ofLabel > 0 ? pairs : 0) - ofLinks +
                        ofLabel * (sources + pairs),
                ofId = 1 + (weighting == Weighting::Word ? 1 : 0) + ofLabel, ids = ofIds / ofId;
  return ofIds % ofId == 0 && ids >= 0 && (ofLabel == 0 || ids >= sources + pairs) ? ids : -1;
}

void Shard::check(size_t i) const {
  const std::string_view entry = contents.substr(begins.back() + i * entrySize, entrySize);
  const std::string block = "block " + std::to_string(i + 1) + " of " + std::to_string(views.size());
  if (crc32c(bytesOf(i)) != at<uint32_t>(entry, 8))
    damaged(block + " does not match its checksum");
  const Block &view = views[i];
  const auto *const ends = view.ends;
  const auto *const ids = view.ids;
  const int64_t pairs = pairsOf(i), all = idsOf(i, at<uint32_t>(entry, 12));
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
  if (!std::all_of(view.weights, view.weights + weightsOf(weighting, pairs, all),
                   [](float weight) { return weight >= 0 && std::isfinite(weight); }))
    damaged(block + " holds a weight that is negative, infinite or no number");
  if (tokensPerLabel > 0)
    checkDistributions(i);
  if (linksPerLabel > 0)
    checkLinks(i);
  if (withLines)
    checkLines(i);
}

// A pair of block i, for messages.
std::string Shard::placeOf(size_t i, int64_t pair) const {
  return "block " + std::to_string(i + 1) + " of " + std::to_string(views.size()) + ", pair " +
         std::to_string(static_cast<int64_t>(i) * blockPairs + pair + 1) + ", ";
}

// To be called once the block's sequences have been checked.
void Shard::checkDistributions(size_t i) const {
  const Block &view = views[i];
  const TokenProbability *next = view.distributions;
  uint32_t labels = 0;
  for (int64_t pair = 0; pair < pairsOf(i); ++pair) {
    auto where = [&](uint32_t label) { return placeOf(i, pair) + "label " + std::to_string(label + 1) + ": "; };
    const uint32_t own = view.ends[2 * pair + 1] - view.ends[2 * pair] - 1;
    labels += own;
    if (view.labelEnds[pair] != labels)
      damaged(where(own - 1) + "the distributions up to here are of " + std::to_string(view.labelEnds[pair]) +
              " labels, but there are " + std::to_string(labels));
    for (uint32_t label = 0; label < own; ++label) {
      double sum = 0;
      for (int64_t k = 0; k < tokensPerLabel; ++k, ++next) {
        if (next->token < 0 || next->token >= sizes[XFC_TARGET])
          throw Error(name + ": " + where(label) + "the distribution has the id " + std::to_string(next->token) +
                      ", but this model's vocabulary has " + std::to_string(sizes[XFC_TARGET]) +
                      " tokens; make it again with `prepare` of a teacher that has the same vocabulary");
        if (!(next->probability >= 0)) // nor a NaN
          damaged(where(label) + "a probability is negative or no number");
        sum += static_cast<double>(next->probability);
      }
      if (sum > 1 + 1e-5) // each is rounded to f32
        damaged(where(label) + format("the probabilities add up to %g, which is more than 1", sum));
    }
  }
}

// To be called once the block's sequences have been checked.
void Shard::checkLinks(size_t i) const {
  const Block &view = views[i];
  uint32_t begin = 0;
  for (int64_t pair = 0; pair < pairsOf(i); ++pair) {
    const int64_t first = pair == 0 ? 0 : view.ends[2 * pair - 1], second = view.ends[2 * pair],
                  sources = second - first, labels = view.ends[2 * pair + 1] - second - 1;
    const uint32_t end = view.linkEnds[pair];
    if (end < begin || end > linkCounts[i])
      damaged(placeOf(i, pair) + "the links end at number " + std::to_string(end) + ", which is not between " +
              std::to_string(begin) + " and " + std::to_string(linkCounts[i]));
    int64_t ofLabel = 0;
    for (uint32_t k = begin; k < end; ++k) {
      const auto [source, label] = view.links[k];
      auto wrong = [&, source = source, label = label](const std::string &what) {
        damaged(placeOf(i, pair) + "the link " + std::to_string(source) + "-" + std::to_string(label) + " " + what);
      };
      if (source < 0 || source >= sources || label < 0 || label >= labels)
        wrong("is to a token that is not there: the pair has " + std::to_string(sources) + " source tokens and " +
              std::to_string(labels) + " labels");
      const bool sameLabel = k > begin && view.links[k - 1].label == label;
      if (k > begin && (sameLabel ? view.links[k - 1].source >= source : view.links[k - 1].label > label))
        wrong("does not come after the one before it");
      ofLabel = sameLabel ? ofLabel + 1 : 1;
      if (ofLabel > linksPerLabel)
        wrong("is one more than the " + std::to_string(linksPerLabel) + " that a label may have");
    }
    if (begin < end && std::count(view.ids + first, view.ids + view.ends[2 * pair + 1], pad) > 0)
      throw Error(name + ": " + placeOf(i, pair) + "has links and a pad of this model (id " + std::to_string(pad) +
                  "), which cannot have one; make it again with `prepare` of this executable");
    begin = end;
  }
  if (begin != linkCounts[i])
    damaged("block " + std::to_string(i + 1) + " holds " + std::to_string(begin) + " links, but its table says " +
            std::to_string(linkCounts[i]));
}

// To be called once the block's sequences have been checked.
void Shard::checkLines(size_t i) const {
  const Block &view = views[i];
  uint32_t begin = 0;
  for (int64_t k = 0; k < 2 * pairsOf(i); ++k) {
    const auto wrong = [&](const std::string &what) {
      damaged(placeOf(i, k / 2) + (k % 2 == 0 ? "the source's" : "the target's") + " line " + what);
    };
    const uint32_t end = view.lineEnds[k], ids = view.ends[k] - (k == 0 ? 0 : view.ends[k - 1]);
    if (end < begin || end > textSizes[i])
      wrong("ends at byte " + std::to_string(end) + ", which is not between " + std::to_string(begin) + " and " +
            std::to_string(textSizes[i]));
    if (view.prefixes[k] > ids || view.prefixes[k] < k % 2)
      wrong("begins after " + std::to_string(view.prefixes[k]) + " of " + std::to_string(ids) + " ids");
    if (invalidUtf8({view.text + begin, end - begin}) != std::string::npos)
      wrong("is not valid UTF-8");
    begin = end;
  }
  if (begin != textSizes[i])
    damaged("block " + std::to_string(i + 1) + " holds " + std::to_string(begin) +
            " bytes of text, but its table says " + std::to_string(textSizes[i]));
}

void Shard::requireUnchanged() const {
  if (file)
    file->requireUnchanged();
}

void Shard::release() const {
  if (file)
    file->release();
}

} // namespace xfc
