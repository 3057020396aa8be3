// Decides which values of a program share memory, and for how long.
#include "BufferAssignment.h"
#include "Analysis/Kernels.h"
#include "Dialect/Values.h"
#include "ParameterLayout.h"
#include <limits>

using namespace mlir;

namespace xfc {

bool isView(Operation *op) { return isa<ViewOpInterface>(op); }

InPlaceOperand inPlaceOf(OpResult result) {
  auto kernel = dyn_cast<KernelOpInterface>(result.getOwner());
  if (!kernel)
    return {};
  return {kernel.getInPlaceOperand(result.getResultNumber()), kernel.isAlwaysInPlace()};
}

static bool isSamePlace(const Place &a, const Place &b) {
  return a.kind == b.kind && a.index == b.index && a.offset == b.offset;
}

// Whether values at these places take over from each other: a buffer of the arena is reused whole.
static bool isSameMemory(const Place &a, const Place &b) {
  return a.kind == Place::Kind::Arena ? a.kind == b.kind && a.index == b.index : isSamePlace(a, b);
}

// The place of a part of the view's whole, which is at `whole`.
static Placement partOf(Placement whole, ViewOpInterface view, unsigned part) {
  whole.place.offset += view.getPartOffset(part) * elementBytes(view.getWhole().getType());
  return whole;
}

BufferAssignment::BufferAssignment(Block &program) : program(program) {
  for (Operation &op : program)
    if (!isView(&op))
      stepOf[&op] = op.hasTrait<OpTrait::IsTerminator>() ? count : count++;
}

// Rows take their part of each row of a block, and the arena is reused buffer by buffer, so of these, every value has
// the whole block. Tensors have their bytes.
BufferAssignment::Range BufferAssignment::rangeOf(Value value, const Place &place) {
  if (place.kind == Place::Kind::Arena || !isa<RankedTensorType>(value.getType()))
    return {0, std::numeric_limits<int64_t>::max()};
  return {place.offset, place.offset + sizeOf(value.getType()).constant};
}

void BufferAssignment::settle(Value value, const Placement &placement) {
  placements[value] = placement;
  if (placement.place.kind == Place::Kind::None)
    return;
  const Range range = rangeOf(value, placement.place);
  PlacedValues &block = blocks[blockOf(placement.place)];
  block.byBegin.emplace(range.begin, PlacedValue{value, range});
  block.longest = std::max(block.longest, range.end - range.begin);
}

void BufferAssignment::bind(Value value, const Placement &placement) { settle(value, placement); }

LogicalResult BufferAssignment::write(Value value, const Placement &placement) {
  auto [known, isNew] = placements.try_emplace(value, placement);
  if (isNew)
    return success();
  if (isSamePlace(known->second.place, placement.place))
    return success();
  return emitError(value.getLoc()) << "this value would have to be written to two places";
}

Place BufferAssignment::workspaceOf(Operation *step) const {
  auto found = workspaces.find(step);
  return found == workspaces.end() ? Place() : Place{Place::Kind::Arena, found->second, 0};
}

// The last step that reads the value, directly or through views; -1 if none does.
int32_t BufferAssignment::lastUse(Value value) const {
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

int64_t BufferAssignment::strideIn(Type type) const {
  auto rows = dyn_cast<RowsType>(type);
  return rows ? strideOf(rows) : 0;
}

Placement BufferAssignment::allocate(Value value, int32_t step) {
  const Type type = value.getType();
  Placement placement{{Place::Kind::Arena, static_cast<int64_t>(all.size()), 0}, strideIn(type)};
  Size size = sizeOf(type);
  if (auto rows = dyn_cast<RowsType>(type))
    size.rows[static_cast<int>(rows.getSet())] = placement.stride * elementBytes(type);
  all.push_back({size, step, std::max(step, lastUse(value))});
  settle(value, placement);
  return placement;
}

void BufferAssignment::extend(const Placement &placement, int32_t step) {
  if (placement.place.kind != Place::Kind::Arena)
    return;
  Buffer &buffer = all[placement.place.index];
  buffer.first = std::min(buffer.first, step);
  buffer.last = std::max(buffer.last, step);
}

// Places a result where other values were before. None of them may be live any more, except that the step itself may
// read the operand that the result replaces in place.
LogicalResult BufferAssignment::overwrite(OpResult result, const Placement &placement) {
  Operation *op = result.getOwner();
  const int32_t step = stepOf.lookup(op);
  const InPlaceOperand own = inPlace(result);
  const Range range = rangeOf(result, placement.place);
  const bool takesOver =
      own.operand >= 0 && isSameMemory(this->placement(op->getOperand(own.operand)).place, placement.place);
  PlacedValues &block = blocks[blockOf(placement.place)];
  const auto end = block.byBegin.lower_bound(range.end);
  for (auto it = block.byBegin.lower_bound(range.begin - block.longest); it != end;) {
    const auto here = it++;
    const auto [other, taken] = here->second;
    if (!taken.overlaps(range))
      continue;
    const int32_t last = lastUse(other);
    if (last < step) { // so it is dead in all later steps too
      block.byBegin.erase(here);
      continue;
    }
    if (last == step && takesOver && taken == range)
      continue;
    InFlightDiagnostic error = op->emitOpError() << "result " << result.getResultNumber() << " overwrites ";
    if (NamedArgument argument = argumentOf(other); !argument.name.empty())
      error << "'" << argument.name << "'";
    else
      error << "a value";
    error << ", which is still live";
    for (Operation &reader : program)
      if (!isView(&reader) && stepOf.lookup(&reader) == last)
        error.attachNote(reader.getLoc()) << "by " << reader.getName();
    return error;
  }
  settle(result, placement);
  return success();
}

// Whether the result may reuse the buffer of `operand`: it takes up all of it, and no value there is read later.
bool BufferAssignment::isFree(Operation *step, OpResult result, Value operand) const {
  const Placement placement = this->placement(operand);
  auto shared = blocks.find(blockOf(placement.place));
  return placement.place.kind == Place::Kind::Arena && placement.place.offset == 0 &&
         operand.getType() == result.getType() && placement.stride == strideIn(result.getType()) &&
         llvm::all_of(shared->second.byBegin,
                      [&](const auto &other) { return lastUse(other.second.value) <= stepOf.lookup(step); });
}

LogicalResult BufferAssignment::placeResult(OpResult result, int32_t step) {
  if (result.use_empty())
    return success();
  if (auto known = placements.find(result); known != placements.end())
    return overwrite(result, Placement(known->second));
  Operation *op = result.getOwner();
  const InPlaceOperand own = inPlace(result);
  // A result that is a part of a join is written to its place in the whole.
  ViewOpInterface join;
  for (Operation *user : result.getUsers())
    if (auto candidate = dyn_cast<ViewOpInterface>(user); candidate && candidate.makesWhole())
      join = candidate;
  if (own.operand >= 0) {
    Value operand = op->getOperand(own.operand);
    if (own.always || (!join && isFree(op, result, operand))) {
      const Placement placement = this->placement(operand);
      extend(placement, lastUse(result));
      return overwrite(result, placement);
    }
  }
  if (!join) {
    allocate(result, step);
    return success();
  }
  auto known = placements.find(join.getWhole());
  Placement whole = known != placements.end() ? Placement(known->second) : allocate(join.getWhole(), step);
  extend(whole, step);
  extend(whole, lastUse(result));
  const ValueRange parts = join.getParts();
  settle(result, partOf(whole, join, llvm::find(parts, result).getIndex()));
  return success();
}

LogicalResult BufferAssignment::placeView(ViewOpInterface view) {
  const Value whole = view.getWhole();
  const ValueRange parts = view.getParts();
  if (!view.makesWhole()) {
    for (auto [i, part] : llvm::enumerate(parts))
      placements[part] = partOf(placement(whole), view, i);
    return success();
  }
  if (!parts.empty())
    placements.try_emplace(whole, placement(parts.front()));
  const Placement lies = placement(whole);
  if (lies.place.kind == Place::Kind::None)
    return success();
  for (auto [i, part] : llvm::enumerate(parts))
    if (!isSamePlace(placement(part).place, partOf(lies, view, i).place))
      return view.emitOpError("part ") << i << " is not stored inside the whole";
  return success();
}

LogicalResult BufferAssignment::run() {
  for (Operation &op : program) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      continue;
    if (auto view = dyn_cast<ViewOpInterface>(op)) {
      if (failed(placeView(view)))
        return failure();
      continue;
    }
    const int32_t step = stepOf.lookup(&op);
    for (OpResult result : op.getResults())
      if (failed(placeResult(result, step)))
        return failure();
    if (std::optional<Size> size = workspace ? workspace(&op) : std::nullopt) {
      workspaces[&op] = static_cast<int64_t>(all.size());
      all.push_back({*size, step, step});
    }
  }
  return success();
}

} // namespace xfc
