// Prints BLEU, chrF and TER of two text files, or with `chrf` or `bleu` the expected utilities of the lines of one, for
// sacrebleu_check.py.
#include "metrics/Metrics.h"
#include "support/LineReader.h"
#include <cstdio>
#include <string_view>

int main(int, char **argv) {
  const std::string_view first = argv[1];
  if (first == "chrf" || first == "bleu") {
    for (const double utility :
         xfc::expectedUtilities(first == "chrf" ? xfc::Utility::Chrf : xfc::Utility::Bleu, xfc::readLines(argv[2])))
      std::printf("%.17g\n", utility);
    return 0;
  }
  std::vector<std::string> hypotheses = xfc::readLines(argv[1]), references = xfc::readLines(argv[2]);
  const xfc::MetricSums sums = xfc::metricsOf(hypotheses, references);
  std::printf("%.17g %.17g %.17g\n", sums.bleu().value, sums.chrf().value, sums.ter().value);
}
