// Which values of a program share memory, and between which steps the contents of each buffer matter. It is the one
// model of liveness: scheduling places buffers by it, and recomputation asks it what a program holds.
#pragma once

#include "Dialect/XFC.h"
#include "plan/Plan.h"
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace xfc {

// A view (ViewOpInterface) takes no step.
bool isView(mlir::Operation *op);

// Where a value lies.
struct Home {
  Place place;
  int64_t stride = 0; // elements from row to row; 0 of what has no rows
};

// The operand whose memory a result takes over: where nobody reads it later, or always.
struct InPlaceOperand {
  int64_t operand = -1; // none
  bool always = false;
};
// What an op says of itself (KernelOpInterface).
InPlaceOperand inPlaceOf(mlir::OpResult result);

// A program is one block: views, steps (all other ops), and a terminator, whose operands are read after the last step.
class BufferAssignment {
public:
  explicit BufferAssignment(mlir::Block &program);

  // How steps use memory, where they are not the ops themselves.
  std::function<InPlaceOperand(mlir::OpResult)> inPlace = inPlaceOf;
  // Memory of its own that a step needs besides its results.
  std::function<std::optional<Size>(mlir::Operation *)> workspace;

  // The value lies there from the start.
  void bind(mlir::Value value, const Home &home);
  // The result of a step will be written there. Fails where it is to be written to two places.
  llvm::LogicalResult write(mlir::Value value, const Home &home);

  // Gives every other value that is read a place. Fails with a diagnostic where a step would overwrite what is still
  // read, or the parts of a join cannot lie in it.
  llvm::LogicalResult run();

  // None of a value that nothing reads.
  Home home(mlir::Value value) const { return homes.lookup(value); }
  const std::vector<Buffer> &buffers() const { return all; }
  // The buffer of a step's workspace, or none.
  Place workspaceOf(mlir::Operation *step) const;
  int32_t steps() const { return count; }

private:
  using Memory = std::tuple<Place::Kind, int64_t, int64_t>; // offsets of the arena's buffers aside
  static Memory memoryOf(const Place &place);
  int32_t lastUse(mlir::Value value) const;
  Home allocate(mlir::Value value, int32_t step);
  void extend(const Home &home, int32_t step);
  void settle(mlir::Value value, const Home &home);
  llvm::LogicalResult overwrite(mlir::OpResult result, const Home &home);
  bool isFree(mlir::Operation *step, mlir::OpResult result, mlir::Value operand) const;
  llvm::LogicalResult placeResult(mlir::OpResult result, int32_t step);
  llvm::LogicalResult placeView(ViewOpInterface view);

  mlir::Block &program;
  int32_t count = 0;
  std::vector<Buffer> all;
  llvm::DenseMap<mlir::Value, Home> homes;
  llvm::DenseMap<mlir::Operation *, int32_t> stepOf;
  llvm::DenseMap<mlir::Operation *, int64_t> workspaces;
  std::map<Memory, llvm::SmallVector<mlir::Value, 2>> tenants; // the values that share memory, in order
};

} // namespace xfc
