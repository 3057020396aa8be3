// The programs of an executable, declared once: their names, and those of their arguments and results. The compiler
// makes them and the runtime runs them by these names.
#pragma once

namespace xfc {

// A program of a model, created by import or by a pass. Arguments that are not listed are rows of keys and values, or
// are named after parameters, with a prefix below.
namespace programs {
inline constexpr char forward[] = "forward";                     // source, target -> logits, encoder_output
inline constexpr char forwardAttention[] = "forward_attention";  // ... -> also attention.PATH
inline constexpr char score[] = "score";                         // source, target, labels, smoothing -> loss, nll
inline constexpr char loss[] = "loss";                           // the same with dropout; becomes lossAndGradients
inline constexpr char lossAndGradients[] = "loss_and_gradients"; // ..., loss_scale (per label) -> loss, nll,
                                                                 // grad.PARAMETER. With `xfc compile
                                                                 // --distillation`, labelLists and labelShares
                                                                 // take the place of labels and smoothing. With
                                                                 // `--guided-alignment`, also alignmentLinks,
                                                                 // alignmentShares -> alignment.
inline constexpr char accumulate[] = "accumulate";               // sum.PARAMETER: added to the gradients
inline constexpr char update[] = "update";                       // hyper, max_norm -> norm; changes the parameters.
                                                                 // update.NAME: by another optimizer (Optimizers.h)
inline constexpr char encode[] = "encode";                       // source -> PATH.k, PATH.v
inline constexpr char decodeStep[] = "decode_step";              // target, ... -> log_probs
inline constexpr char decodeCandidates[] = "decode_candidates";  // target, wanted, ... -> tokens, token_log_probs,
                                                                 // wanted_log_prob
// The same with log-probabilities among all tokens but pad, start and eos, if model.json asks to renormalize.
inline constexpr char decodeRenormalized[] = "decode_renormalized";
} // namespace programs

// Their arguments and results.
namespace names {
inline constexpr char source[] = "source", target[] = "target", labels[] = "labels", smoothing[] = "smoothing",
                      lossScale[] = "loss_scale", labelLists[] = "label_lists", labelShares[] = "label_shares",
                      alignmentLinks[] = "alignment_links", alignmentShares[] = "alignment_shares", hyper[] = "hyper",
                      maxNorm[] = "max_norm", wanted[] = "wanted";
inline constexpr char logits[] = "logits", encoderOutput[] = "encoder_output", loss[] = "loss", nll[] = "nll",
                      alignment[] = "alignment", norm[] = "norm", logProbs[] = "log_probs", tokens[] = "tokens",
                      tokenLogProbs[] = "token_log_probs", wantedLogProb[] = "wanted_log_prob";
// Prefixes of the names of parameters.
inline constexpr char gradientOf[] = "grad.", sumOf[] = "sum.";
} // namespace names

} // namespace xfc
