// Checks the programs that a description becomes: their arguments, results and ops, for every step, option and mode.
#include "Import/Import.h"
#include "Dialect/XFC.h"
#include "Models.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <random>

using namespace mlir;
using namespace xfc;
using namespace xfc::test;
using Names = std::vector<std::string>;

namespace {

// An imported module, with queries for the tests.
class Imported {
public:
  explicit Imported(const Description &model, ImportOptions options = {})
      : module(importModel(model, options, context)) {
    EXPECT_TRUE(succeeded(verify(*module)));
  }
  explicit Imported(const std::string &text, ImportOptions options = {})
      : Imported(parseDescription(text, "m.json"), options) {}

  func::FuncOp program(StringRef name) { return module->lookupSymbol<func::FuncOp>(name); }

  Names programs() {
    Names names;
    for (auto function : module->getOps<func::FuncOp>())
      names.push_back(function.getName().str());
    return names;
  }

  // The names of the arguments with a role.
  Names arguments(StringRef program, StringRef role) {
    func::FuncOp function = this->program(program);
    Names names;
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (function.getArgAttrOfType<StringAttr>(i, attr::role) == role)
        names.push_back(function.getArgAttrOfType<StringAttr>(i, attr::name).str());
    return names;
  }

  Names results(StringRef program) {
    func::FuncOp function = this->program(program);
    Names names;
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      names.push_back(function.getResultAttrOfType<StringAttr>(i, attr::name).str());
    return names;
  }

  std::string typeOf(Type type) {
    std::string text;
    llvm::raw_string_ostream(text) << type;
    return text;
  }
  std::string argumentType(StringRef program, const std::string &name) {
    func::FuncOp function = this->program(program);
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (function.getArgAttrOfType<StringAttr>(i, attr::name) == name)
        return typeOf(function.getArgumentTypes()[i]);
    return "";
  }
  std::string resultType(StringRef program, unsigned i) { return typeOf(this->program(program).getResultTypes()[i]); }

  template <typename OpTy> std::vector<OpTy> ops(StringRef program) {
    std::vector<OpTy> found;
    this->program(program).walk([&](OpTy op) { found.push_back(op); });
    return found;
  }

