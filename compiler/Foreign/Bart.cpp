// BART, post-norm, and mBART, pre-norm: a table of positions, of which the first token has the third row, and a norm
// after it.
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
