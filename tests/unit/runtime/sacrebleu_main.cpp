// Prints BLEU, chrF and TER of two text files, for sacrebleu_check.py.
#include "metrics/Metrics.h"
#include "support/LineReader.h"
#include <cstdio>

int main(int, char **argv) {
  std::vector<std::string> hypotheses = xfc::readLines(argv[1]), references = xfc::readLines(argv[2]);
  const xfc::MetricSums sums = xfc::metricsOf(hypotheses, references);
  std::printf("%.17g %.17g %.17g\n", sums.bleu().value, sums.chrf().value, sums.ter().value);
}
