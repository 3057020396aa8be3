// Reads BART (post-norm) and mBART (pre-norm): a learned table of positions, whose third row is that of the first
// token, and a norm after the positions.
#include "Stacks.h"

namespace xfc {

ForeignModel readBart(const Config &config, const Weights &weights) {
  StacksForm form;
  form.preNorm = config.string("model_type", "") == "mbart";
  form.embeddingNorm = form.logitsBias = true;
  form.vocab = 50265;
  form.start = form.preNorm ? -1 : 2;
  Stacks stacks(config, form);
  config.only("static_position_embeddings", false, "models of this family have a table of positions");
  return stacks.build(weights, {{"op", "positions"}, {"kind", "learned"}, {"max_length", "$max_length"}, {"offset", 2}},
                      oneVocabulary(config, weights, "model."));
}

} // namespace xfc
