// Random sentences for checks.
#include "measure/RandomSentences.h"
#include <algorithm>
#include <random>

namespace xfc {

Sentences randomSentences(const Module &module, uint64_t seed, int64_t longest, int64_t tokens, int64_t least) {
  std::mt19937_64 random(seed);
  auto sentence = [&](int64_t vocabulary, int64_t most) {
    Ids ids(1 + random() % std::max<int64_t>(most, 1));
    for (int32_t &id : ids)
      do
        id = static_cast<int32_t>(random() % vocabulary);
      while (id == module.pad && vocabulary > 1);
    return ids;
  };
  auto most = [&](int64_t limit) { return limit > 0 ? std::min(limit - 1, longest) : longest; };
  Sentences sentences;
  for (int64_t i = 0, count = 0; i < least || count < tokens; ++i) {
    sentences.sources.push_back(sentence(module.sourceVocab, most(module.maxLength)));
    sentences.targets.push_back(sentence(module.targetVocab, most(module.maxTargetLength)));
    count += static_cast<int64_t>(sentences.targets.back().size());
  }
  if (Ids &first = sentences.sources[0]; first.size() > 2)
    first[1] = module.pad;
  return sentences;
}

} // namespace xfc