  // Ops by name, without return and func.
  std::map<std::string, int> count(StringRef program) {
    std::map<std::string, int> counts;
    this->program(program).walk([&](Operation *op) {
      if (isa<XFCDialect>(op->getDialect()))
        ++counts[op->getName().stripDialect().str()];
    });
    return counts;
  }

private:
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

std::string placeOf(Operation *op) { return cast<NameLoc>(op->getLoc()).getName().str(); }

using Counts = std::map<std::string, int>;

} // namespace

TEST(Import, EveryShippedModelVerifiesInEveryMode) {
  for (const std::string &name : shipped)
    for (bool f64 : {false, true}) {
      SCOPED_TRACE(name);
      Description model = shippedModel(name);
      Imported module(model, {.f64 = f64});
      Names expected = {"forward", "forward_attention"};
      if (model.decoder)
        expected.insert(expected.end(), {"score", "loss", "encode", "decode_step", "decode_candidates"});
      EXPECT_EQ(module.programs(), expected);
    }
}

TEST(Import, ModesChooseThePrograms) {
  Description model = shippedModel("tiny");
  EXPECT_EQ(Imported(model, {.decode = false}).programs(), (Names{"forward", "forward_attention", "score", "loss"}));
  EXPECT_EQ(Imported(model, {.train = false}).programs(),
            (Names{"forward", "forward_attention", "score", "encode", "decode_step", "decode_candidates"}));
}

TEST(Import, CountsOfTheOriginal) {
  Imported module(shippedModel("original"));
  Counts forward = module.count("forward");
  EXPECT_EQ(forward, (Counts{{"embedding", 2},
                             {"sinusoid", 2},
                             {"add_positions", 2},
                             {"linear", 18 * 4 + 12 * 2 + 1},
                             {"scores", 18},
                             {"scale", 18},
                             {"mask", 18},
                             {"softmax", 18},
                             {"combine", 18},
                             {"add", 30},
                             {"norm", 30},
                             {"activation", 12}}));
  Counts loss = module.count("loss");
  forward["dropout"] = 2 + 30;
  forward["log_softmax"] = forward["nll"] = 1;
  EXPECT_EQ(loss, forward);
  forward.erase("dropout");
  EXPECT_EQ(module.count("score"), forward);
}

TEST(Import, ParametersComeFirstInTheOrderOfTheModelAndOnlyIfUsed) {
  Description model = shippedModel("final-norm");
  Imported module(model);
  Names all;
  for (const ParameterDescription &parameter : model.parameters)
    all.push_back(parameter.name);
  EXPECT_EQ(module.arguments("forward", attr::parameter), all);
  EXPECT_EQ(module.arguments("loss", attr::parameter), all);
  for (StringRef program : {"forward", "encode", "decode_step", "decode_candidates"}) {
    func::FuncOp function = module.program(program);
    for (unsigned i = 0; i + 1 < function.getNumArguments(); ++i)
      EXPECT_FALSE(function.getArgAttrOfType<StringAttr>(i, attr::role) != attr::parameter &&
                   function.getArgAttrOfType<StringAttr>(i + 1, attr::role) == attr::parameter);
  }
  // The encode program computes the encoder and the keys and values of cross-attention; decode_step computes the rest.
  for (const std::string &name : module.arguments("encode", attr::parameter))
    EXPECT_TRUE(StringRef(name).starts_with("encoder.") || StringRef(name).contains("cross_attn.k.") ||
                StringRef(name).contains("cross_attn.v."))
        << name;
  for (const std::string &name : module.arguments("decode_step", attr::parameter))
    EXPECT_FALSE(StringRef(name).starts_with("encoder.") || StringRef(name).contains("cross_attn.k.") ||
                 StringRef(name).contains("cross_attn.v."))
        << name;
  EXPECT_EQ(module.arguments("encode", attr::parameter).size() +
                module.arguments("decode_step", attr::parameter).size(),
            all.size());
}

TEST(Import, InputsScalarsAndResults) {
  Imported module(shippedModel("tiny"));
  EXPECT_EQ(module.arguments("forward", attr::input), (Names{"source", "target"}));
  EXPECT_EQ(module.results("forward"), (Names{"logits", "encoder_output"}));
  EXPECT_EQ(module.arguments("loss", attr::input), (Names{"source", "target", "labels"}));
  EXPECT_EQ(module.arguments("loss", attr::scalar), (Names{"smoothing"}));
  EXPECT_EQ(module.results("loss"), (Names{"loss", "nll"}));
  EXPECT_EQ(module.argumentType("loss", "source"), "!xfc.rows<source, i32>");
  EXPECT_EQ(module.argumentType("loss", "labels"), "!xfc.rows<target, i32>");
  EXPECT_EQ(module.argumentType("loss", "smoothing"), "tensor<f32>");
  EXPECT_EQ(module.resultType("loss", 0), "!xfc.rows<target, f32>");
  EXPECT_EQ(module.resultType("forward", 0), "!xfc.rows<target, 4000xf32>");
  EXPECT_EQ(module.resultType("forward", 1), "!xfc.rows<source, 128xf32>");
}

TEST(Import, F64IsEverywhere) {
  Imported module(shippedModel("tiny"), {.f64 = true});
  EXPECT_EQ(module.argumentType("loss", "smoothing"), "tensor<f64>");
  EXPECT_EQ(module.argumentType("loss", "output.bias"), "tensor<4000xf64>");
  EXPECT_EQ(module.argumentType("decode_step", "decoder.layers.0.self_attn.k"), "!xfc.rows<cache, 128xf64>");
  EXPECT_EQ(module.resultType("forward", 0), "!xfc.rows<target, 4000xf64>");
}

TEST(Import, TiedParametersAreOneArgument) {
  Imported module(shippedModel("original"));
  EXPECT_EQ(module.argumentType("forward", "encoder.embed.weight"), "tensor<16000x512xf32>");
  EXPECT_EQ(module.argumentType("forward", "decoder.embed.weight"), "");
  EXPECT_EQ(module.argumentType("forward", "output.weight"), "");
  BlockArgument table = module.program("forward").getArgument(0);
  EXPECT_EQ(std::distance(table.use_begin(), table.use_end()), 3);
}

TEST(Import, AttentionWeightsInOrder) {
  Imported module(shippedModel("tiny"));
  EXPECT_EQ(
      module.results("forward_attention"),
      (Names{"logits", "encoder_output", "attention.encoder.layers.0.self_attn", "attention.encoder.layers.1.self_attn",
             "attention.decoder.layers.0.self_attn", "attention.decoder.layers.0.cross_attn",
             "attention.decoder.layers.1.self_attn", "attention.decoder.layers.1.cross_attn"}));
  EXPECT_EQ(module.resultType("forward_attention", 5), "!xfc.pairs<target, source, padding, 4xf32>");
  // return_weights makes the attention weights results of forward itself.
  Names results = Imported(shippedModel("memory-norm")).results("forward");
  EXPECT_EQ(results.size(), 2u + 6);
  EXPECT_EQ(results[2], "attention.decoder.layers.0.cross_attn");
  EXPECT_EQ(Imported(shippedModel("free-head-dims")).results("forward").size(), 2u + 18);
}

TEST(Import, DropoutOnlyInTheLossNumberedInOrder) {
  Imported module(shippedModel("small"));
  for (StringRef program : {"forward", "forward_attention", "score", "encode", "decode_step", "decode_candidates"})
    EXPECT_TRUE(module.ops<DropoutOp>(program).empty());
  std::vector<DropoutOp> dropouts = module.ops<DropoutOp>("loss");
  // One for the embedding, then in each layer: weights and output of every attention, hidden features and output of the
  // feed-forward.
  ASSERT_EQ(dropouts.size(), 2u + 3 * (2 + 2) + 3 * (4 + 2));
  for (size_t i = 0; i < dropouts.size(); ++i) {
    EXPECT_EQ(dropouts[i].getId(), i + 1);
    EXPECT_EQ(dropouts[i].getRate().convertToDouble(), 0.1);
  }
  EXPECT_EQ(placeOf(dropouts[0]), "encoder.dropout");
  EXPECT_EQ(placeOf(dropouts[1]), "encoder.layers.0.self_attn");
  EXPECT_TRUE(isa<PairsType>(dropouts[1].getType()));
  EXPECT_EQ(placeOf(dropouts[3]), "encoder.layers.0.residual[1].dropout[0]");
  EXPECT_EQ(placeOf(dropouts[13]), "decoder.dropout");
  EXPECT_TRUE(Imported(shippedModel("small", {{"dropout", "0"}})).ops<DropoutOp>("loss").empty());
}

TEST(Import, Locations) {
  Imported module(shippedModel("tiny"));
  std::vector<SoftmaxOp> softmaxes = module.ops<SoftmaxOp>("forward");
  EXPECT_EQ(placeOf(softmaxes.back()), "decoder.layers.1.cross_attn");
  std::vector<AddOp> adds = module.ops<AddOp>("forward");
  EXPECT_EQ(placeOf(adds[1]), "encoder.layers.0.residual[1]");
  EXPECT_EQ(placeOf(module.ops<NormOp>("forward").back()), "decoder.norm");
  EXPECT_EQ(placeOf(module.ops<LinearOp>("forward").back()), "output");
  EXPECT_EQ(placeOf(module.ops<LinearOp>("forward").front()), "encoder.layers.0.self_attn.q");
  EXPECT_EQ(placeOf(module.ops<AddPositionsOp>("forward").front()), "encoder.positions");
  EXPECT_EQ(placeOf(module.ops<ActivationOp>("forward").front()), "encoder.layers.0.residual[1].relu");
}

TEST(Import, DecodingStep) {
  Imported module(shippedModel("free-head-dims", {{"decoder_layers", "2"}, {"key_dim", "5"}, {"value_dim", "7"}}));
  EXPECT_EQ(module.arguments("encode", attr::input), (Names{"source"}));
  Names cross = {"decoder.layers.0.cross_attn.k", "decoder.layers.0.cross_attn.v", "decoder.layers.1.cross_attn.k",
                 "decoder.layers.1.cross_attn.v"};
  Names caches = {"decoder.layers.0.self_attn.k", "decoder.layers.0.self_attn.v", "decoder.layers.1.self_attn.k",
                  "decoder.layers.1.self_attn.v"};
  EXPECT_EQ(module.results("encode"), cross);
  EXPECT_EQ(module.resultType("encode", 0), "!xfc.rows<source, 40xf32>");
  EXPECT_EQ(module.resultType("encode", 1), "!xfc.rows<source, 56xf32>");
  Names inputs = {"target"};
  inputs.insert(inputs.end(), cross.begin(), cross.end());
  EXPECT_EQ(module.arguments("decode_step", attr::input), inputs);
  EXPECT_EQ(module.arguments("decode_step", attr::state), caches);
  Names results = {"log_probs"};
  results.insert(results.end(), caches.begin(), caches.end());
  EXPECT_EQ(module.results("decode_step"), results);

  func::FuncOp step = module.program("decode_step");
  for (unsigned i = 1; i < step.getNumResults(); ++i) {
    int64_t replaced = step.getResultAttrOfType<IntegerAttr>(i, attr::alias).getInt();
    EXPECT_EQ(step.getArgAttrOfType<StringAttr>(replaced, attr::name),
              step.getResultAttrOfType<StringAttr>(i, attr::name));
    EXPECT_EQ(step.getArgumentTypes()[replaced], step.getResultTypes()[i]);
  }
  EXPECT_FALSE(step.getResultAttr(0, attr::alias));
  EXPECT_EQ(module.count("decode_step")["cache_write"], 4);
  // Queries, attention over the cache, and the output; keys and values of the encoder's rows are not recomputed.
  EXPECT_EQ(module.count("decode_step")["linear"], 2 * (4 + 2 + 2) + 1);
  std::vector<ScoresOp> scores = module.ops<ScoresOp>("decode_step");
  EXPECT_EQ(module.typeOf(scores[0].getType()), "!xfc.pairs<target, cache, padding causal, 8xf32>");
  EXPECT_EQ(module.typeOf(scores[1].getType()), "!xfc.pairs<target, source, padding, 8xf32>");
  EXPECT_TRUE(scores[0].getK().getDefiningOp<CacheWriteOp>());

  // The other decoding program differs in its results and in an argument, the wanted tokens.
  inputs.insert(inputs.begin() + 1, "wanted");
  results[0] = "tokens";
  results.insert(results.begin() + 1, {"token_log_probs", "wanted_log_prob"});
  EXPECT_EQ(module.arguments("decode_candidates", attr::input), inputs);
  EXPECT_EQ(module.arguments("decode_candidates", attr::state), caches);
  EXPECT_EQ(module.results("decode_candidates"), results);
  EXPECT_EQ(module.resultType("decode_candidates", 0), "!xfc.rows<target, 8xi32>");
  CandidatesOp candidates = module.ops<CandidatesOp>("decode_candidates").front();
  EXPECT_EQ(candidates.getExcluded(), (llvm::ArrayRef<int64_t>{0, 2, 3})) << "pad, start and eos";
  EXPECT_EQ(module.count("decode_candidates")["linear"], module.count("decode_step")["linear"]);
}

TEST(Import, CandidatesAreRenormalizedIfTheModelSaysSo) {
  const std::string step = R"({"op": "relu"})";
  Names expected = {"forward", "score", "loss", "encode", "decode_step", "decode_candidates"};
  EXPECT_EQ(Imported(translatorText(step, R"(, "generation": {"renormalize": false})")).programs(), expected);
  expected.emplace_back("decode_renormalized");
  Imported module(translatorText(step, R"(, "generation": {"renormalize": true})"));
  EXPECT_EQ(module.programs(), expected);
  EXPECT_EQ(module.count("decode_renormalized"), module.count("decode_candidates"));
  EXPECT_FALSE(module.ops<CandidatesOp>("decode_candidates").front().getRenormalize());
  EXPECT_TRUE(module.ops<CandidatesOp>("decode_renormalized").front().getRenormalize());
}

TEST(Import, NoDecodingWhereATokenSeesLaterOnesOrThereAreNoTokens) {
  const std::string ahead = R"({"op": "attention", "name": "a", "heads": 2})",
                    back = R"({"op": "attention", "name": "a", "heads": 2, "mask": ["causal"]})";
  EXPECT_EQ(Imported(translatorText(ahead)).programs(), (Names{"forward", "forward_attention", "score", "loss"}));
  EXPECT_EQ(Imported(translatorText(back)).programs(),
            (Names{"forward", "forward_attention", "score", "loss", "encode", "decode_step", "decode_candidates"}));
  EXPECT_EQ(Imported(R"({"format": "xfc-model/1", "name": "m", "params": {"d_model": 6},
      "encoder": {"input": [], "layers": 1, "layer": [{"op": "relu"}]}, "decoder": {"input": [], "layers": 1, "layer": [)" +
                     back + R"(]}, "head": [{"op": "linear", "name": "output", "features": 9}]})")
                .programs(),
            (Names{"forward", "forward_attention", "score", "loss"}));
}

TEST(Import, WithoutAttentionThereIsNoProgramForIt) {
  EXPECT_EQ(Imported(encoderText(R"({"op": "relu"})")).programs(), Names{"forward"});
}

TEST(Import, EncoderOnlyWithAndWithoutHead) {
  Imported bare(encoderText(R"({"op": "tanh"})"));
  EXPECT_EQ(bare.results("forward"), Names{"encoder_output"});
  EXPECT_EQ(bare.argumentType("forward", "source"), "!xfc.rows<source, 6xf32>");
  Imported headed(encoderText(R"({"op": "tanh"})", R"(, "head": [{"op": "linear", "name": "out", "features": 4}])"));
  EXPECT_EQ(headed.results("forward"), (Names{"logits", "encoder_output"}));
  EXPECT_EQ(headed.resultType("forward", 0), "!xfc.rows<source, 4xf32>");
}

TEST(Import, AttentionWithoutProjections) {
  Imported module(shippedModel("plain-attention"));
  EXPECT_EQ(module.count("forward"),
            (Counts{{"scores", 1}, {"scale", 1}, {"mask", 1}, {"softmax", 1}, {"combine", 1}}));
  ScoresOp scores = module.ops<ScoresOp>("forward").front();
  EXPECT_EQ(scores.getQ(), scores.getK());
  EXPECT_EQ(module.ops<CombineOp>("forward").front().getV(), scores.getQ());
  EXPECT_EQ(module.ops<ScaleOp>("forward").front().getFactor().convertToDouble(), 1);
  EXPECT_EQ(module.typeOf(scores.getType()), "!xfc.pairs<source, source, 1xf32>");
  // In decode_step both caches hold x.
  Imported decoder(
      translatorText(R"({"op": "attention", "name": "a", "projections": false, "mask": ["causal"], "scale": 2},
                                     {"op": "attention", "name": "c", "projections": false, "memory": "encoder"})"));
  std::vector<CacheWriteOp> writes = decoder.ops<CacheWriteOp>("decode_step");
  ASSERT_EQ(writes.size(), 4u);
  EXPECT_EQ(writes[0].getRows(), writes[1].getRows());
  EXPECT_EQ(decoder.ops<ScaleOp>("decode_step").front().getFactor().convertToDouble(), 0.5);
  EXPECT_EQ(decoder.results("encode").size(), 4u);
  EXPECT_EQ(decoder.arguments("encode", attr::parameter), Names{"encoder.embed.weight"});
}

TEST(Import, MasksAreInTheTypeAndTheMaskOpIsAlwaysThere) {
  for (auto [mask, type] : {std::pair{"[]", "!xfc.pairs<source, source, 2xf32>"},
                            {R"(["padding"])", "!xfc.pairs<source, source, padding, 2xf32>"},
                            {R"(["causal"])", "!xfc.pairs<source, source, causal, 2xf32>"},
                            {R"(["causal", "padding"])", "!xfc.pairs<source, source, padding causal, 2xf32>"}}) {
    Imported module(encoderText(std::string(R"({"op": "attention", "name": "a", "heads": 2, "mask": )") + mask + "}"));
    MaskOp op = module.ops<MaskOp>("forward").front();
    EXPECT_EQ(module.typeOf(op.getType()), type);
    EXPECT_FALSE(op.getZero());
  }
}

TEST(Import, ScalesDivideScores) {
  for (auto [scale, factor] :
       {std::pair{R"("sqrt_key_dim")", 1 / std::sqrt(3.0)}, {R"("sqrt_model_dim")", 1 / std::sqrt(6.0)}, {"4", 0.25}}) {
    Imported module(
        encoderText(std::string(R"({"op": "attention", "name": "a", "heads": 2, "scale": )") + scale + "}"));
    EXPECT_DOUBLE_EQ(module.ops<ScaleOp>("forward").front().getFactor().convertToDouble(), factor);
  }
}

TEST(Import, BiasesOneByOne) {
  Imported module(encoderText(R"({"op": "attention", "name": "a", "heads": 2, "bias": {"k": false, "o": false}})"));
  std::vector<bool> biased;
  for (LinearOp linear : module.ops<LinearOp>("forward"))
    biased.push_back(bool(linear.getBias()));
  EXPECT_EQ(biased, (std::vector<bool>{true, false, true, false, true, false, true, false}));
}

TEST(Import, MemoryBodyRunsOnTheEncodersRowsOnceASentence) {
  Imported module(translatorText(
      R"({"op": "residual", "body": [{"op": "attention", "name": "c", "heads": 3, "memory": "encoder", "dropout": 0.5,
      "memory_body": [{"op": "linear", "name": "m", "features": 4}, {"op": "dropout", "rate": 0.25}, {"op": "gelu"}]}]})"));
  EXPECT_EQ(module.count("encode")["activation"], 1 + 2);
  EXPECT_EQ(module.count("decode_step")["activation"], 0);
  EXPECT_EQ(module.resultType("encode", 0), "!xfc.rows<source, 6xf32>");
  std::vector<DropoutOp> dropouts = module.ops<DropoutOp>("loss");
  ASSERT_EQ(dropouts.size(), 4u);
  EXPECT_EQ(dropouts[0].getRate().convertToDouble(), 0.25);
  EXPECT_EQ(dropouts[1].getRate().convertToDouble(), 0.5);
  EXPECT_EQ(module.typeOf(dropouts[0].getType()), "!xfc.rows<source, 4xf32>");
  EXPECT_EQ(placeOf(dropouts[0]), "decoder.layers.0.c.memory.dropout");
  std::vector<LinearOp> linears = module.ops<LinearOp>("forward");
  EXPECT_EQ(placeOf(linears[0]), "decoder.layers.0.m");
  EXPECT_EQ(linears[2].getX().getType(), linears[3].getX().getType());
}

TEST(Import, AttentionInsideAMemoryBody) {
  Imported module(translatorText(R"({"op": "attention", "name": "c", "heads": 2, "memory": "encoder",
      "memory_body": [{"op": "attention", "name": "inner", "heads": 3, "mask": []}]})"));
  EXPECT_EQ(module.results("forward_attention")[2], "attention.decoder.layers.0.inner");
  EXPECT_EQ(module.typeOf(module.ops<SoftmaxOp>("encode").front().getType()), "!xfc.pairs<source, source, 3xf32>");
  EXPECT_EQ(module.count("decode_step")["softmax"], 2);
  EXPECT_TRUE(module.arguments("decode_step", attr::state).empty());
}

TEST(Import, NormAttributes) {
  Imported module(encoderText(R"({"op": "layer_norm", "name": "a"},
      {"op": "layer_norm", "name": "b", "eps": 0.5, "variance": "unbiased"}, {"op": "layer_norm", "name": "c", "eps_in": "std"},
      {"op": "rms_norm", "name": "d"})"));
  std::vector<NormOp> norms = module.ops<NormOp>("forward");
  ASSERT_EQ(norms.size(), 8u);
  EXPECT_EQ(norms[0].getKind(), NormKind::layer);
  EXPECT_EQ(norms[0].getEps().convertToDouble(), 1e-5);
  EXPECT_FALSE(norms[0].getUnbiased() || norms[0].getEpsInStd());
  EXPECT_TRUE(norms[1].getUnbiased() && !norms[1].getEpsInStd());
  EXPECT_EQ(norms[1].getEps().convertToDouble(), 0.5);
  EXPECT_TRUE(!norms[2].getUnbiased() && norms[2].getEpsInStd());
  EXPECT_TRUE(norms[2].getBias());
  EXPECT_EQ(norms[3].getKind(), NormKind::rms);
  EXPECT_FALSE(norms[3].getBias());
}

TEST(Import, ActivationsAndGates) {
  for (auto [name, kind] : {std::pair{"relu", ActivationKind::relu},
                            {"gelu", ActivationKind::gelu},
                            {"silu", ActivationKind::silu},
                            {"tanh", ActivationKind::tanh},
                            {"gelu_tanh", ActivationKind::gelu_tanh},
                            {"squared_relu", ActivationKind::squared_relu}}) {
    Imported plain(encoderText(std::string(R"({"op": ")") + name + "\"}"));
    EXPECT_EQ(plain.ops<ActivationOp>("forward").front().getKind(), kind);
    Imported gated(
        encoderText(std::string(R"({"op": "gated", "name": "g", "features": 8, "bias": true, "activation": ")") + name +
                    R"("}, {"op": "linear", "name": "l", "features": 6})"));
    MultiplyOp product = gated.ops<MultiplyOp>("forward").front();
    auto gate = product.getA().getDefiningOp<ActivationOp>();
    ASSERT_TRUE(gate);
    EXPECT_EQ(gate.getKind(), kind);
    EXPECT_EQ(placeOf(gate.getX().getDefiningOp()), "encoder.layers.0.g.gate");
    EXPECT_EQ(placeOf(product.getB().getDefiningOp()), "encoder.layers.0.g.value");
    EXPECT_TRUE(product.getB().getDefiningOp<LinearOp>().getBias());
  }
}

TEST(Import, PositionsAndEmbeddings) {
  Imported module(R"({"format": "xfc-model/1", "name": "m", "encoder": {"input": [
        {"op": "embedding", "name": "embed", "vocab": 9, "dim": 4, "scale": "sqrt_dim"},
        {"op": "positions", "kind": "sinusoidal", "max_length": 5, "base": 50, "exponent_multiplier": 2, "cosine_offset": 1, "layout": "halves"}],
      "layers": 2, "layer": [{"op": "positions", "kind": "learned", "name": "where", "max_length": 7}]}})");
  EXPECT_EQ(module.ops<EmbeddingOp>("forward").front().getScale().convertToDouble(), 2);
  SinusoidOp table = module.ops<SinusoidOp>("forward").front();
  EXPECT_EQ(module.typeOf(table.getType()), "tensor<5x4xf32>");
  EXPECT_EQ(table.getBase().convertToDouble(), 50);
  EXPECT_EQ(table.getExponentMultiplier().convertToDouble(), 2);
  EXPECT_EQ(table.getCosineOffset().convertToDouble(), 1);
  EXPECT_TRUE(table.getHalves());
  EXPECT_EQ(module.arguments("forward", attr::parameter),
            (Names{"encoder.embed.weight", "encoder.layers.0.where.weight", "encoder.layers.1.where.weight"}));
  EXPECT_EQ(module.count("forward")["add_positions"], 3);
  for (auto [scale, factor] : {std::pair{"\"none\"", 1.0}, {"3.5", 3.5}}) {
    Imported scaled(std::string(R"({"format": "xfc-model/1", "name": "m", "encoder": {"input": [
        {"op": "embedding", "name": "embed", "vocab": 9, "dim": 4, "scale": )") +
                    scale + R"(}], "layers": 1, "layer": [{"op": "relu"}]}})");
    EXPECT_EQ(scaled.ops<EmbeddingOp>("forward").front().getScale().convertToDouble(), factor);
  }
}

