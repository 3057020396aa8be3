// Reads M2M100 and NLLB: pre-norm stacks, and sinusoidal positions with all sines first, which begin after the position
// of padding.
#include "Stacks.h"

namespace xfc {

ForeignModel readM2M100(const Config &config, const Weights &weights) {
  StacksForm form;
  form.preNorm = form.scaleEmbedding = true;
  form.vocab = 128112;
  form.activation = "relu";
  form.attentionDropout = 0.1;
  Stacks stacks(config, form);
  const int64_t d = stacks.width();
  if (d % 2 || d < 4)
    config.fail("d_model", std::to_string(d) + ": its positions need an even number of features, at least 4");
  // The lowest frequency is exactly 1/10000: the i-th of d/2 is 10000^(-i/(d/2 - 1)).
  ForeignModel model = stacks.build(weights,
                                    {{"op", "positions"},
                                     {"kind", "sinusoidal"},
                                     {"max_length", "$max_length"},
                                     {"offset", stacks.pad() + 1},
                                     {"exponent_multiplier", static_cast<double>(d) / static_cast<double>(d - 2)},
                                     {"layout", "halves"}},
                                    oneVocabulary(config, weights, "model."));
  model.redundant.push_back("embed_positions.weights"); // computed
  return model;
}

} // namespace xfc
