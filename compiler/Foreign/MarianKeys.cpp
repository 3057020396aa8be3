// Lists of Marian's keys that have no effect on import.
#include "MarianKeys.h"

namespace xfc {

// Keys of a program of Marian, and those that its trainer and its decoder both have.
static std::set<std::string> andOfTheProgram(std::set<std::string> keys) {
  keys.insert({// of how it is called, and of what it says
               "authors", "cite", "build-info", "config", "dump-config", "interpolate-env-vars", "relative-paths",
               "log", "log-level", "log-time-zone", "quiet", "quiet-translation",
               // of how it computes
               "workspace", "seed", "check-nan", "sigterm", "devices", "num-devices", "no-nccl", "cpu-threads",
               "data-threads", "fp16", "precision"});
  return keys;
}

const std::set<std::string> &harmlessInMarianModel() {
  static const std::set<std::string> keys = {
      // of the file
      "version", "special-vocab",
      // of recurrent models, and of cells other than those of a decoder that is read
      "dim-rnn", "enc-type", "enc-cell", "enc-cell-depth", "dec-cell", "dec-cell-base-depth", "dec-cell-high-depth",
      "skip", "layer-normalization", "transformer-rnn-projection",
      // of average attention, biases by distance, factors, vocabularies without a common one, and BERT
      "transformer-dim-aan", "transformer-aan-depth", "transformer-aan-activation", "transformer-aan-nogate",
      "transformer-alibi-shift", "transformer-alibi-trainable", "separator-symbol", "factors-dim-emb",
      "lemma-dependency", "ulr-trainable-transformation", "ulr-dim-emb", "bert-train-type-embeddings",
      "bert-type-vocab-size",
      // of alignments, and of positions: a table of them shows that they are trained
      "transformer-guided-alignment-layer", "transformer-train-position-embeddings"};
  return keys;
}

const std::set<std::string> &harmlessInMarianTraining() {
  static const std::set<std::string> keys = andOfTheProgram(
      {// of memory and processors
       "sharding", "sync-freq", "gradient-checkpointing", "tempdir", "sqlite", "sqlite-drop", "shuffle-in-ram",
       // of files
       "model", "models", "pretrained-model", "model-mmap", "ignore-model-config", "overwrite", "overwrite-checkpoint",
       "no-reload", "no-optimizer-reload", "train-sets", "vocabs", "max-length", "max-length-crop", "tsv", "tsv-fields",
       "input-reorder", "input-join-fields", "shuffle", "no-shuffle", "no-restore-corpus", "keep-best",
       // of how lines are split and changed
       "sentencepiece-alphas", "sentencepiece-options", "sentencepiece-max-lines", "no-spm-encode", "all-caps-every",
       "english-title-case-every",
       // of batches
       "mini-batch", "mini-batch-words", "mini-batch-fit", "mini-batch-fit-step", "maxi-batch", "maxi-batch-sort",
       "mini-batch-words-ref", "mini-batch-warmup", "mini-batch-track-lr", "mini-batch-round-up",
       // of the loss and the optimizer
       "cost-type", "multi-loss-type", "unlikelihood-loss", "factor-weight", "guided-alignment",
       "guided-alignment-cost", "guided-alignment-weight", "data-weighting", "data-weighting-type", "optimizer",
       "optimizer-params", "optimizer-delay", "sync-sgd", "learn-rate", "lr-report", "lr-decay", "lr-decay-strategy",
       "lr-decay-start", "lr-decay-freq", "lr-decay-reset-optimizer", "lr-decay-repeat-warmup", "lr-decay-inv-sqrt",
       "lr-warmup", "lr-warmup-start-rate", "lr-warmup-cycle", "lr-warmup-at-reload", "clip-norm",
       "exponential-smoothing", "exponential-smoothing-replace-freq", "cost-scaling", "throw-on-divergence",
       "custom-fallbacks", "fp16-fallback-to-fp32", "gradient-norm-average-window", "dynamic-gradient-scaling",
       "check-gradient-nan", "normalize-gradient", "normalize-gradient-by-ratio", "task",
       // of the values that training began with
       "transformer-depth-scaling", "embedding-vectors", "embedding-normalization",
       // of its length, and of what it showed and saved
       "after-epochs", "after-batches", "after", "disp-freq", "disp-first", "disp-label-counts", "save-freq",
       "logical-epoch",
       // of validation
       "valid-sets", "valid-freq", "valid-metrics", "valid-reset-stalled", "valid-reset-all", "early-stopping",
       "early-stopping-epsilon", "early-stopping-on", "beam-size", "normalize", "max-length-factor", "word-penalty",
       "allow-unk", "n-best", "word-scores", "valid-mini-batch", "valid-max-length", "valid-script-path",
       "valid-script-args", "valid-translation-output", "valid-log", "quiet-validation",
       // of models of other types, and of rounding that the weights already have
       "best-deep", "alibi", "train-embedder-rank", "bert-mask-symbol", "bert-sep-symbol", "bert-class-symbol",
       "bert-masking-fraction", "comet-final-sigmoid", "comet-stop-grad", "comet-mix", "comet-mix-norm", "comet-pool",
       "comet-mix-transformation", "comet-dropout", "comet-mixup", "comet-mixup-reg", "comet-augment-bad",
       "comet-pooler-ffn", "comet-prepend-zero", "comet-use-separator", "char-stride", "char-highway",
       "char-conv-filters-num", "char-conv-filters-widths", "ulr-query-vectors", "ulr-keys-vectors", "ulr-dropout",
       "ulr-softmax-temperature", "quantize-bits", "quantize-optimization-steps", "quantize-log-based",
       "quantize-biases"});
  return keys;
}

const NeutralValues &neutralInMarianTraining() {
  static const NeutralValues values = {{"dropout-rnn", {"0"}},
                                       {"dropout-src", {"0"}},
                                       {"dropout-trg", {"0"}},
                                       {"embedding-fix-src", {"false"}},
                                       {"embedding-fix-trg", {"false"}}};
  return values;
}

const std::set<std::string> &harmlessInMarianDecoder() {
  static const std::set<std::string> keys =
      andOfTheProgram({"stat-freq", "port", "encryption-key-path", "version",
                       // of files and batches
                       "model", "model-mmap", "ignore-model-config", "input", "output", "mini-batch",
                       "mini-batch-words", "maxi-batch", "maxi-batch-sort",
                       // of products of rounded numbers
                       "optimize", "gemm-type", "gemm-precision", "quantize-range",
                       // of what is written beside the translation
                       "n-best", "alignment", "word-scores"});
  return keys;
}

const NeutralValues &neutralInMarianDecoder() {
  static const NeutralValues values = {{"max-length-factor", {"3"}}, {"max-length-crop", {"false"}},
                                       {"max-length", {"1000"}},     {"allow-special", {"false"}},
                                       {"force-decode", {"false"}},  {"skip-cost", {"false"}},
                                       {"no-spm-encode", {"false"}}, {"no-spm-decode", {"false"}},
                                       {"tsv", {"false"}},           {"tsv-fields", {"0"}}};
  return values;
}

} // namespace xfc
