// BLEU and chrF as sacreBLEU 2 computes them (13a tokenizer, exp smoothing; chrF2: character order 6, word order 0).
#pragma once

#include <string>
#include <vector>

namespace xfc {

struct Score {
  double value;          // 0..100
  std::string signature; // nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...
};
Score bleu(const std::vector<std::string> &hypotheses, const std::vector<std::string> &references);
Score chrf(const std::vector<std::string> &hypotheses, const std::vector<std::string> &references);

} // namespace xfc
