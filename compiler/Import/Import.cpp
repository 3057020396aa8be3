// Turns a Description into an xfc module: one function for each program a user can run, nothing fused.
#include "Import.h"
#include "Dialect/FunctionBuilder.h"
#include "Dialect/XFC.h"
#include "StepKinds.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "plan/Programs.h"
#include "support/Error.h"
#include <set>

using namespace mlir;

namespace xfc {
namespace {

// The number of candidates that a decoding step returns for each hypothesis. Searches that need more read all
// log-probabilities instead (@decode_step). Each candidate costs little to select, and 8 f32 fill an AVX2 vector.
constexpr int64_t candidates = 8;

// The name of a program and what distinguishes its body.
struct ProgramKind {
  const char *name;
  bool dropout = false;
  bool allWeights = false;  // every attention's probabilities are results
  bool candidates = false;  // the best tokens instead of all log-probabilities
  bool renormalize = false; // of the candidates: among the tokens that are not excluded
  bool loss = false;        // loss and nll instead of logits and encoder output
  int64_t distillation = 0; // of the loss: how many tokens of a teacher each label has beside it
  GuidedAlignment guided;   // of the loss: the links that it has, if any,
  std::string guidedPath;   // and the attention that they guide
};

// The position of a step in the unrolled model.
struct Site {
  const std::string &prefix; // of the names in its layer
  std::string path;          // its full name: the prefix and its "name", or else its place in the list
};

// Visits the steps of one kind in a stack, in the order of the unrolled model.
template <typename Step> using StepVisitor = llvm::function_ref<void(const Step &, const Site &)>;

template <typename Step>
void visitSteps(ArrayRef<StepDescription> steps, const std::string &prefix, StepVisitor<Step> visit) {
  for (const StepDescription &step : steps) {
    if (auto *options = std::get_if<Step>(&step.options))
      visit(*options, {prefix, prefix + step.name});
    else if (auto *residual = std::get_if<step::Residual>(&step.options))
      visitSteps<Step>(residual->body, prefix, visit);
  }
}

std::string layerPrefix(const std::string &prefix, int64_t layer) {
  return prefix + "layers." + std::to_string(layer) + ".";
}

template <typename Step>
void visitSteps(const StackDescription &stack, const std::string &prefix, StepVisitor<Step> visit) {
  visitSteps<Step>(stack.input, prefix, visit);
  for (int64_t i = 0; i < stack.layers; ++i)
    visitSteps<Step>(stack.layer, layerPrefix(prefix, i), visit);
  visitSteps<Step>(stack.output, prefix, visit);
}

// The path of the attention that the links of an alignment guide; empty if there are none.
std::string guidedAttention(const Description &model, const GuidedAlignment &guided) {
  if (guided.links == 0)
    return {};
  std::string path;
  int64_t heads = 0;
  auto visit = [&](const step::Attention &attention, const Site &at) {
    if (attention.encoderMemory && (!guided.layer || at.prefix == layerPrefix("decoder.", *guided.layer))) {
      path = at.path;
      heads = attention.heads;
    }
  };
  if (model.decoder) {
    if (guided.layer && *guided.layer >= model.decoder->layers)
      throw Error("--guided-alignment-layer " + std::to_string(*guided.layer + 1) + ": the decoder has only " +
                  std::to_string(model.decoder->layers) + " layers");
    visitSteps<step::Attention>(*model.decoder, "decoder.", visit);
  }
  if (path.empty())
    throw Error("--guided-alignment: model '" + model.name + "' has no cross-attention that could be guided" +
                (guided.layer ? " in layer " + std::to_string(*guided.layer + 1) + " of its decoder" : ""));
  if (guided.head && *guided.head >= heads)
    throw Error("--guided-alignment-head " + std::to_string(*guided.head + 1) + ": " + path + " has only " +
                std::to_string(heads) + " heads");
  return path;
}

// Search feeds tokens one by one, so it needs a decoder that does not look ahead.
bool canDecode(const Description &model) {
  if (!model.decoder || model.encoder.floatInput || model.decoder->floatInput)
    return false;
  bool causal = true;
  visitSteps<step::Attention>(*model.decoder, "", [&](const step::Attention &attention, const Site &) {
    causal &= attention.encoderMemory || attention.causal;
  });
  return causal;
}

// Names a step that has no name: its op, numbered if its list has several such steps.
std::string placeOf(ArrayRef<StepDescription> steps, size_t index) {
  const std::string &op = steps[index].kind->op;
  auto isSame = [&](const StepDescription &step) { return step.kind->op == op; };
  if (llvm::count_if(steps, isSame) == 1)
    return op;
  return op + "[" + std::to_string(llvm::count_if(steps.take_front(index), isSame)) + "]";
}

// Builds one function. Programs differ in the parts of the model that they contain and in what they do about attention
// weights and dropout.
class ProgramBuilder {
public:
  ProgramBuilder(const Description &model, ModuleOp module, FloatType element, ProgramKind kind)
      : model(model), kind(std::move(kind)), builder(module.getContext()), element(element),
        loc(locationOf(this->kind.name)), function(module, this->kind.name, loc) {
    builder.setInsertionPointToEnd(function.body());
    for (const ParameterDescription &parameter : model.parameters) {
      Value value = addArgument(parameter.name, attr::parameter, RankedTensorType::get(parameter.shape, element));
      parameters[parameter.name] = value;
      for (const std::string &alias : parameter.aliases)
        parameters[alias] = value;
    }
  }

