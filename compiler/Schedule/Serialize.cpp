// Turns a scheduled module into the plan that the runtime reads.
#include "Analysis/ParameterLayout.h"
#include "Dialect/Values.h"
#include "Passes.h"
#include "plan/GenerationSettings.h"
#include "support/Json.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;

namespace xfc {
namespace {

// The place in model.json that an op comes from.
std::string locationOf(Operation *op) {
  std::string place;
  op->getLoc()->walk([&](Location location) {
    if (auto name = dyn_cast<NameLoc>(location))
      if (place.empty())
        place = name.getName().str();
    return WalkResult::advance();
  });
  return place;
}

// Reads the settings that the runtime needs from the description. This is a model.json in which every value is
// resolved; any other text has no settings. If it names no d_model, the width is `width`. Throws Error for settings
// that no model.json may have.
ModelSettings settingsIn(StringRef description, int64_t width) {
  ModelSettings settings{.width = std::max<int64_t>(width, 1), .generation = {}, .training = {}};
  const std::optional<nlohmann::json> json = jsonIn(std::string_view(description));
  if (!json || !json->is_object())
    return settings;
  if (json->contains("params") && json->at("params").contains("d_model"))
    settings.width = json->at("params").at("d_model");
  if (json->contains("generation"))
    settings.generation = generationIn(json->at("generation"));
  if (json->contains("training"))
    settings.training.labelSmoothing = json->at("training").value("label_smoothing", settings.training.labelSmoothing);
  return settings;
}

class Serializer {
public:
  explicit Serializer(ModuleOp source) : source(source), symbols(source) {}

  FailureOr<Module> run() {
    auto blocks = source.getOps<ParametersOp>();
    const ModelAttr model = modelOf(source);
    if (!model)
      return source.emitError() << "has no attribute '" << attr::model << "', which describes the model";
    if (blocks.empty())
      return source.emitError("is not scheduled: there is no layout of parameters");
    describe(model);
    addParameters(*blocks.begin());
    try {
      module.settings =
          settingsIn(model.getDescription(), module.parameters.empty() ? 1 : module.parameters[0].shape.back());
    } catch (const std::exception &error) { // nlohmann's or ours
      return emitError(source.getLoc(), "the description has settings that no model.json may have: ") << error.what();
    }
    addKernels();
    for (auto weight : source.getOps<PackedWeightOp>()) {
      auto kernel = symbols.lookup<PackKernelOp>(weight.getKernel());
      module.packed.push_back({kernels.lookup(weight.getKernelAttr().getAttr()),
                               {Place::Kind::Parameters, 0, static_cast<int64_t>(weight.getOffset())},
                               static_cast<int64_t>(kernel.getBytes()),
                               static_cast<int64_t>(kernel.getChunks())});
    }
    for (auto table : source.getOps<TableOp>())
      module.tables.push_back({static_cast<int64_t>(table.getRows()), static_cast<int64_t>(table.getDim()),
                               table.getBase().convertToDouble(), table.getExponentMultiplier().convertToDouble(),
                               table.getCosineOffset().convertToDouble(), table.getHalves()});
    for (auto program : source.getOps<ProgramOp>())
      if (failed(add(program)))
        return failure();
    return std::move(module);
  }

private:
  void describe(ModelAttr model) {
    module.model = model.getName();
    module.description = model.getDescription();
    llvm::SHA256 sha;
    sha.update(model.getDescription());
    for (uint8_t byte : sha.final()) {
      constexpr char digits[] = "0123456789abcdef";
      module.hash += digits[byte >> 4];
      module.hash += digits[byte & 15];
    }
    module.sourceVocab = model.getSourceVocab();
    module.targetVocab = model.getTargetVocab();
    module.dims[0] = model.getSourceDim();
    module.dims[1] = model.getTargetDim();
    module.maxLength = model.getMaxSourceLength();
    module.maxTargetLength = model.getMaxTargetLength();
    module.hasDecoder = model.getDecoder();
    module.pad = model.getPad();
    module.unk = model.getUnk();
    module.bos = model.getBos();
    module.eos = model.getEos();
    module.start = model.getStart();
    module.sourceEos = model.getSourceEos();
  }

