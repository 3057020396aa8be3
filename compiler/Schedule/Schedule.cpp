// A fused module into a plan: parameters laid out, kernels shared, values placed, lives computed.
#include "Schedule.h"
#include "Dialect/XFC.h"
#include "Kernels.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "support/Error.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

using namespace mlir;

namespace xfc {
namespace {

constexpr int64_t alignment = 64;

DType typeOf(Type type) { return type.isInteger(32) ? DType::I32 : type.isF64() ? DType::F64 : DType::F32; }

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

std::string textOf(func::FuncOp function, unsigned argument, llvm::StringRef attribute) {
  auto text = function.getArgAttrOfType<StringAttr>(argument, attribute);
  return text ? text.str() : std::string();
}

[[noreturn]] void fail(Operation *op, const std::string &what) {
  std::string text;
  llvm::raw_string_ostream(text) << "schedule: " << op->getName() << " at " << op->getLoc() << ": " << what;
  throw Error(text);
}

//===--------------------------------------------------------------------------------------------------------===//
// The module: parameters, kernels, packed weights, tables
//===--------------------------------------------------------------------------------------------------------===//

class Scheduler {
public:
  Scheduler(ModuleOp source, Backend &backend) : source(source), backend(backend) {}

  Module run() {
    describe();
    layOutParameters();
    for (auto function : source.getOps<func::FuncOp>())
      module.programs.push_back(scheduleProgram(function));
    return std::move(module);
  }

  int64_t elementSize() const { return bytesOf(module.type); }
  int64_t offsetOf(llvm::StringRef parameter, Operation *op) const {
    auto found = offsets.find(parameter);
    if (found == offsets.end())
      fail(op, "the model has no parameter '" + parameter.str() + "'");
    return found->second * elementSize();
  }

  int32_t kernelFor(Operation *op);
  int64_t chunkBytes(int32_t kernel) const { return kernelChunkBytes.lookup(kernel); }
  const Kernel &kernel(int32_t index) const { return module.kernels[index]; }
  Place packedFor(Operation *op, unsigned operand, Backend::Packing packing, Place weight);
  Place tableFor(SinusoidOp op);
  // A weight of the training step that is read in packed form, and its packed copies.
  struct PackedWeight {
    int64_t offset, rows, columns; // bytes into the block of parameters; elements
    Place copies[2];               // of W and of W^T, where they are read
  };
  // Those packed in a compute type, in the order of the block. None reaches into another: of such, only the first is
  // there.
  std::vector<PackedWeight> packedWeights(std::optional<ComputeType> compute) const;
  int64_t packedBytes(const Place &copy) const {
    return copy.kind == Place::Kind::Packed ? module.packed[copy.index].bytes : 0;
  }
  std::optional<Backend::Packing> packs(Operation *op, unsigned operand) const { return backend.packs(op, operand); }

private:
  void describe();
  void layOutParameters();
  Program scheduleProgram(func::FuncOp function);
  std::string unique(std::string name) {
    int &count = names[name];
    return ++count == 1 ? name : name + "_" + std::to_string(count);
  }