// An offset adds that many rows to the table, and shifts each token's row by as much.
TEST(Import, OffsetsOfPositions) {
  Imported module(encoderText(R"({"op": "positions", "kind": "learned", "max_length": 5, "offset": 2},
                                 {"op": "positions", "kind": "sinusoidal", "max_length": 7, "offset": 3})"));
  std::vector<AddPositionsOp> adds = module.ops<AddPositionsOp>("forward");
  EXPECT_EQ(adds.at(0).getOffset(), 2u);
  EXPECT_EQ(module.typeOf(adds.at(0).getTable().getType()), "tensor<7x6xf32>");
  EXPECT_EQ(adds.at(1).getOffset(), 3u);
  EXPECT_EQ(module.typeOf(adds.at(1).getTable().getType()), "tensor<10x6xf32>");
}

// Queries and keys are rotated, each with their own number of heads, and keys before they are cached; a window is a
// reach to both sides or, if causal, to the tokens before the query.
TEST(Import, RotaryWindowAndSharedHeads) {
  Imported module(R"({"format": "xfc-model/1", "name": "m", "encoder": {"input": [
        {"op": "embedding", "name": "embed", "vocab": 9, "dim": 8}], "layers": 1, "layer": [
        {"op": "attention", "name": "a", "heads": 4, "kv_heads": 2, "key_dim": 6, "value_dim": 3, "window": 5}]},
      "decoder": {"input": [{"op": "embedding", "name": "embed", "vocab": 9, "dim": 8}], "layers": 1, "layer": [
        {"op": "attention", "name": "a", "heads": 2, "kv_heads": 1, "mask": ["causal"], "window": 5, "rotary": "halves",
         "rotary_base": 50, "rotary_dim": 2, "max_length": 7}]},
      "head": [{"op": "linear", "name": "output", "features": 9}]})");
  std::vector<MaskOp> masks = module.ops<MaskOp>("forward");
  EXPECT_EQ(masks.at(0).getReach(), 5u);
  EXPECT_EQ(masks.at(1).getReach(), 4u);
  std::vector<ScoresOp> scores = module.ops<ScoresOp>("forward");
  EXPECT_EQ(module.typeOf(scores.at(0).getQ().getType()), "!xfc.rows<source, 24xf32>");
  EXPECT_EQ(module.typeOf(scores.at(0).getK().getType()), "!xfc.rows<source, 12xf32>");
  EXPECT_EQ(module.typeOf(module.ops<CombineOp>("forward").at(0).getV().getType()), "!xfc.rows<source, 6xf32>");
  std::vector<RotateOp> rotations = module.ops<RotateOp>("decode_step");
  ASSERT_EQ(rotations.size(), 2u);
  for (auto [rotation, heads, features] : {std::tuple{rotations[0], 2u, 8}, {rotations[1], 1u, 4}}) {
    EXPECT_EQ(rotation.getHeads(), heads);
    EXPECT_EQ(rotation.getType().getFeatures(), features);
    EXPECT_TRUE(rotation.getHalves());
    EXPECT_FALSE(rotation.getInverse());
    auto table = rotation.getTable().getDefiningOp<SinusoidOp>();
    EXPECT_EQ(module.typeOf(table.getType()), "tensor<7x2xf32>");
    EXPECT_EQ(table.getBase().convertToDouble(), 50);
    EXPECT_TRUE(table.getHalves());
  }
  EXPECT_EQ(rotations[0].getResult(), module.ops<ScoresOp>("decode_step").front().getQ());
  EXPECT_TRUE(isa<CacheWriteOp>(*rotations[1]->user_begin()));
}