  // @forward, @forward_attention, @score and @loss.
  void buildWhole() {
    Value source = addInput(names::source, RowSet::source, model.encoder);
    Value target = model.decoder ? addInput(names::target, RowSet::target, *model.decoder) : Value();
    Value labels, smoothing, links, linkShares;
    if (kind.loss) {
      if (kind.distillation) {
        const int64_t count = 1 + kind.distillation;
        labels = addArgument(names::labelLists, attr::input,
                             RowsType::get(context(), RowSet::target, {count}, builder.getI32Type()));
        smoothing = addArgument(names::labelShares, attr::input, rowsType(RowSet::target, count + 1));
      } else {
        labels = addArgument(names::labels, attr::input, idsType(RowSet::target));
        smoothing = addArgument(names::smoothing, attr::scalar, RankedTensorType::get({}, element));
      }
      if (kind.guided.links) {
        links = addArgument(names::alignmentLinks, attr::input,
                            RowsType::get(context(), RowSet::target, {kind.guided.links}, builder.getI32Type()));
        linkShares = addArgument(names::alignmentShares, attr::input, rowsType(RowSet::target, kind.guided.links));
      }
    }
    memory = importStack(model.encoder, "encoder.", source);
    Value output = model.decoder ? importStack(*model.decoder, "decoder.", target) : memory;
    Value logits = importSteps(model.head, "", "", output);
    if (kind.loss) {
      setPlace("loss");
      Type perRow = RowsType::get(context(), RowSet::target, {}, element);
      auto nll = NllOp::create(builder, loc, perRow, perRow, logSoftmax(logits), labels, smoothing);
      Value loss = nll.getLoss(), alignment;
      if (links) {
        setPlace(kind.guidedPath);
        auto aligned =
            AlignmentLossOp::create(builder, loc, perRow, perRow, linkShares.getType(), loss, guided, links, linkShares,
                                    kind.guided.head ? builder.getI64IntegerAttr(*kind.guided.head) : IntegerAttr());
        loss = aligned.getResult();
        alignment = aligned.getAlignment();
      }
      function.addResult(names::loss, loss);
      function.addResult(names::nll, nll.getNll());
      if (alignment)
        function.addResult(names::alignment, alignment);
    } else {
      if (model.decoder || !model.head.empty())
        function.addResult(names::logits, logits);
      function.addResult(names::encoderOutput, memory);
      for (auto &[path, probabilities] : weights)
        function.addResult("attention." + path, probabilities);
    }
    function.finish(/*optional=*/model.parameters.size());
  }

  // @encode: what decoding needs to know about a source sentence, the keys and values of every cross-attention.
  void buildEncode() {
    Value source = addInput(names::source, RowSet::source, model.encoder);
    memory = importStack(model.encoder, "encoder.", source);
    visitSteps<step::Attention>(*model.decoder, "decoder.", [&](const step::Attention &attention, const Site &at) {
      if (!attention.encoderMemory)
        return;
      auto [keys, values] = importKeysAndValues(attention, at, importMemory(attention, at));
      function.addResult(at.path + ".k", keys);
      function.addResult(at.path + ".v", values);
    });
    function.finish(/*optional=*/model.parameters.size());
  }

