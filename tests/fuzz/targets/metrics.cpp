// Fuzzes BLEU, chrF and TER: each line has a hypothesis and a reference, separated by a tab.
#include "metrics/Metrics.h"
#include "../Fuzz.h"
#include <cmath>
#include <sstream>

using namespace xfc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::expectOnlyErrors([&] {
    MetricSums sums;
    std::istringstream lines{std::string(fuzz::textOf(data, size))};
    for (std::string line; std::getline(lines, line);) {
      const size_t tab = line.find('\t');
      sums.add(line.substr(0, tab), tab == line.npos ? "" : line.substr(tab + 1));
    }
    for (const Score &score : {sums.bleu(), sums.chrf()})
      fuzz::expect(std::isfinite(score.value) && score.value >= 0 && score.value <= 100 + 1e-9,
                   "a score lies between 0 and 100");
    const double ter = sums.ter().value; // may exceed 100: hypotheses may be longer than their references
    fuzz::expect(std::isfinite(ter) && ter >= 0, "an edit rate is a number from 0 on");
  });
  return 0;
}