// A recurrence scans whole sequences. In a decoding step it continues from a cache, which it updates, and in the
// encoder it is an ordinary step.
TEST(Import, RecurrenceHasAStateWhileDecoding) {
  Imported module(translatorText(R"({"op": "recurrence", "name": "rnn", "bias": {"value": false}}, {"op": "relu"},
                                    {"op": "attention", "name": "c", "heads": 2, "memory": "encoder"})",
                                 "", R"({"op": "recurrence", "name": "rnn"})"));
  std::vector<RecurrenceOp> forward = module.ops<RecurrenceOp>("forward");
  ASSERT_EQ(forward.size(), 3u);
  EXPECT_EQ(module.typeOf(forward[0].getType()), "!xfc.rows<source, 6xf32>");
  EXPECT_EQ(module.typeOf(forward[1].getType()), "!xfc.rows<target, 6xf32>");
  for (RecurrenceOp recurrence : forward)
    EXPECT_FALSE(recurrence.getStates());
  EXPECT_TRUE(forward[0].getX().getDefiningOp<LinearOp>().getBias());
  auto gate = forward[1].getGate().getDefiningOp<LinearOp>(), value = forward[1].getX().getDefiningOp<LinearOp>();
  EXPECT_TRUE(gate.getBias());
  EXPECT_FALSE(value.getBias());
  const Names parameters = module.arguments("forward", attr::parameter);
  for (const char *name : {"gate.weight", "gate.bias", "value.weight"})
    EXPECT_EQ(llvm::count(parameters, std::string("decoder.layers.1.rnn.") + name), 1) << name;

  const Names states = {"decoder.layers.0.rnn.state", "decoder.layers.1.rnn.state"};
  for (const char *program : {"decode_step", "decode_candidates"}) {
    EXPECT_EQ(module.arguments(program, attr::state), states);
    std::vector<RecurrenceOp> steps = module.ops<RecurrenceOp>(program);
    ASSERT_EQ(steps.size(), 2u);
    EXPECT_EQ(module.typeOf(steps[0].getStates().getType()), "!xfc.rows<cache, 6xf32>");
    std::vector<CacheWriteOp> writes = module.ops<CacheWriteOp>(program);
    ASSERT_EQ(writes.size(), 2u);
    EXPECT_EQ(writes[1].getCache(), steps[1].getStates());
    EXPECT_EQ(writes[1].getRows(), steps[1].getResult());
  }
  EXPECT_EQ(module.ops<RecurrenceOp>("encode").size(), 1u);
}

