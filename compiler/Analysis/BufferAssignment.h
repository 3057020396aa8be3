// Decides which values of a program share memory, and computes the live range of each buffer. This is the only model of
// liveness: scheduling assigns buffers with it, and recomputation finds a program's peak of live bytes with it.
#pragma once

#include "Dialect/XFC.h"
#include "plan/Plan.h"
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace xfc {

// Whether the op is a view (ViewOpInterface). Views are not steps.
bool isView(mlir::Operation *op);

// The place where a value is stored.
struct Placement {
  Place place;
  int64_t stride = 0; // elements from one row to the next; 0 for a value without rows
};

// The operand whose memory a result reuses: always, or only if nothing reads the operand later.
struct InPlaceOperand {
  int64_t operand = -1; // none
  bool always = false;
};
// Returns what the op itself declares (KernelOpInterface).
InPlaceOperand inPlaceOf(mlir::OpResult result);

// A program is one block: views, steps (all other ops), and a terminator, whose operands are read after the last step.
class BufferAssignment {
public:
  explicit BufferAssignment(mlir::Block &program);

  // The in-place operand of a step's result. To be replaced if steps are launches rather than the ops themselves.
  std::function<InPlaceOperand(mlir::OpResult)> inPlace = inPlaceOf;
  // The distance of rows in the arena, in elements.
  std::function<int64_t(RowsType)> strideOf = [](RowsType rows) { return rows.getFeatures(); };
  // The size of the workspace that a step needs besides its results, if any.
  std::function<std::optional<Size>(mlir::Operation *)> workspace;

  // Declares that the value is at `placement` from the start.
  void bind(mlir::Value value, const Placement &placement);
  // Requires that the value, a result of a step, is written to `placement`. Fails if it already has another place.
  llvm::LogicalResult write(mlir::Value value, const Placement &placement);

  // Assigns a place to every other value that is read. Fails with a diagnostic if a step would overwrite a live value,
  // or if the parts of a join cannot be placed in its whole.
  llvm::LogicalResult run();

  // The place is None for a value that nothing reads.
  Placement placement(mlir::Value value) const { return placements.lookup(value); }
  const std::vector<Buffer> &buffers() const { return all; }
  // The buffer of a step's workspace, or none.
  Place workspaceOf(mlir::Operation *step) const;
  int32_t steps() const { return count; }

private:
  // A block of memory: a buffer of the arena, an argument, or all parameters, gradients or states of a kind.
  using MemoryBlock = std::pair<Place::Kind, int64_t>;
  static MemoryBlock blockOf(const Place &place) { return {place.kind, place.index}; }
  // The bytes of a block that a value takes up.
  struct Range {
    int64_t begin, end;
    bool overlaps(const Range &other) const { return begin < other.end && other.begin < end; }
    bool operator==(const Range &other) const = default;
  };
  static Range rangeOf(mlir::Value value, const Place &place);
  struct PlacedValue {
    mlir::Value value;
    Range range;
  };
  // The values in a block, by their first byte: the parameters of a deep model are thousands in one block, and each
  // update looks for those that it overwrites. `longest` is the longest range, so that nothing that begins further
  // before overlaps.
  struct PlacedValues {
    std::multimap<int64_t, PlacedValue> byBegin;
    int64_t longest = 0;
  };
  int32_t lastUse(mlir::Value value) const;
  int64_t strideIn(mlir::Type type) const; // the arena
  Placement allocate(mlir::Value value, int32_t step);
  void extend(const Placement &placement, int32_t step);
  void settle(mlir::Value value, const Placement &placement);
  llvm::LogicalResult overwrite(mlir::OpResult result, const Placement &placement);
  bool isFree(mlir::Operation *step, mlir::OpResult result, mlir::Value operand) const;
  llvm::LogicalResult placeResult(mlir::OpResult result, int32_t step);
  llvm::LogicalResult placeView(ViewOpInterface view);

  mlir::Block &program;
  int32_t count = 0;
  std::vector<Buffer> all;
  llvm::DenseMap<mlir::Value, Placement> placements;
  llvm::DenseMap<mlir::Operation *, int32_t> stepOf;
  llvm::DenseMap<mlir::Operation *, int64_t> workspaces;
  std::map<MemoryBlock, PlacedValues> blocks;
};

} // namespace xfc
