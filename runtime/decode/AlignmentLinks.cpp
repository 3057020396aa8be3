// The links of a batch as a training program reads them that was compiled with --guided-alignment.
#include "decode/AlignmentLinks.h"
#include "corpora/WordAlignment.h"

namespace xfc {

void AlignmentLinks::clear(const Module &module) {
  width = static_cast<size_t>(linksPerLabel(module));
  isDouble = module.type == DType::F64;
  keys.clear();
  floatShares.clear();
  doubleShares.clear();
}

void AlignmentLinks::add(size_t labels, double weight, Links links) {
  if (width == 0)
    return;
  const size_t first = keys.size();
  keys.resize(first + labels * width, -1);
  if (isDouble)
    doubleShares.resize(keys.size(), 0);
  else
    floatShares.resize(keys.size(), 0);
  for (size_t begin = 0, end = 0; weight > 0 && begin < links.size(); begin = end) {
    while (end < links.size() && links[end].label == links[begin].label)
      ++end;
    const double share = weight / static_cast<double>(end - begin);
    for (size_t i = begin; i < end; ++i) {
      const size_t at = first + static_cast<size_t>(links[i].label) * width + (i - begin);
      keys[at] = links[i].source;
      if (isDouble)
        doubleShares[at] = share;
      else
        floatShares[at] = static_cast<float>(share);
    }
  }
}

} // namespace xfc