TEST(Import, ScaleTakesANumberOrARootOfTheFeatures) {
  for (auto [by, factor] :
       {std::pair{"-0.25", -0.25}, {"\"sqrt_dim\"", std::sqrt(6)}, {"\"rsqrt_dim\"", 1 / std::sqrt(6)}}) {
    Imported module(encoderText(std::string(R"({"op": "scale", "by": )") + by + "}"));
    EXPECT_DOUBLE_EQ(module.ops<ScaleOp>("forward").front().getFactor().convertToDouble(), factor);
  }
}

TEST(Import, ResidualAddsItsBodyToX) {
  Imported module(
      encoderText(R"({"op": "residual", "body": [{"op": "residual", "body": [{"op": "gelu"}]}, {"op": "relu"}]})"));
  std::vector<AddOp> adds = module.ops<AddOp>("forward");
  ASSERT_EQ(adds.size(), 4u);
  EXPECT_EQ(adds[0].getB(), adds[1].getB());
  EXPECT_EQ(adds[0].getA().getDefiningOp<ActivationOp>().getKind(), ActivationKind::gelu);
  EXPECT_EQ(adds[1].getA().getDefiningOp<ActivationOp>().getKind(), ActivationKind::relu);
  EXPECT_EQ(placeOf(adds[0]), "encoder.layers.0.residual.residual");
}