  // @decode_step, @decode_candidates and @decode_renormalized: the next token of every live hypothesis.
  void buildDecodeStep() {
    Value target = addInput(names::target, RowSet::target, *model.decoder);
    Value wanted = kind.candidates ? addArgument(names::wanted, attr::input, idsType(RowSet::target)) : Value();
    addKeysAndValues(/*ofEncoder=*/true, RowSet::source, attr::input);
    addKeysAndValues(/*ofEncoder=*/false, RowSet::cache, attr::state);
    addStates();
    Value output = importStack(*model.decoder, "decoder.", target);
    Value logits = importSteps(model.head, "", "", output);
    setPlace("log_probs");
    Value logProbs = logSoftmax(logits);
    if (kind.candidates) {
      auto rows = [&](ArrayRef<int64_t> shape, Type type) {
        return RowsType::get(context(), RowSet::target, shape, type);
      };
      std::set<int64_t> never = {model.tokens.pad, model.tokens.start, model.tokens.eos};
      never.erase(-1); // there is no pad
      const std::vector<int64_t> excluded(never.begin(), never.end());
      auto found =
          CandidatesOp::create(builder, loc, rows({candidates}, builder.getI32Type()), rows({candidates}, element),
                               rows({}, element), logProbs, wanted, excluded, kind.renormalize);
      function.addResult(names::tokens, found.getTokens());
      function.addResult(names::tokenLogProbs, found.getBest());
      function.addResult(names::wantedLogProb, found.getWantedLogProb());
    } else {
      function.addResult(names::logProbs, logProbs);
    }
    for (auto &[path, old, now] : caches)
      function.addResult(path, now, old);
    function.finish(/*optional=*/model.parameters.size());
  }

private:
  struct KeysAndValues {
    Value keys, values;
  };

  MLIRContext *context() { return builder.getContext(); }
  Location locationOf(const std::string &place) { return NameLoc::get(builder.getStringAttr(place)); }
  void setPlace(const std::string &place) { loc = locationOf(place); }

  //===-- the function ------------------------------------------------------------------------------------===//

  Value addArgument(const std::string &name, StringRef role, Type type) {
    return function.addArgument(name, role, type, locationOf(name));
  }

  Value addInput(const std::string &name, RowSet set, const StackDescription &stack) {
    return addArgument(name, attr::input, stack.floatInput ? rowsType(set, stack.inputDim) : idsType(set));
  }

  // Adds the keys and values that the decoder's attentions read in a step: those of the encoder's output, or those of
  // earlier tokens.
  void addKeysAndValues(bool ofEncoder, RowSet set, StringRef role) {
    visitSteps<step::Attention>(*model.decoder, "decoder.", [&](const step::Attention &attention, const Site &at) {
      if (attention.encoderMemory == ofEncoder)
        given[at.path] = {addArgument(at.path + ".k", role, rowsType(set, attention.kvHeads * attention.keyDim)),
                          addArgument(at.path + ".v", role, rowsType(set, attention.kvHeads * attention.valueDim))};
    });
  }

  // Adds the states that the decoder's recurrences had after earlier tokens.
  void addStates() {
    visitSteps<step::Recurrence>(*model.decoder, "decoder.", [&](const step::Recurrence &, const Site &at) {
      const auto features = cast<RankedTensorType>(parameter(at.path + ".gate.weight").getType()).getDimSize(0);
      states[at.path] = addArgument(at.path + ".state", attr::state, rowsType(RowSet::cache, features));
    });
  }

  //===-- types -------------------------------------------------------------------------------------------===//

  RowsType rowsType(RowSet set, int64_t features) { return RowsType::get(context(), set, {features}, element); }
  RowsType idsType(RowSet set) { return RowsType::get(context(), set, {}, builder.getI32Type()); }
  static RowsType typeOf(Value rows) { return cast<RowsType>(rows.getType()); }
  RowsType like(Value rows, int64_t features) { return rowsType(typeOf(rows).getSet(), features); }
  static APFloat number(double value) { return APFloat(value); }

  //===-- steps -------------------------------------------------------------------------------------------===//

  Value importStack(const StackDescription &stack, const std::string &prefix, Value x) {
    x = importSteps(stack.input, prefix, prefix, x);
    for (int64_t i = 0; i < stack.layers; ++i)
      x = importSteps(stack.layer, layerPrefix(prefix, i), layerPrefix(prefix, i), x);
    return importSteps(stack.output, prefix, prefix, x);
  }

