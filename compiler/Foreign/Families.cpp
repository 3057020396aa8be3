// The families of models that can be imported and exported.
#include "Families.h"
#include "Describe.h"

namespace xfc {

const std::vector<Family> &families() {
  // Of heads for classification, of training, and numbers that repeat others.
  const std::set<std::string> ofStacks = {"num_hidden_layers",
                                          "classif_dropout",
                                          "classifier_dropout",
                                          "num_labels",
                                          "init_std",
                                          "extra_pos_embeddings",
                                          "gradient_checkpointing",
                                          "force_bos_token_to_be_generated",
                                          "add_bias_logits",
                                          "do_blenderbot_90_layernorm",
                                          "blenderbot_3b_checkpoint",
                                          "unk_token_id",
                                          "mask_token_id"};
  std::set<std::string> ofMarian = ofStacks;
  ofMarian.insert("decoder_vocab_size"); // repeats vocab_size, unless the languages have a vocabulary each
  static const std::vector<Family> known = {
      {{"marian"}, ofMarian, readMarian, describeMarian},
      {{"bart", "mbart"}, ofStacks, readBart, describeStacks},
      {{"m2m_100"}, ofStacks, readM2M100, describeStacks},
      // The options of T5's feed-forward part follow from feed_forward_proj.
      {{"t5", "mt5", "umt5"},
       {"initializer_factor", "is_gated_act", "dense_act_fn", "classifier_dropout", "tokenizer_class"},
       readT5,
       describeT5}};
  return known;
}

} // namespace xfc