TEST(Import, AttentionInInputAndOutputOfAStack) {
  Imported module(R"({"format": "xfc-model/1", "name": "m", "params": {"d_model": 6},
      "encoder": {"input": [{"op": "attention", "name": "first", "heads": 2}], "layers": 1, "layer": [{"op": "relu"}],
                  "output": [{"op": "attention", "name": "last", "heads": 3}]}})");
  EXPECT_EQ(module.results("forward_attention"),
            (Names{"encoder_output", "attention.encoder.first", "attention.encoder.last"}));
}

namespace {

// Generates random steps from the grammar, which map rows of `features` to rows of 6.
class RandomSteps {
public:
  RandomSteps(unsigned seed, bool decoder) : random(seed), decoder(decoder) {}

  std::string list(int64_t features, int64_t wanted, int depth) {
    std::string text;
    for (int64_t i = draw(4); i > 0; --i)
      text += step(features, depth) + ", ";
    return text + R"({"op": "linear", )" + name() + R"(, "features": )" + std::to_string(wanted) + bias() + "}";
  }

private:
  int64_t draw(int64_t below) { return static_cast<int64_t>(random() % below); }
  std::string name() { return R"("name": "s)" + std::to_string(++names) + "\""; }
  std::string bias() { return draw(2) ? R"(, "bias": false)" : R"(, "bias": true)"; }
  std::string one(std::vector<std::string> choices) { return choices[draw(choices.size())]; }