  void addParameters(ParametersOp block) {
    module.type = *dtypeOf(block.getType());
    module.compute = computeOf(source);
    module.parameterElements = block.getElements();
    for (StringRef state : block.getStates().getAsValueRange<StringAttr>())
      module.states.push_back({state.str(), typeOf(state)});
    for (auto entry : block.getOps<OffsetOp>()) {
      auto parameter = symbols.lookup<ParameterOp>(entry.getName());
      numbers[entry.getName()] = static_cast<int64_t>(module.parameters.size());
      std::vector<std::string> aliases;
      for (auto alias : parameter.getAliases().getAsValueRange<StringAttr>())
        aliases.push_back(alias.str());
      module.parameters.push_back(
          {parameter.getName().str(), std::move(aliases), cast<RankedTensorType>(parameter.getType()).getShape().vec(),
           static_cast<int64_t>(entry.getOffset()), stringifyInitializer(parameter.getInit()).str(),
           static_cast<int64_t>(parameter.getFanIn()), static_cast<int64_t>(parameter.getFanOut())});
    }
    for (auto entry : block.getOps<StateOp>())
      addLayout(entry);
  }

  // The type of a state's numbers, in which all programs agree (verifyParameters).
  DType typeOf(StringRef state) {
    for (auto program : source.getOps<ProgramOp>())
      for (BlockArgument argument : program.getArguments())
        if (argumentOf(argument).role == state)
          return *dtypeOf(elementOf(argument.getType()));
    return module.type;
  }

  void addLayout(StateOp entry) {
    const auto state = llvm::find_if(
        module.states, [&](const OptimizerState &known) { return StringRef(known.name) == entry.getName(); });
    if (state == module.states.end()) // no program reads it
      return;
    state->likeParameters = false;
    state->elements = entry.getElements();
    for (auto part : entry.getOps<PartOp>())
      state->parts.push_back(
          {numbers.lookup(part.getName()), part.getShape().vec(), static_cast<int64_t>(part.getOffset())});
  }

  // Adds the kernels in the order of the module, and then the references between them, which need all indices.
  void addKernels() {
    auto add = [&](StringAttr name, const Partition &partition, int64_t scratch, int64_t threads) {
      kernels[name] = static_cast<int32_t>(module.kernels.size());
      module.kernels.push_back({name.str(), partition, scratch, threads});
    };
    for (Operation &op : source.getOps())
      if (auto kernel = dyn_cast<KernelOp>(op))
        add(kernel.getSymNameAttr(), kernel.getPartition() ? kernel.getPartition()->getPartition() : Partition(),
            kernel.getScratch(), kernel.getThreads());
      else if (auto pack = dyn_cast<PackKernelOp>(op))
        add(pack.getSymNameAttr(), {Partition::Unit::One, 1, static_cast<int64_t>(pack.getChunks())}, pack.getScratch(),
            pack.getThreads());
    for (auto kernel : source.getOps<KernelOp>()) {
      Kernel &entry = module.kernels[kernels.lookup(kernel.getSymNameAttr())];
      if (FlatSymbolRefAttr small = kernel.getSmallAttr()) {
        entry.small = kernels.lookup(small.getAttr());
        entry.smallRows = kernel.getSmallRows();
      }
      if (FlatSymbolRefAttr reduction = kernel.getReductionAttr())
        entry.reduction = kernels.lookup(reduction.getAttr());
      entry.resident = kernel.getResident();
      if (ArrayAttr bodies = kernel.getBodiesAttr())
        for (auto body : bodies.getAsRange<FlatSymbolRefAttr>())
          entry.bodies.push_back(kernels.lookup(body.getAttr()));
    }
  }