  ModuleOp source;
  Backend &backend;
  Module module;
  llvm::StringMap<int64_t> offsets; // elements
  llvm::StringMap<int> names;
  std::map<std::string, int32_t> kernels;
  llvm::DenseMap<int32_t, int64_t> kernelChunkBytes; // of kernels with one that merges
  int32_t add(const std::string &name, const Backend::KernelInfo &info) {
    module.kernels.push_back({name, info.partition, info.scratch, info.threads});
    return static_cast<int32_t>(module.kernels.size()) - 1;
  }
  std::map<std::pair<int64_t, std::string>, int32_t> packed; // by offset and pack kernel
  std::vector<std::pair<RankedTensorType, Backend::Packing>>
      packings; // of module.packed: the weight, and how it is packed
};

void Scheduler::describe() {
  const ModelAttr model = modelOf(source);
  if (!model)
    fail(source, "has no attribute '" + attr::model.str() + "'");
  module.model = model.getName();
  module.description = model.getDescription();
  llvm::SHA256 sha;
  sha.update(model.getDescription());
  for (uint8_t byte : sha.final()) {
    constexpr char digits[] = "0123456789abcdef";
    module.hash += digits[byte >> 4];
    module.hash += digits[byte & 15];
  }
  module.type = DType::F32;
  source.walk([&](func::FuncOp function) {
    for (Type type : function.getArgumentTypes()) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      auto rows = dyn_cast<RowsType>(type); // a model without parameters has nothing else
      if ((tensor && tensor.getElementType().isF64()) || (rows && rows.getElementType().isF64()))
        module.type = DType::F64;
    }
  });
  module.sourceVocab = model.getSourceVocab();
  module.targetVocab = model.getTargetVocab();
  module.sourceDim = model.getSourceDim();
  module.targetDim = model.getTargetDim();
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

// Parameters that some program reads as one (xfc.concat) lie behind each other without gaps; everything else
// starts on a line of the cache.
void Scheduler::layOutParameters() {
  llvm::StringMap<std::vector<std::string>> groups;
  source.walk([&](ConcatOp concat) {
    std::vector<std::string> members;
    auto function = concat->getParentOfType<func::FuncOp>();
    for (Value part : concat.getParts()) {
      auto argument = dyn_cast<BlockArgument>(part);
      std::string name = argument ? textOf(function, argument.getArgNumber(), attr::name) : "";
      if (name.empty())
        fail(concat, "only parameters can be concatenated");
      members.push_back(name);
    }
    auto [known, isNew] = groups.try_emplace(members.front(), members);
    if (!isNew && known->second != members)
      fail(concat, "'" + members.front() + "' begins two different groups of parameters");
  });

  llvm::StringMap<ParameterOp> byName;
  for (auto parameter : source.getOps<ParameterOp>())
    byName[parameter.getName()] = parameter;
  const int64_t line = alignment / elementSize();
  int64_t next = 0;
  auto place = [&](ParameterOp parameter) {
    const std::string name = parameter.getName().str();
    const auto type = cast<RankedTensorType>(parameter.getType());
    if (!offsets.try_emplace(name, next).second)
      fail(parameter, "'" + name + "' belongs to two groups");
    std::vector<std::string> aliases;
    for (auto alias : parameter.getAliases().getAsValueRange<StringAttr>())
      aliases.push_back(alias.str());
    module.parameters.push_back(
        {name, std::move(aliases), type.getShape().vec(), next, stringifyInitializer(parameter.getInit()).str(),
         static_cast<int64_t>(parameter.getFanIn()), static_cast<int64_t>(parameter.getFanOut())});
    next += type.getNumElements();
  };
  for (auto parameter : source.getOps<ParameterOp>()) {
    const std::string name = parameter.getName().str();
    if (offsets.count(name))
      continue;
    if (auto group = groups.find(name); group != groups.end()) {
      for (const std::string &member : group->second)
        place(byName.at(member));
    } else if (llvm::any_of(groups, [&](auto &entry) { return llvm::is_contained(entry.second, name); })) {
      continue; // placed with its group, which begins later
    } else {
      place(parameter);
    }
    next = (next + line - 1) / line * line;
  }
  module.parameterElements = next;
}

int32_t Scheduler::kernelFor(Operation *op) {
  const std::string variant = backend.variant(op);
  auto [known, isNew] = kernels.try_emplace(kernelKey(op) + variant, static_cast<int32_t>(module.kernels.size()));
  if (isNew) {
    std::string name = unique(kernelName(op) + (variant.empty() ? "" : "_" + variant));
    Backend::KernelInfo info = backend.emit(op, name);
    add(name, info);
    if (info.chunkBytes) {
      kernelChunkBytes[known->second] = info.chunkBytes;
      const int32_t merge = add(name + "_merge", backend.emitMerge(op, name + "_merge"));
      module.kernels[known->second].merge = merge;
    }
  }
  // Others have rows enough, as a rule: a kernel more is worth its code where a step's time is that of its longest
  // block.
  if (const int32_t wide = known->second; isDecodingStep(op) && module.kernels[wide].few < 0) {
    const std::string name = module.kernels[wide].name + "_few_rows";
    if (std::optional<Backend::FewRowsInfo> few = backend.emitForFewRows(op, name)) {
      const int32_t number = add(name, few->kernel);
      module.kernels[wide].few = number;
      module.kernels[wide].fewRows = few->rows;
    }
  }
  return known->second;
}

Place Scheduler::packedFor(Operation *op, unsigned operand, Backend::Packing packing, Place weight) {
  auto type = cast<RankedTensorType>(op->getOperand(operand).getType());
  if (weight.kind != Place::Kind::Parameters)
    fail(op, "its weight is no parameter");
  std::string name = packing.transposed ? "pack_transposed_" : packing.blocks ? "pack_blocks_" : "pack_";
  if (packing.compute)
    name += stringifyComputeType(*packing.compute).str() + "_";
  name += std::to_string(type.getDimSize(0)) + "x" + std::to_string(type.getDimSize(1));
  auto [known, isNew] = packed.try_emplace({weight.offset, name}, static_cast<int32_t>(module.packed.size()));
  if (isNew) {
    packings.push_back({type, packing});
    // One kernel for all weights of a shape.
    auto [kernel, isNewKernel] = kernels.try_emplace(name, static_cast<int32_t>(module.kernels.size()));
    Backend::PackInfo info;
    if (isNewKernel) {
      info = backend.emitPack(type, packing, name);
      module.kernels.push_back({name, {Partition::Unit::One, 1, info.chunks}, info.scratch, info.threads});
      module.packed.push_back({kernel->second, weight, info.bytes, info.chunks});
    } else {
      auto twin = llvm::find_if(module.packed, [&](const Packed &p) { return p.kernel == kernel->second; });
      module.packed.push_back({kernel->second, weight, twin->bytes, twin->chunks});
    }
  }
  return {Place::Kind::Packed, known->second, 0};
}

std::vector<Scheduler::PackedWeight> Scheduler::packedWeights(std::optional<ComputeType> compute) const {
  std::map<int64_t, PackedWeight> byOffset;
  if (const Program *training = module.find("loss_and_gradients"))
    for (const Step &step : training->steps)
      for (const Place &place : step.buffers) {
        if (place.kind != Place::Kind::Packed || packings[place.index].second.compute != compute)
          continue;
        auto [type, packing] = packings[place.index];
        const int64_t offset = module.packed[place.index].source.offset, rows = type.getDimSize(0),
                      columns = type.getDimSize(1);
        PackedWeight &weight = byOffset.try_emplace(offset, PackedWeight{offset, rows, columns, {}}).first->second;
        if (weight.rows == rows && weight.columns == columns)
          weight.copies[packing.transposed] = place;
      }
  std::vector<PackedWeight> weights;
  int64_t end = 0;
  for (auto &[offset, weight] : byOffset)
    if (offset >= end) {
      end = offset + weight.rows * weight.columns * elementSize();
      weights.push_back(std::move(weight));
    }
  return weights;
}

Place Scheduler::tableFor(SinusoidOp op) {
  RankedTensorType type = op.getType();
  Table table{type.getDimSize(0),
              type.getDimSize(1),
              op.getBase().convertToDouble(),
              op.getExponentMultiplier().convertToDouble(),
              op.getCosineOffset().convertToDouble(),
              op.getHalves()};
  auto same = [&](const Table &other) {
    return other.rows == table.rows && other.dim == table.dim && other.base == table.base &&
           other.exponentMultiplier == table.exponentMultiplier && other.cosineOffset == table.cosineOffset &&
           other.halves == table.halves;
  };
  auto found = llvm::find_if(module.tables, same);
  int64_t index = found - module.tables.begin();
  if (found == module.tables.end())
    module.tables.push_back(table);
  return {Place::Kind::Table, index, 0};
}

//===--------------------------------------------------------------------------------------------------------===//
// One program
//===--------------------------------------------------------------------------------------------------------===//

bool isView(Operation *op) { return isa<SplitOp, JoinOp, ConcatOp, SliceOp, SinusoidOp>(op); }

int64_t featuresOf(Type type) {
  auto rows = dyn_cast<RowsType>(type);
  return rows ? rows.getFeatures() : 0;
}

class ProgramScheduler {
public:
  ProgramScheduler(Scheduler &scheduler, func::FuncOp function) : scheduler(scheduler), function(function) {}
  Program run();

private:
  // Where a value lives. stride in elements, 0 for tensors and pairs.
  struct Home {
    Place place;
    int64_t stride = 0;
  };
  void bindArguments();
  void bindGradients();
  void bindAliases();
  void number();
  int32_t lastUse(Value value) const;
  Home allocate(Value value, int32_t step);
  void placeResults(Operation *op, int32_t step);
  void placeView(Operation *op);
  void addStep(Operation *op);
  void addPacking(AdamOp adam, Step &step);
  void addOutputs();
  bool isRowByRow() const;
  void extend(const Home &home, int32_t step);

