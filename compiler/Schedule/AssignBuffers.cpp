// Assigns a place to every value of every program.
#include "Analysis/BufferAssignment.h"
#include "Analysis/ParameterLayout.h"
#include "Dialect/Values.h"
#include "Passes.h"
#include "plan/Optimizers.h"
#include "plan/Programs.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_ASSIGNBUFFERS
#include "Schedule/Passes.h.inc"

namespace {

int64_t strideOf(Type type) {
  auto rows = dyn_cast<RowsType>(type);
  return rows ? rows.getFeatures() : 0;
}

struct AssignBuffers : impl::AssignBuffersBase<AssignBuffers> {
  AssignBuffers() = default;
  explicit AssignBuffers(const Target &target) : target(&target) {}

  void runOnOperation() override {
    offsets.clear();
    kernels.clear();
    if (failed(readParameters()))
      return signalPassFailure();
    for (auto kernel : getOperation().getOps<KernelOp>())
      kernels[kernel.getSymNameAttr()] = kernel;
    for (auto program : getOperation().getOps<ProgramOp>())
      if (failed(assign(program)))
        return signalPassFailure();
  }

private:
  // Records each parameter's offset under its name and under its aliases.
  LogicalResult readParameters() {
    auto layouts = getOperation().getOps<ParametersOp>();
    if (!llvm::hasSingleElement(layouts))
      return getOperation().emitError("expected one layout of parameters; run xfc-lay-out-parameters first");
    ParametersOp block = *layouts.begin();
    type = block.getType();
    elementBytes = bytesOf(*dtypeOf(type));
    stateTypes.clear();
    blocks = {{attr::parameter, {Place::Kind::Parameters, 0, 0}}, {attr::gradient, {Place::Kind::Gradients, 0, 0}}};
    for (auto [i, state] : llvm::enumerate(block.getStates().getAsValueRange<StringAttr>()))
      blocks[state] = {Place::Kind::State, static_cast<int64_t>(i), 0};
    stateOffsets.clear();
    for (auto state : block.getOps<StateOp>()) {
      llvm::StringMap<int64_t> &own = stateOffsets[state.getName()];
      for (auto part : state.getOps<PartOp>())
        own[part.getName()] = static_cast<int64_t>(part.getOffset()) * elementBytes;
    }
    SymbolTable symbols(getOperation());
    for (auto parameter : block.getOps<OffsetOp>()) {
      const int64_t offset = static_cast<int64_t>(parameter.getOffset()) * elementBytes;
      offsets[parameter.getName()] = offset;
      for (StringAttr alias : symbols.lookup<ParameterOp>(parameter.getName()).getAliases().getAsRange<StringAttr>())
        offsets[alias.getValue()] = offset;
    }
    return success();
  }

  FailureOr<Place> placeIn(StringRef role, StringRef parameter, Operation *program) {
    const Place &block = blocks.at(role);
    const auto own = stateOffsets.find(role);
    const llvm::StringMap<int64_t> &known = own == stateOffsets.end() ? offsets : own->second;
    const auto found = known.find(parameter);
    if (found == known.end())
      return program->emitOpError() << (own == stateOffsets.end() ? "the model" : "plan.state \"" + role + "\"")
                                    << " has no parameter '" << parameter << "'";
    return Place{block.kind, block.index, found->second};
  }

  // Null for a launch that packs a weight.
  KernelOp kernelOf(LaunchOp launch) { return kernels.lookup(launch.getKernelAttr().getAttr()); }

  // Whether a result is only kept for later runs, in whatever type it has: it replaces an argument, or was made for
  // that.
  bool isKept(ProgramOp program, unsigned result, Value value) {
    auto launch = value.getDefiningOp<LaunchOp>();
    KernelOp kernel = launch ? kernelOf(launch) : nullptr;
    return program.getResultAttr(result, attr::alias) || (kernel && isa<QuantizeOp>(kernel.getOp()));
  }

  // The type of a state's numbers is that of the arguments that lie in it.
  LogicalResult verifyType(ProgramOp program, const NamedArgument &named, Type argument, Place::Kind kind) {
    Type expected = type;
    if (kind == Place::Kind::State && mayBeNarrow(std::string_view(named.role)))
      expected = stateTypes.try_emplace(named.role, elementOf(argument)).first->second;
    if (elementOf(argument) == expected && computedType(expected) == type)
      return success();
    return program.emitOpError() << "has the " << named.role << " '" << named.name << "' as " << argument << ", but "
                                 << (expected == type ? "plan.parameters has numbers of " : "other numbers of it are ")
                                 << expected;
  }