  LogicalResult add(ProgramOp source) {
    if (failed(verifyValues(source)))
      return failure();
    Program program;
    program.name = source.getName().str();
    program.rowByRow = source.getRowByRow();
    if (FlatSymbolRefAttr persistent = source.getPersistentAttr())
      program.persistent = kernels.lookup(persistent.getAttr());
    addArguments(source, program);
    for (auto buffer : source.getOps<BufferOp>())
      program.buffers.push_back({buffer.getSize().getSize(), static_cast<int32_t>(buffer.getFirst()),
                                 static_cast<int32_t>(buffer.getLast())});
    for (auto launch : source.getOps<LaunchOp>()) {
      if (!launch.getPlaces())
        return launch.emitOpError("is not scheduled: it has no places");
      addStep(launch, program);
    }
    if (failed(addOutputs(source, program)))
      return failure();
    module.programs.push_back(std::move(program));
    return success();
  }

  // Adds the arguments that the runtime binds, which excludes parameters, gradients and the optimizer's states.
  void addArguments(ProgramOp source, Program &program) const {
    const std::pair<StringRef, Argument::Role> roles[] = {{attr::input, Argument::Role::Input},
                                                          {attr::scalar, Argument::Role::Scalar},
                                                          {attr::state, Argument::Role::State}};
    for (BlockArgument value : source.getArguments()) {
      const NamedArgument named = argumentOf(value);
      if (named.role == attr::parameter || named.role == attr::gradient ||
          module.findState(std::string_view(named.role)))
        continue;
      Argument argument;
      argument.name = named.name.str();
      argument.role = Argument::Role::State;
      for (auto [name, role] : roles)
        if (name == named.role)
          argument.role = role;
      if (auto rows = dyn_cast<RowsType>(value.getType())) {
        argument.set = static_cast<int8_t>(rows.getSet());
        argument.shape = rows.getShape().vec();
        argument.type = *dtypeOf(rows.getElementType());
      } else {
        auto tensor = cast<RankedTensorType>(value.getType());
        argument.shape = tensor.getShape().vec();
        argument.type = *dtypeOf(tensor.getElementType());
      }
      program.arguments.push_back(std::move(argument));
    }
  }

  void addStep(LaunchOp launch, Program &program) {
    Step step;
    step.kernel = kernels.lookup(launch.getKernelAttr().getAttr());
    const DomainAttr domain = launch.getDomain();
    step.set = static_cast<int8_t>(domain.getRows());
    step.keySet = static_cast<int8_t>(domain.getKeys());
    step.keys = static_cast<int16_t>(domain.getStructure());
    for (auto place : launch.getPlacesAttr().getAsRange<PlaceAttr>()) {
      step.buffers.push_back(place.getPlace());
      step.strides.push_back(place.getStride());
    }
    addResults(launch, step);
    step.dropout = static_cast<int64_t>(launch.getDropout().value_or(0));
    step.elements = launch.getElements();
    if (auto tensors = launch.getTensorsAttr())
      for (auto tensor : tensors.getAsRange<TensorAttr>())
        step.tensors.push_back({tensor.getFirst(), tensor.getRows(), tensor.getColumns(), tensor.getPer(),
                                tensor.getParts(), tensor.getMatrix(), tensor.getGroup()});
    if (auto repacked = launch.getRepackedAttr())
      for (auto weight : repacked.getAsRange<RepackedAttr>())
        step.repacked.push_back({weight.getFirst(), weight.getRows(), weight.getColumns()});
    step.flops = launch.getFlops().getSize();
    step.traffic = launch.getTraffic().getSize();
    step.location = locationOf(launch);
    if (program.persistent >= 0)
      describeForPersistent(launch, step);
    program.steps.push_back(std::move(step));
  }

