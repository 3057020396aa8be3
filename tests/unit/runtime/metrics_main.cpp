// Prints BLEU and chrF of two files of lines, for sacrebleu_check.py.
#include "support/Files.h"
#include "text/Metrics.h"
#include <cstdio>

int main(int, char **argv) {
  std::vector<std::string> hypotheses = xfc::readLines(argv[1]), references = xfc::readLines(argv[2]);
  std::printf("%.17g %.17g\n", xfc::metricsOf(hypotheses, references).bleu().value,
              xfc::metricsOf(hypotheses, references).chrf().value);
}