  LogicalResult assign(ProgramOp program) {
    if (!program.getOps<BufferOp>().empty())
      return program.emitOpError("already has buffers");
    for (auto launch : program.getOps<LaunchOp>())
      if (KernelOp kernel = kernelOf(launch); kernel && !kernel.getPartition())
        return launch.emitOpError("its kernel has no code; run xfc-generate-kernels first");
    if (failed(verifyValues(program)))
      return failure();
    Operation *end = program.getBody().front().getTerminator();
    for (auto [i, value] : llvm::enumerate(end->getOperands()))
      if (computedType(elementOf(value.getType())) != elementOf(value.getType()) &&
          !isKept(program, static_cast<unsigned>(i), value))
        return end->emitOpError("operand ")
               << i << " is read outside of the program and must be f32, found " << value.getType();

    BufferAssignment assignment(program.getBody().front());
    assignment.inPlace = [&](OpResult result) {
      auto launch = dyn_cast<LaunchOp>(result.getOwner());
      KernelOp kernel = launch ? kernelOf(launch) : nullptr;
      return kernel ? inPlaceOf(kernel.getOp()->getResult(result.getResultNumber())) : InPlaceOperand();
    };
    if (target)
      assignment.strideOf = [&](RowsType rows) { return target->strideOf(rows); };
    assignment.workspace = [&](Operation *op) -> std::optional<Size> {
      auto launch = dyn_cast<LaunchOp>(op);
      KernelOp kernel = launch ? kernelOf(launch) : nullptr;
      const int64_t bytes = kernel ? kernel.getChunkBytes() : 0;
      if (!bytes)
        return std::nullopt;
      Size size;
      size.chunks[static_cast<int>(launch.getDomain().getRows())] = bytes;
      return size;
    };
    if (failed(bindArguments(program, assignment)) || failed(bindResults(program, assignment)))
      return failure();
    for (auto table : program.getOps<SinusoidOp>())
      assignment.bind(table.getResult(), {tableFor(table), 0});
    if (failed(assignment.run()))
      return failure();
    for (auto launch : program.getOps<LaunchOp>())
      if (failed(place(launch, assignment)))
        return failure();
    auto last = cast<ReturnOp>(program.getBody().front().getTerminator());
    FailureOr<SmallVector<Attribute>> places = placesOf(last, last.getOperands(), assignment);
    if (failed(places))
      return failure();
    Builder attributes(&getContext());
    last.setPlacesAttr(attributes.getArrayAttr(*places));
    program.setRowByRow(isRowByRow(program, assignment));
    addBuffers(program, assignment);
    return success();
  }

  LogicalResult bindArguments(ProgramOp program, BufferAssignment &assignment) {
    int64_t others = 0;
    llvm::StringSet<> seen;
    for (BlockArgument argument : program.getArguments()) {
      const NamedArgument named = argumentOf(argument);
      FailureOr<Place> place = Place();
      const auto block = blocks.find(named.role);
      if (block != blocks.end())
        place = placeIn(named.role, named.name, program);
      else if (llvm::is_contained(optimizerStates(), std::string_view(named.role)))
        return program.emitOpError() << "has the " << named.role << " '" << named.name
                                     << "', but plan.parameters has no such state";
      else
        place = Place{Place::Kind::Argument, others++, 0};
      if (failed(place))
        return failure();
      if (block != blocks.end() && failed(verifyType(program, named, argument.getType(), place->kind)))
        return failure();
      if (place->kind == Place::Kind::State)
        place->offset = place->offset / elementBytes * xfc::elementBytes(argument.getType());
      if (place->kind != Place::Kind::Argument && !seen.insert((named.role + " " + named.name).str()).second)
        return program.emitOpError() << "has the " << named.role << " '" << named.name << "' as two arguments";
      assignment.bind(argument, {*place, strideOf(argument.getType())});
    }
    return success();
  }

  // Gradients are written where the optimizer reads them; the gradient of a merged weight covers those of its parts. A
  // result that replaces an argument overwrites it.
  LogicalResult bindResults(ProgramOp program, BufferAssignment &assignment) {
    Operation *last = program.getBody().front().getTerminator();
    for (auto [i, value] : llvm::enumerate(last->getOperands())) {
      auto name = program.getResultAttrOfType<StringAttr>(i, attr::name);
      StringRef parameter = name ? name.getValue() : "";
      if (parameter.consume_front(names::gradientOf)) {
        FailureOr<Place> place = placeIn(attr::gradient, parameter, program);
        if (failed(place))
          return failure();
        Value written = value;
        if (auto view = value.getDefiningOp<ViewOpInterface>(); view && !view.makesWhole()) {
          place->offset -= view.getPartOffset(cast<OpResult>(value).getResultNumber()) * elementBytes;
          written = view.getWhole();
        }
        if (failed(assignment.write(written, {*place, 0})))
          return failure();
      }
      if (auto argument = program.getResultAttrOfType<IntegerAttr>(i, attr::alias))
        if (failed(assignment.write(value, assignment.placement(program.getArgument(argument.getInt())))))
          return failure();
    }
    return success();
  }

  // Equal tables are shared.
  Place tableFor(SinusoidOp op) {
    auto tables = llvm::to_vector(getOperation().getOps<TableOp>());
    const int64_t rows = op.getType().getDimSize(0), dim = op.getType().getDimSize(1);
    for (TableOp table : tables)
      if (static_cast<int64_t>(table.getRows()) == rows && static_cast<int64_t>(table.getDim()) == dim &&
          table.getBase() == op.getBase() && table.getExponentMultiplier() == op.getExponentMultiplier() &&
          table.getCosineOffset() == op.getCosineOffset() && table.getHalves() == op.getHalves())
        return {Place::Kind::Table, static_cast<int64_t>(table.getIndex()), 0};
    OpBuilder builder(*getOperation().getOps<ProgramOp>().begin());
    TableOp::create(builder, op.getLoc(), tables.size(), rows, dim, op.getBase(), op.getExponentMultiplier(),
                    op.getCosineOffset(), op.getHalves());
    return {Place::Kind::Table, static_cast<int64_t>(tables.size()), 0};
  }