  std::string step(int64_t &features, int depth) {
    switch (draw(depth > 2 ? 7 : 9)) {
    case 0:
      return R"({"op": ")" + one({"relu", "squared_relu", "gelu", "gelu_tanh", "silu", "tanh"}) + "\"}";
    case 1:
      return R"({"op": "layer_norm", )" + name() +
             one({"", R"(, "variance": "unbiased")", R"(, "eps_in": "std", "eps": 0.01)"}) + "}";
    case 2:
      return R"({"op": "rms_norm", )" + name() + "}";
    case 3:
      features = 2 * (1 + draw(5));
      return R"({"op": "gated", )" + name() + R"(, "features": )" + std::to_string(features) + bias() + "}";
    case 4:
      return R"({"op": "dropout", "rate": )" + one({"0", "0.1", "0.9"}) + "}";
    case 5:
      return R"({"op": "positions", "kind": "learned", "max_length": 9, )" + name() + "}";
    case 6:
      return R"({"op": "recurrence", )" + name() + one({bias(), R"(, "bias": {"value": false})"}) + "}";
    case 7:
      return R"({"op": "residual", "body": [)" + list(features, features, depth + 1) + "]}";
    default:
      return attention(depth);
    }
  }

  std::string attention(int depth) {
    std::string text = R"({"op": "attention", )" + name() + R"(, "heads": )" + std::to_string(1 + draw(3)) +
                       R"(, "key_dim": )" + std::to_string(1 + draw(5)) + R"(, "value_dim": )" +
                       std::to_string(1 + draw(5)) + bias() + R"(, "dropout": )" + one({"0", "0.5"}) +
                       R"(, "return_weights": )" + one({"true", "false"}) + R"(, "mask": )" +
                       one({"[]", R"(["padding"])", R"(["causal"])", R"(["padding", "causal"])"});
    if (decoder && draw(2)) {
      decoder = false; // a memory_body cannot attend to the encoder again
      text += R"(, "memory": "encoder", "memory_body": [)" + list(6, 1 + draw(8), depth + 1) + "]";
      decoder = true;
    }
    return text + "}";
  }

  std::mt19937 random;
  bool decoder;
  int names = 0;
};

} // namespace

TEST(Import, RandomModelsVerify) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::string text =
        translatorText(RandomSteps(seed, true).list(6, 6, 0), "", RandomSteps(seed + 1000, false).list(6, 6, 0));
    SCOPED_TRACE(text);
    Description model = parseDescription(text, "m.json");
    Imported module(model);
    EXPECT_EQ(module.arguments("loss", attr::parameter), module.arguments("forward", attr::parameter));
    EXPECT_EQ(module.program("forward").getNumArguments(), module.arguments("forward", attr::parameter).size() + 2);
    if (!module.program("decode_step"))
      continue;
    // encode and decode_step share no parameter.
    Names encode = module.arguments("encode", attr::parameter), step = module.arguments("decode_step", attr::parameter);
    for (const std::string &name : encode)
      EXPECT_EQ(std::count(step.begin(), step.end(), name), 0) << name;
  }
}