  // Adds what the table of a persistent kernel says of a step.
  void describeForPersistent(LaunchOp launch, Step &step) {
    if (std::optional<ArrayRef<int32_t>> after = launch.getAfter())
      step.after = after->vec();
    auto kernel = symbols.lookup<KernelOp>(launch.getKernel());
    auto product = kernel ? dyn_cast<ProductOpInterface>(kernel.getOp()) : nullptr;
    const std::optional<unsigned> weight = product ? product.getWeightOperand() : std::nullopt;
    if (!weight)
      return;
    const Place &place = step.buffers[*weight];
    auto type = dyn_cast<RankedTensorType>(launch.getInputs()[*weight].getType());
    if (place.kind == Place::Kind::Packed)
      step.weightBytes = module.packed[place.index].bytes;
    else if (place.kind == Place::Kind::Parameters && type && type.hasStaticShape())
      step.weightBytes = type.getNumElements() * elementBytes(type);
    if (step.weightBytes > 0)
      step.weight = static_cast<int32_t>(*weight);
  }

  // Describes the results that hold floating-point numbers, whose places follow those of the operands.
  static void addResults(LaunchOp launch, Step &step) {
    for (OpResult value : launch.getOutputs()) {
      LaunchResult result;
      result.buffer = static_cast<int32_t>(launch.getInputs().size() + value.getResultNumber());
      Type element;
      if (auto rows = dyn_cast<RowsType>(value.getType())) {
        result.set = static_cast<int8_t>(rows.getSet());
        result.width = rows.getFeatures();
        element = rows.getElementType();
      } else if (auto pairs = dyn_cast<PairsType>(value.getType())) {
        result.keys = static_cast<int16_t>(pairs.getStructure());
        result.width = pairs.getHeads();
        element = pairs.getElementType();
      } else if (auto tensor = dyn_cast<RankedTensorType>(value.getType()); tensor && tensor.hasStaticShape()) {
        result.width = tensor.getNumElements();
        element = tensor.getElementType();
      }
      const auto place = static_cast<size_t>(result.buffer);
      if (!element || !element.isFloat() || step.buffers[place].kind == Place::Kind::None)
        continue;
      result.type = *dtypeOf(element);
      step.results.push_back(result);
    }
  }

  static LogicalResult addOutputs(ProgramOp source, Program &program) {
    auto last = cast<ReturnOp>(source.getBody().front().getTerminator());
    if (!last.getPlaces())
      return last.emitOpError("is not scheduled: it has no places");
    for (auto [i, value] : llvm::enumerate(last.getOperands())) {
      if (source.getResultAttr(i, attr::alias))
        continue;
      auto name = source.getResultAttrOfType<StringAttr>(i, attr::name);
      auto place = cast<PlaceAttr>((*last.getPlaces())[i]);
      Output output;
      output.name = name ? name.str() : "result" + std::to_string(i);
      output.place = place.getPlace();
      output.stride = place.getStride();
      if (auto rows = dyn_cast<RowsType>(value.getType())) {
        output.set = static_cast<int8_t>(rows.getSet());
        output.shape = rows.getShape().vec();
        output.type = *dtypeOf(rows.getElementType());
      } else if (auto pairs = dyn_cast<PairsType>(value.getType())) {
        output.keys = static_cast<int16_t>(pairs.getStructure());
        output.shape = {pairs.getHeads()};
        output.type = *dtypeOf(pairs.getElementType());
      } else {
        auto tensor = cast<RankedTensorType>(value.getType());
        output.shape = tensor.getShape().vec();
        output.type = *dtypeOf(tensor.getElementType());
      }
      program.outputs.push_back(std::move(output));
    }
    return success();
  }

  ModuleOp source;
  SymbolTable symbols;
  Module module;
  llvm::StringMap<int64_t> numbers; // of the parameters, in the order of the block
  llvm::DenseMap<StringAttr, int32_t> kernels;
};

} // namespace

FailureOr<Module> serialize(ModuleOp module) { return Serializer(module).run(); }

} // namespace xfc