  // Names of parameters begin with `prefix`, and locations of steps without a name with `place`.
  Value importSteps(ArrayRef<StepDescription> steps, const std::string &prefix, const std::string &place, Value x) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const StepDescription &step = steps[i];
      const Site at{prefix, step.name.empty() ? place + placeOf(steps, i) : prefix + step.name};
      setPlace(at.path);
      x = std::visit([&](const auto &options) { return importStep(options, at, x); }, step.options);
    }
    return x;
  }

  Value importStep(const step::Embedding &embedding, const Site &at, Value x) {
    return EmbeddingOp::create(builder, loc, like(x, embedding.dim), x, parameter(at.path + ".weight"),
                               number(embedding.scale));
  }

  Value importStep(const step::SinusoidalPositions &positions, const Site &, Value x) {
    Value table = SinusoidOp::create(
        builder, loc, RankedTensorType::get({positions.maxLength + positions.offset, typeOf(x).getFeatures()}, element),
        number(positions.base), number(positions.exponentMultiplier), number(positions.cosineOffset), positions.halves);
    return AddPositionsOp::create(builder, loc, x.getType(), x, table, positions.offset);
  }

  Value importStep(const step::LearnedPositions &positions, const Site &at, Value x) {
    return AddPositionsOp::create(builder, loc, x.getType(), x, parameter(at.path + ".weight"), positions.offset);
  }

  Value importStep(const step::Attention &attention, const Site &at, Value x) {
    return importAttention(attention, at, x);
  }

  // In a decoding step, the state after the previous token comes from the cache.
  Value importStep(const step::Recurrence &, const Site &at, Value x) {
    Value gate = importLinear(at.path + ".gate", x), value = importLinear(at.path + ".value", x);
    Value before = states.lookup(at.path);
    Value now = RecurrenceOp::create(builder, loc, gate.getType(), gate, value, before);
    if (before)
      writeCache(at.path + ".state", before, now);
    return now;
  }

  Value importStep(const step::Linear &, const Site &at, Value x) { return importLinear(at.path, x); }

  Value importStep(const step::LayerNorm &norm, const Site &at, Value x) {
    return importNorm(at.path, x, NormKind::layer, norm.eps, norm.unbiased, norm.epsInStd);
  }

  Value importStep(const step::RmsNorm &norm, const Site &at, Value x) {
    return importNorm(at.path, x, NormKind::rms, norm.eps);
  }

  Value importStep(const step::Activation &activation, const Site &, Value x) {
    return importActivation(activation.function, x);
  }

  Value importStep(const step::Scale &scale, const Site &, Value x) {
    return ScaleOp::create(builder, loc, x.getType(), x, number(scale.by));
  }

  Value importStep(const step::Gated &gated, const Site &at, Value x) {
    Value gate = importActivation(gated.activation, importLinear(at.path + ".gate", x));
    return MultiplyOp::create(builder, loc, gate.getType(), gate, importLinear(at.path + ".value", x));
  }

  Value importStep(const step::Dropout &dropout, const Site &, Value x) { return importDropout(dropout.rate, x); }

  Value importStep(const step::Residual &residual, const Site &at, Value x) {
    Value body = importSteps(residual.body, at.prefix, at.path + ".", x);
    setPlace(at.path);
    return AddOp::create(builder, loc, x.getType(), body, x);
  }

  Value parameter(const std::string &name) {
    Value value = parameters.lookup(name);
    assert(value && "the description lists every parameter");
    return value;
  }

  Value importNorm(const std::string &path, Value x, NormKind norm, double eps, bool unbiased = false,
                   bool epsInStd = false) {
    return NormOp::create(builder, loc, x.getType(), like(x, 2), x, parameter(path + ".weight"),
                          parameters.lookup(path + ".bias"), norm, number(eps), unbiased, epsInStd)
        .getResult();
  }

  Value importActivation(StringRef function, Value x) {
    std::optional<ActivationKind> activation = symbolizeActivationKind(function);
    assert(activation && "the table of steps spells activations as the dialect does");
    return ActivationOp::create(builder, loc, x.getType(), x, *activation);
  }

  // Ids number the dropouts of the unrolled model, so fusion does not change random numbers.
  Value importDropout(double rate, Value x) {
    if (!kind.dropout || rate == 0)
      return x;
    return DropoutOp::create(builder, loc, x.getType(), x, number(rate), ++dropouts);
  }