  Scheduler &scheduler;
  func::FuncOp function;
  Program program;
  llvm::DenseMap<Value, Home> homes;
  llvm::DenseMap<Operation *, int32_t> stepOf;
  // The values that share a buffer, to know when it is dead.
  std::vector<llvm::SmallVector<Value, 2>> tenants;
};

void ProgramScheduler::bindArguments() {
  for (BlockArgument argument : function.getArguments()) {
    unsigned i = argument.getArgNumber();
    std::string name = textOf(function, i, attr::name), role = textOf(function, i, attr::role);
    Home home;
    home.stride = featuresOf(argument.getType());
    if (role == attr::parameter) {
      home.place = {Place::Kind::Parameters, 0, scheduler.offsetOf(name, function)};
    } else if (role == attr::gradient) {
      home.place = {Place::Kind::Gradients, 0, scheduler.offsetOf(name, function)};
    } else if (role == attr::moment1) {
      home.place = {Place::Kind::Moments1, 0, scheduler.offsetOf(name, function)};
    } else if (role == attr::moment2) {
      home.place = {Place::Kind::Moments2, 0, scheduler.offsetOf(name, function)};
    } else {
      Argument description;
      description.name = name;
      description.role = role == attr::input    ? Argument::Role::Input
                         : role == attr::scalar ? Argument::Role::Scalar
                                                : Argument::Role::State;
      if (auto rows = dyn_cast<RowsType>(argument.getType())) {
        description.set = static_cast<int8_t>(rows.getSet());
        description.shape.assign(rows.getShape().begin(), rows.getShape().end());
        description.type = typeOf(rows.getElementType());
      } else {
        auto tensor = cast<RankedTensorType>(argument.getType());
        description.shape.assign(tensor.getShape().begin(), tensor.getShape().end());
        description.type = typeOf(tensor.getElementType());
      }
      home.place = {Place::Kind::Argument, static_cast<int64_t>(program.arguments.size()), 0};
      program.arguments.push_back(std::move(description));
    }
    homes[argument] = home;
  }
}

// Gradients are written where the optimizer reads them; a merged weight's gradient covers its parts.
void ProgramScheduler::bindGradients() {
  auto returned = cast<func::ReturnOp>(function.getBody().front().getTerminator());
  for (auto [i, value] : llvm::enumerate(returned.getOperands())) {
    auto name = function.getResultAttrOfType<StringAttr>(i, attr::name);
    if (!name || !name.getValue().starts_with("grad."))
      continue;
    Place place{Place::Kind::Gradients, 0, scheduler.offsetOf(name.getValue().drop_front(5), function)};
    Value written = value;
    if (auto slice = value.getDefiningOp<SliceOp>()) {
      int64_t row = slice.getType().getNumElements() / slice.getType().getDimSize(0);
      place.offset -= static_cast<int64_t>(slice.getOffset()) * row * scheduler.elementSize();
      written = slice.getX();
    }
    auto [home, isNew] = homes.try_emplace(written, Home{place, 0});
    if (!isNew && (home->second.place.kind != place.kind || home->second.place.offset != place.offset))
      fail(function, "'" + name.str() + "' shares its value with another result at another place");
  }
}

// A result that replaces an argument is written in its place.
void ProgramScheduler::bindAliases() {
  auto returned = cast<func::ReturnOp>(function.getBody().front().getTerminator());
  for (auto [i, value] : llvm::enumerate(returned.getOperands()))
    if (auto argument = function.getResultAttrOfType<IntegerAttr>(i, attr::alias))
      homes.try_emplace(value, homes.lookup(function.getArgument(argument.getInt())));
}

void ProgramScheduler::number() {
  int32_t next = 0;
  for (Operation &op : function.getBody().front()) {
    if (!isView(&op) && !isa<func::ReturnOp>(op))
      stepOf[&op] = next++;
    else if (isa<func::ReturnOp>(op))
      stepOf[&op] = next; // after the last step
  }
}

// The last step that reads the value, through views of it; -1 if none does.
int32_t ProgramScheduler::lastUse(Value value) const {
  int32_t last = -1;
  for (Operation *user : value.getUsers()) {
    if (isView(user)) {
      for (Value view : user->getResults())
        last = std::max(last, lastUse(view));
    } else {
      last = std::max(last, stepOf.lookup(user));
    }
  }
  return last;
}

ProgramScheduler::Home ProgramScheduler::allocate(Value value, int32_t step) {
  Home home{{Place::Kind::Arena, static_cast<int64_t>(program.buffers.size()), 0}, featuresOf(value.getType())};
  program.buffers.push_back({sizeOf(value.getType()), step, std::max(step, lastUse(value))});
  tenants.push_back({value});
  return home;
}

void ProgramScheduler::extend(const Home &home, int32_t step) {
  if (home.place.kind == Place::Kind::Arena) {
    Buffer &buffer = program.buffers[home.place.index];
    buffer.last = std::max(buffer.last, step);
    buffer.first = std::min(buffer.first, step);
  }
}

void ProgramScheduler::placeResults(Operation *op, int32_t step) {
  auto kernel = dyn_cast<KernelOpInterface>(op);
  if (!kernel)
    fail(op, "is neither a kernel nor a view");
  for (OpResult result : op->getResults()) {
    if (homes.count(result) || result.use_empty())
      continue;
    // A part of a join is written into its place there.
    JoinOp join;
    for (Operation *user : result.getUsers())
      if (auto candidate = dyn_cast<JoinOp>(user))
        join = candidate;
    if (join) {
      auto known = homes.find(join.getResult());
      Home whole = known != homes.end() ? known->second : (homes[join.getResult()] = allocate(join.getResult(), step));
      extend(whole, step);
      extend(whole, lastUse(result));
      int64_t offset = 0, element = bytesOf(typeOf(cast<RowsType>(result.getType()).getElementType()));
      for (Value part : join.getParts()) {
        if (part == result)
          homes[result] = {{whole.place.kind, whole.place.index, whole.place.offset + offset}, whole.stride};
        offset += featuresOf(part.getType()) * element;
      }
      continue;
    }
    int64_t operand = kernel.getInPlaceOperand(result.getResultNumber());
    if (operand >= 0) {
      Home home = homes.lookup(op->getOperand(operand));
      bool forced = isa<CacheWriteOp>(op);
      bool dead = home.place.kind == Place::Kind::Arena && home.place.offset == 0 &&
                  op->getOperand(operand).getType() == result.getType() &&
                  home.stride == featuresOf(result.getType()) &&
                  llvm::all_of(tenants[home.place.index], [&](Value tenant) { return lastUse(tenant) <= step; });
      if (forced || dead) {
        homes[result] = home;
        extend(home, lastUse(result));
        if (home.place.kind == Place::Kind::Arena)
          tenants[home.place.index].push_back(result);
        continue;
      }
    }
    homes[result] = allocate(result, step);
  }
}

void ProgramScheduler::placeView(Operation *op) {
  if (auto table = dyn_cast<SinusoidOp>(op)) {
    homes[table.getResult()] = {scheduler.tableFor(table), 0};
  } else if (auto concat = dyn_cast<ConcatOp>(op)) {
    homes[concat.getResult()] = homes.lookup(concat.getParts().front());
  } else if (auto slice = dyn_cast<SliceOp>(op)) {
    Home home = homes.lookup(slice.getX());
    int64_t row = slice.getType().getNumElements() / slice.getType().getDimSize(0);
    home.place.offset += static_cast<int64_t>(slice.getOffset()) * row * scheduler.elementSize();
    homes[slice.getResult()] = home;
  } else if (auto split = dyn_cast<SplitOp>(op)) {
    Home home = homes.lookup(split.getX());
    for (Value part : split.getResults()) {
      homes[part] = home;
      if (home.place.kind == Place::Kind::Arena)
        tenants[home.place.index].push_back(part);
      home.place.offset += featuresOf(part.getType()) * scheduler.elementSize();
    }
  } else if (auto join = dyn_cast<JoinOp>(op)) {
    for (Value part : join.getParts())
      if (!homes.count(part) || homes[part].place.index != homes[join.getResult()].place.index ||
          homes[part].place.kind != homes[join.getResult()].place.kind)
        fail(join, "a part does not lie in the whole");
  }
}

void ProgramScheduler::addStep(Operation *op) {
  int32_t number = stepOf.lookup(op);
  placeResults(op, number);
  Step step;
  step.kernel = scheduler.kernelFor(op);
  LaunchSets sets = launchSets(op);
  step.set = sets.set;
  step.keySet = sets.keySet;
  step.keys = sets.keys;
  for (OpOperand &operand : op->getOpOperands()) {
    auto known = homes.find(operand.get());
    if (known == homes.end())
      fail(op, "operand " + std::to_string(operand.getOperandNumber()) + " has no place");
    Home home = known->second;
    if (std::optional<Backend::Packing> packing = scheduler.packs(op, operand.getOperandNumber()))
      home.place = scheduler.packedFor(op, operand.getOperandNumber(), *packing, home.place);
    step.buffers.push_back(home.place);
    step.strides.push_back(home.stride);
  }
  for (Value result : op->getResults()) {
    Home home = homes.lookup(result); // none where nobody uses it
    step.buffers.push_back(home.place);
    step.strides.push_back(home.stride);
  }
  if (const int64_t bytes = scheduler.chunkBytes(step.kernel)) {
    Size size;
    size.chunks[step.set] = bytes;
    step.buffers.push_back({Place::Kind::Arena, static_cast<int64_t>(program.buffers.size()), 0});
    step.strides.push_back(0);
    program.buffers.push_back({size, number, number});
    tenants.emplace_back();
  }
  step.immediates = dropoutIds(op);
  if (isa<AdamOp, SquareSumOp, AddOp>(op)) {
    // The tensors of one segment lie behind each other; the kernel walks from the first to the end of the last.
    ValueRange tensors = op->getOperands();
    if (auto adam = dyn_cast<AdamOp>(op))
      tensors = adam.getParameters();
    if (auto first = dyn_cast<RankedTensorType>(tensors.front().getType())) {
      const Place begin = homes.lookup(tensors.front()).place, end = homes.lookup(tensors.back()).place;
      if (isa<AddOp>(op))
        step.elements = first.getNumElements();
      else
        step.elements = (end.offset - begin.offset) / scheduler.elementSize() +
                        cast<RankedTensorType>(tensors.back().getType()).getNumElements();
      step.immediates.push_back(step.elements);
    }
  }
  step.flops = flopsOf(op);
  step.traffic = trafficOf(op);
  if (auto adam = dyn_cast<AdamOp>(op); adam && adam->hasAttr("packs"))
    addPacking(adam, step);
  step.location = locationOf(op);
  program.steps.push_back(std::move(step));
}

// The packed copies that an adam writes (abi.h).
void ProgramScheduler::addPacking(AdamOp adam, Step &step) {
  const int64_t begin = homes.lookup(adam.getParameters().front()).place.offset, size = scheduler.elementSize();
  std::vector<Scheduler::PackedWeight> weights = scheduler.packedWeights(std::nullopt);
  llvm::erase_if(weights, [&](const Scheduler::PackedWeight &weight) {
    return weight.offset < begin || weight.offset + weight.rows * weight.columns * size > begin + step.elements * size;
  });
  step.immediates.push_back(static_cast<int64_t>(weights.size()));
  for (const Scheduler::PackedWeight &weight : weights) {
    step.immediates.insert(step.immediates.end(), {(weight.offset - begin) / size, weight.rows, weight.columns});
    for (const Place &copy : weight.copies) {
      step.buffers.push_back(copy);
      step.strides.push_back(0);
      step.traffic.constant += scheduler.packedBytes(copy);
    }
  }
}

void ProgramScheduler::addOutputs() {
  auto returned = cast<func::ReturnOp>(function.getBody().front().getTerminator());
  for (auto [i, value] : llvm::enumerate(returned.getOperands())) {
    if (function.getResultAttr(i, attr::alias))
      continue;
    auto name = function.getResultAttrOfType<StringAttr>(i, attr::name);
    Home home = homes.lookup(value);
    Output output;
    output.name = name ? name.str() : "result" + std::to_string(i);
    output.place = home.place;
    output.stride = home.stride;
    if (auto rows = dyn_cast<RowsType>(value.getType())) {
      output.set = static_cast<int8_t>(rows.getSet());
      output.shape.assign(rows.getShape().begin(), rows.getShape().end());
      output.type = typeOf(rows.getElementType());
    } else if (auto pairs = dyn_cast<PairsType>(value.getType())) {
      output.keys = static_cast<int16_t>(pairs.getStructure());
      output.shape = {pairs.getHeads()};
      output.type = typeOf(pairs.getElementType());
    } else {
      auto tensor = cast<RankedTensorType>(value.getType());
      output.shape.assign(tensor.getShape().begin(), tensor.getShape().end());
      output.type = typeOf(tensor.getElementType());
    }
    program.outputs.push_back(std::move(output));
  }
}

// Kernels that are cut by rows or sequences of the target, and read no other target rows as keys.
bool ProgramScheduler::isRowByRow() const {
  Counts one;
  for (llvm::MutableArrayRef<int64_t> counts :
       {llvm::MutableArrayRef(one.rows), llvm::MutableArrayRef(one.sequences), llvm::MutableArrayRef(one.pairs)})
    llvm::fill(counts, 1);
  return llvm::all_of(program.steps,
                      [&](const Step &step) {
                        const Partition::Unit unit = scheduler.kernel(step.kernel).partition.unit;
                        return step.set == XFC_TARGET && scheduler.kernel(step.kernel).merge < 0 &&
                               (unit == Partition::Unit::Rows || unit == Partition::Unit::Sequences) &&
                               (step.keys < 0 || step.keySet != XFC_TARGET);
                      }) &&
         llvm::all_of(program.buffers, [&](const Buffer &buffer) {
           Size rest = buffer.size;
           rest.rows[XFC_TARGET] = 0;
           return evaluate(rest, one) == 0;
         });
}

Program ProgramScheduler::run() {
  program.name = function.getName().str();
  number();
  bindArguments();
  bindGradients();
  bindAliases();
  for (Operation &op : function.getBody().front()) {
    if (isView(&op))
      placeView(&op);
    else if (!isa<func::ReturnOp>(op))
      addStep(&op);
  }
  addOutputs();
  if (isRowByRow()) {
    program.rowByRow = true;
    for (Buffer &buffer : program.buffers) {
      buffer.first = 0;
      buffer.last = static_cast<int32_t>(program.steps.size()) - 1;
    }
  }
  return std::move(program);
}

Program Scheduler::scheduleProgram(func::FuncOp function) { return ProgramScheduler(*this, function).run(); }

} // namespace

Module schedule(ModuleOp module, Backend &backend) { return Scheduler(module, backend).run(); }

} // namespace xfc