  FailureOr<SmallVector<Attribute>> placesOf(Operation *op, ValueRange values, const BufferAssignment &assignment) {
    SmallVector<Attribute> places;
    for (auto [i, value] : llvm::enumerate(values)) {
      const Placement placement = assignment.placement(value);
      if (placement.place.kind == Place::Kind::None)
        return op->emitOpError("operand ") << i << " has no place";
      places.push_back(PlaceAttr::get(&getContext(), placement.place, placement.stride));
    }
    return places;
  }

  LogicalResult place(LaunchOp launch, const BufferAssignment &assignment) {
    FailureOr<SmallVector<Attribute>> places = placesOf(launch, launch.getInputs(), assignment);
    if (failed(places))
      return failure();
    for (Value result : launch.getOutputs()) {
      const Placement placement = assignment.placement(result); // no place if nothing reads it
      places->push_back(PlaceAttr::get(&getContext(), placement.place, placement.stride));
    }
    if (const Place workspace = assignment.workspaceOf(launch); workspace.kind != Place::Kind::None)
      places->push_back(PlaceAttr::get(&getContext(), workspace, 0));
    launch.setPlacesAttr(ArrayAttr::get(&getContext(), *places));

    KernelOp kernel = kernelOf(launch);
    if (!kernel)
      return success();
    OperandRange walked = cast<KernelOpInterface>(kernel.getOp()).getSpan();
    if (walked.empty())
      return success();
    const unsigned first = walked.getBeginOperandIndex();
    auto offset = [&](unsigned operand) { return cast<PlaceAttr>((*places)[operand]).getOffset() / elementBytes; };
    // Launches with tensors of different sizes share the kernel, so the sizes come from the launch.
    auto sizeOf = [&](unsigned i) {
      return cast<RankedTensorType>(launch.getInputs()[first + i].getType()).getNumElements();
    };
    for (unsigned i = 0; i + 1 < walked.size(); ++i)
      if (offset(first + i) + sizeOf(i) > offset(first + i + 1))
        return launch.emitOpError("walks through its operands ")
               << first << " to " << first + walked.size() - 1 << ", but operand " << first + i + 1
               << " is not placed after the one before it";
    const auto count = static_cast<unsigned>(walked.size());
    launch.setElements(offset(first + count - 1) - offset(first) + sizeOf(count - 1));
    return success();
  }

  // Whether a thread may take its own rows through all launches: every kernel is partitioned by target rows or
  // sequences, has no reduction and reads no other target rows as keys, and the buffers are sized by target rows alone.
  bool isRowByRow(ProgramOp program, const BufferAssignment &assignment) {
    for (auto launch : program.getOps<LaunchOp>()) {
      KernelOp kernel = kernelOf(launch);
      if (!kernel)
        return false;
      const Partition::Unit unit = kernel.getPartition()->getUnit();
      const DomainAttr domain = launch.getDomain();
      if (domain.getRows() != RowSet::target || kernel.getReduction() ||
          (unit != Partition::Unit::Rows && unit != Partition::Unit::Sequences) ||
          (domain.hasKeys() && domain.getKeys() == RowSet::target))
        return false;
    }
    return llvm::all_of(assignment.buffers(), [&](const Buffer &buffer) {
      Size rows;
      rows.rows[XFC_TARGET] = buffer.size.rows[XFC_TARGET];
      return SizeAttr::get(&getContext(), rows) == SizeAttr::get(&getContext(), buffer.size);
    });
  }

  void addBuffers(ProgramOp program, const BufferAssignment &assignment) {
    OpBuilder builder = OpBuilder::atBlockBegin(&program.getBody().front());
    for (auto [i, buffer] : llvm::enumerate(assignment.buffers())) {
      BufferOp::create(builder, program.getLoc(), i, SizeAttr::get(&getContext(), buffer.size), buffer.first,
                       buffer.last);
      ++buffers;
    }
  }

  const Target *target = nullptr;   // none: rows are dense
  Type type;                        // of the elements of blocks
  int64_t elementBytes = 0;         // of one of them
  llvm::StringMap<Place> blocks;    // of parameters, gradients and states, by the role of their arguments
  llvm::StringMap<Type> stateTypes; // of the numbers of states that may be narrow
  llvm::StringMap<int64_t> offsets; // in bytes, in blocks with the layout of the parameters
  llvm::StringMap<llvm::StringMap<int64_t>> stateOffsets; // in those of other states
  llvm::DenseMap<StringAttr, KernelOp> kernels;
};

} // namespace

std::unique_ptr<Pass> createAssignBuffers(const Target &target) { return std::make_unique<AssignBuffers>(target); }

} // namespace xfc