  Value importLinear(const std::string &path, Value x) {
    Value weight = parameter(path + ".weight");
    Type type = like(x, cast<RankedTensorType>(weight.getType()).getDimSize(0));
    return LinearOp::create(builder, locationOf(path), type, x, weight, parameters.lookup(path + ".bias"), ValueRange(),
                            ComputeTypeAttr())
        .getResult(0);
  }

  Value logSoftmax(Value logits) { return LogSoftmaxOp::create(builder, loc, logits.getType(), logits); }

  //===-- attention ---------------------------------------------------------------------------------------===//

  // The encoder's output as this attention sees it. Names in its body are relative to the layer.
  Value importMemory(const step::Attention &attention, const Site &at) {
    Value x = importSteps(attention.memoryBody, at.prefix, at.path + ".memory.", memory);
    setPlace(at.path);
    return x;
  }

  KeysAndValues importKeysAndValues(const step::Attention &attention, const Site &at, Value x) {
    if (!attention.projections)
      return {importRotary(attention, attention.kvHeads, x), x};
    Value keys = importRotary(attention, attention.kvHeads, importLinear(at.path + ".k", x));
    return {keys, importLinear(at.path + ".v", x)};
  }

  // Rotates queries or keys, which have `heads` heads, by their positions if the attention is rotary.
  Value importRotary(const step::Attention &attention, int64_t heads, Value x) {
    using Rotary = step::Attention::Rotary;
    if (attention.rotary == Rotary::none)
      return x;
    const bool halves = attention.rotary == Rotary::halves;
    Value angles = SinusoidOp::create(
        builder, loc, RankedTensorType::get({attention.maxLength, attention.rotaryDim}, element),
        number(attention.rotaryBase), /*exponent_multiplier=*/number(1), /*cosine_offset=*/number(0), halves);
    return RotateOp::create(builder, loc, x.getType(), x, angles, heads, halves, /*inverse=*/false);
  }

  Value importAttention(const step::Attention &attention, const Site &at, Value x) {
    Value source = attention.encoderMemory && memory ? importMemory(attention, at) : x;
    Value query = attention.projections ? importLinear(at.path + ".q", x) : x;
    query = importRotary(attention, attention.heads, query);
    auto [keys, values] = attendedTo(attention, at, source);
    Type pairs = PairsType::get(context(), typeOf(query).getSet(), typeOf(keys).getSet(), attention.padding,
                                attention.causal, attention.heads, element);
    Value p = ScoresOp::create(builder, loc, pairs, query, keys);
    p = ScaleOp::create(builder, loc, pairs, p, number(1 / attention.scale));
    if (attention.distanceBias != step::Attention::DistanceBias::none)
      p = AddDistanceBiasOp::create(builder, loc, pairs, p, importDistanceBias(attention, at));
    // How many positions before or after its own a query sees. The window of a causal attention includes its own.
    const int64_t reach = attention.window - (attention.causal ? 1 : 0);
    p = MaskOp::create(builder, loc, pairs, p, /*zero=*/false,
                       attention.window ? builder.getI64IntegerAttr(reach) : IntegerAttr());
    p = SoftmaxOp::create(builder, loc, pairs, p);
    if (kind.allWeights || attention.returnWeights)
      weights.emplace_back(at.path, p);
    if (at.path == kind.guidedPath)
      guided = p;
    p = importDropout(attention.dropout, p);
    Value output = CombineOp::create(builder, loc, like(query, attention.heads * attention.valueDim), p, values);
    return attention.projections ? importLinear(at.path + ".o", output) : output;
  }

  Value importDistanceBias(const step::Attention &attention, const Site &at) {
    const bool table = attention.distanceBias == step::Attention::DistanceBias::buckets;
    Type bias = RankedTensorType::get({attention.maxLength, 2 * attention.heads}, element);
    return DistanceBiasOp::create(builder, loc, bias, table ? parameter(at.path + ".distance_bias.weight") : Value(),
                                  table ? attention.maxDistance : 0, table && !attention.causal);
  }

