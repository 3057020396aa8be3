// Reads Marian and OPUS-MT: the paper's post-norm stacks, sinusoidal positions with all sines first, and a bias of the
// logits.
#include "Stacks.h"

namespace xfc {

ForeignModel readMarian(const Config &config, const Weights &weights) {
  StacksForm form;
  form.vocab = 58101;
  form.logitsBias = true;
  form.pad = form.start = 58100;
  form.eos = 0;
  form.bos = -1;
  form.unk = 1;
  Stacks stacks(config, form);
  config.only("static_position_embeddings", true, "models of this family have no table of positions");
  const bool shared = config.boolean("share_encoder_decoder_embeddings", true);
  if (!shared)
    stacks.setTargetVocab(config.integer("decoder_vocab_size", 1, 1 << 28, stacks.vocab()));
  if (stacks.width() % 2)
    config.fail("d_model", std::to_string(stacks.width()) +
                               ": sinusoidal positions need an even number of features, for sine and cosine");

  EmbeddingTensors tensors = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight",
                              "lm_head.weight"};
  if (shared)
    tensors = oneVocabulary(config, weights, "model.");
  else if (config.boolean("tie_word_embeddings", true))
    tensors.output = tiedTensor(weights, tensors.output, {tensors.decoder});
  ForeignModel model = stacks.build(
      weights, {{"op", "positions"}, {"kind", "sinusoidal"}, {"max_length", "$max_length"}, {"layout", "halves"}},
      tensors);
  model.redundant.push_back("embed_positions.weight"); // computed; newer versions do not save it
  return model;
}

} // namespace xfc
