// Fuzzes files of prepared pairs: an input that can be opened and checked is used as training uses it. Such files have
// counts and checksums; the mutator usually repairs them, so that the code behind them is reached.
#include "../Fuzz.h"
#include "corpora/Batches.h"
#include "support/Checksum.h"
#include "support/LineReader.h"

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const Vocabulary ids(20);
  Module module;
  module.sourceVocab = module.targetVocab = 20;
  module.maxLength = module.maxTargetLength = 64;
  fuzz::expectOnlyErrors([&] {
    std::vector<uint32_t> aligned((size + 3) / 4);
    if (size > 0)
      std::memcpy(aligned.data(), data, size);
    const std::string_view contents(reinterpret_cast<const char *>(aligned.data()), size);
    const Shard shard(contents, "shard", {ids, ids}, module);
    const CorpusTotals &totals = shard.totals();
    int64_t pairs = 0, tokens[2] = {0, 0};
    for (size_t i = 0; i < shard.blocks().size(); ++i) {
      shard.check(i);
      const Shard::Block &block = shard.blocks()[i];
      uint32_t begin = 0, labels = 0, sources = 0, line = 0;
      for (int64_t k = 0; k < 2 * std::min(blockPairs, totals.pairs - static_cast<int64_t>(i) * blockPairs); ++k) {
        for (uint32_t j = begin; j < block.ends[k]; ++j) {
          fuzz::expect(block.ids[j] >= 0 && block.ids[j] < 20, "ids are in the vocabulary");
          if (block.weighting != Weighting::None)
            fuzz::expect(block.weights[block.weighting == Weighting::Word ? j : k / 2] >= 0,
                         "weights are not negative");
        }
        fuzz::expect(block.ids + block.ends[k] <= reinterpret_cast<const int32_t *>(contents.data() + size),
                     "sequences lie within the file");
        if (block.tokensPerLabel > 0 && k % 2 == 1) {
          fuzz::expect(block.labelEnds[k / 2] - labels == block.ends[k] - begin - 1, "each label has a distribution");
          for (; labels < block.labelEnds[k / 2]; ++labels)
            for (const auto [token, probability] :
                 Distribution(block.distributions + labels * block.tokensPerLabel, block.tokensPerLabel))
              fuzz::expect(token >= 0 && token < 20 && probability >= 0 && probability < 1.1F,
                           "distributions have tokens of the vocabulary, and probabilities");
        }
        if (block.linksPerLabel > 0 && k % 2 == 1) {
          const uint32_t firstLink = k == 1 ? 0 : block.linkEnds[k / 2 - 1], end = block.linkEnds[k / 2];
          fuzz::expect(firstLink <= end, "links are in the order of their pairs");
          fuzz::expect(reinterpret_cast<const char *>(block.links + end) <= contents.data() + size,
                       "links lie within the file");
          int64_t ofLabel = 0;
          for (uint32_t link = firstLink; link < end; ++link) {
            const auto [source, label] = block.links[link];
            fuzz::expect(static_cast<uint32_t>(source) < sources &&
                             static_cast<uint32_t>(label) < block.ends[k] - begin - 1,
                         "links are to tokens of their pair");
            ofLabel = link > firstLink && block.links[link - 1].label == label ? ofLabel + 1 : 1;
            fuzz::expect(ofLabel <= block.linksPerLabel, "a label has no more links than the header says");
          }
        }
        if (block.text) {
          fuzz::expect(line <= block.lineEnds[k] && block.text + block.lineEnds[k] <= contents.data() + size,
                       "lines are in the order of their pairs, and lie within the file");
          fuzz::expect(invalidUtf8({block.text + line, block.lineEnds[k] - line}) == std::string::npos,
                       "lines are valid UTF-8");
          fuzz::expect(block.prefixes[k] <= block.ends[k] - begin, "a line's prefix is in its sequence");
          line = block.lineEnds[k];
        }
        sources = block.ends[k] - begin;
        tokens[k % 2] += block.ends[k] - begin - k % 2;
        pairs += k % 2;
        begin = block.ends[k];
      }
    }
    fuzz::expect(pairs == totals.pairs && tokens[0] == totals.tokens[0] && tokens[1] == totals.tokens[1],
                 "a shard holds what it says it holds");
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  fuzz::Random random(seed);
  size = LLVMFuzzerMutate(data, size, most);
  constexpr size_t header = 16, footer = 128;
  if (size < header)
    return size;
  const size_t entry = 16 + 4 * ((data[13] > 0) + (data[8] == 5)); // with links, with lines
  if (size < header + entry + footer || random.oneIn(4))
    return size;
  const std::string_view file = fuzz::textOf(data, size);
  uint8_t *const end = data + size - footer, *const table = end - entry; // for a single block
  auto put = [](uint8_t *at, uint32_t value) { std::memcpy(at, &value, sizeof value); };
  if (!random.oneIn(4)) {
    const uint64_t blockEnd = size - footer - entry;
    std::memcpy(table, &blockEnd, sizeof blockEnd);
  }
  put(table + 8, crc32c(file.substr(header, size - footer - entry - header)));
  put(end + 112, crc32c(file.substr(size - footer - entry, entry)));
  put(end + 116, crc32c(file.substr(size - footer, 116), crc32c(file.substr(0, header))));
  return size;
}