  // In a decoding step, the encoder's keys and values are inputs, and those of earlier tokens come from the cache.
  KeysAndValues attendedTo(const step::Attention &attention, const Site &at, Value x) {
    auto found = given.find(at.path);
    if (found == given.end())
      return importKeysAndValues(attention, at, x);
    if (attention.encoderMemory)
      return found->second;
    auto [keys, values] = importKeysAndValues(attention, at, x);
    Value allKeys = writeCache(at.path + ".k", found->second.keys, keys);
    return {allKeys, writeCache(at.path + ".v", found->second.values, values)};
  }

  // The cache with the rows of this step.
  Value writeCache(const std::string &name, Value cache, Value rows) {
    Value now = CacheWriteOp::create(builder, loc, cache.getType(), cache, rows);
    caches.push_back({name, cache, now});
    return now;
  }

  struct Cache {
    std::string name;
    Value before, after;
  };

  const Description &model;
  ProgramKind kind;
  OpBuilder builder;
  FloatType element;
  Location loc;
  FunctionBuilder function;
  llvm::StringMap<Value> parameters;
  Value memory; // the encoder's output; null in a decoding step
  Value guided; // the probabilities of the attention `kind.guidedPath`
  std::map<std::string, KeysAndValues> given;
  llvm::StringMap<Value> states; // of recurrences, in a decoding step
  std::vector<Cache> caches;
  std::vector<std::pair<std::string, Value>> weights;
  int64_t dropouts = 0;
};

ModelAttr attributeOf(const Description &model, MLIRContext &context) {
  const bool floatTarget = model.decoder && model.decoder->floatInput;
  const TokenIds &tokens = model.tokens;
  return ModelAttr::get(&context, model.name, model.sourceVocab, model.targetVocab,
                        model.encoder.floatInput ? model.encoder.inputDim : 0,
                        floatTarget ? model.decoder->inputDim : 0, model.maxSourceLength, model.maxTargetLength,
                        model.decoder.has_value(), tokens.pad, tokens.unk, tokens.bos, tokens.eos, tokens.start,
                        tokens.sourceEos, model.canonical);
}

void declareParameters(const Description &model, ModuleOp module, FloatType element) {
  OpBuilder builder(module.getBodyRegion());
  for (const ParameterDescription &parameter : model.parameters) {
    const llvm::SmallVector<StringRef> aliases(parameter.aliases.begin(), parameter.aliases.end());
    ParameterOp::create(builder, NameLoc::get(builder.getStringAttr(parameter.name)), parameter.name,
                        RankedTensorType::get(parameter.shape, element), *symbolizeInitializer(parameter.init),
                        parameter.fanIn, parameter.fanOut, builder.getStrArrayAttr(aliases));
  }
}

} // namespace

OwningOpRef<ModuleOp> importModel(const Description &model, const ImportOptions &options, MLIRContext &context) {
  context.loadDialect<XFCDialect, func::FuncDialect>();
  const std::string guidedPath = guidedAttention(model, options.guided);
  OpBuilder builder(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(NameLoc::get(builder.getStringAttr(model.name)));
  FloatType element = options.f64 ? FloatType(builder.getF64Type()) : FloatType(builder.getF32Type());
  module->getOperation()->setAttr(attr::model, attributeOf(model, context));
  declareParameters(model, *module, element);
  auto program = [&](ProgramKind kind) { return ProgramBuilder(model, *module, element, std::move(kind)); };

  bool hasAttention = false;
  auto found = [&](const step::Attention &, const Site &) { hasAttention = true; };
  visitSteps<step::Attention>(model.encoder, "", found);
  if (model.decoder)
    visitSteps<step::Attention>(*model.decoder, "", found);

  program({programs::forward}).buildWhole();
  if (hasAttention)
    program({.name = programs::forwardAttention, .allWeights = true}).buildWhole();
  if (model.decoder)
    program({.name = programs::score, .loss = true}).buildWhole();
  if (model.decoder && options.train)
    program({.name = programs::loss,
             .dropout = true,
             .loss = true,
             .distillation = options.distillation,
             .guided = options.guided,
             .guidedPath = guidedPath})
        .buildWhole();
  if (options.decode && canDecode(model)) {
    program({programs::encode}).buildEncode();
    program({programs::decodeStep}).buildDecodeStep();
    program({.name = programs::decodeCandidates, .candidates = true}).buildDecodeStep();
    if (model.generation.renormalize)
      program({.name = programs::decodeRenormalized, .candidates = true, .renormalize = true}).buildDecodeStep();
  }
  assert(succeeded(verify(*module)) && "a validated description imports into a valid module");
  return module;
}

} // namespace xfc
