// A batch with every odd thing in it, and functions given as text to evaluate on it.
#pragma once

#include "Interpreter/Interpreter.h"
#include "Interpreter/Shape.h"
#include "mlir/IR/OwningOpRef.h"
#include <gtest/gtest.h>
#include <map>
#include <string>

namespace xfc::test {

// Three sequences: sizes are odd, one has one token, pads lie inside and at the start, one source is only pads
// (its keys are none: limits of 0), and a causal query may come before the first key that is no pad.
class OddBatch {
public:
  OddBatch() { ragged.setTraining(0x12345678u, 0x9abcdef0u); }
  const xfc_shape &shape() const { return ragged.shape(); }
  static constexpr int32_t vocabulary = 11;
  // The values of ids, and of labels with one that is no label.
  Tensor ids(RowSet set, bool labels) const;

private:
  const std::vector<RaggedSequence> source = {{{4, 0, 6}, 17}, {{0}, 5}, {{7, 1, 0, 8, 9}, 9}},
                                    target = {{{3, 4}, 17}, {{9}, 5}, {{0, 6, 7, 8}, 9}};
  Shape ragged{source, target, /*pad=*/0};
};

// A function of a parsed module and its inputs.
class Program {
public:
  // `text` is a module, or the functions of one. !s4, !t4 ... are rows of 4 f64 of source and target.
  explicit Program(const std::string &text, const std::string &function = "loss");

  // Replaces @loss by @loss_and_gradients.
  void differentiate();

  // Random numbers, the same for the same name; ids and labels of the batch; 0.1 for "smoothing", 1 for "loss_scale".
  std::vector<Tensor> inputs(const OddBatch &batch);
  llvm::SmallVector<Tensor> evaluate(const OddBatch &batch, const std::vector<Tensor> &inputs);
  llvm::SmallVector<Tensor> evaluate(const OddBatch &batch) { return evaluate(batch, inputs(batch)); }

  mlir::func::FuncOp function();
  std::string argumentName(unsigned i);
  bool isParameter(unsigned i);

private:
  static mlir::MLIRContext &context();
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::string name;
};

// What every element of `a` may differ from that of `b`, relative to the largest.
void expectNear(const Tensor &a, const Tensor &b, double tolerance, const std::string &what);

// @loss of the given parameters and other arguments, (name, type) each; `body` defines %loss, rows of `type`.
using Arguments = std::vector<std::pair<std::string, std::string>>;
std::string lossFunction(const Arguments &parameters, const Arguments &others, const std::string &type,
                         const std::string &body);

// Checks every gradient that @loss_and_gradients returns against central differences of @loss: all elements of a
// parameter, or `samples` of them, the largest gradient's among them.
void expectGradients(const std::string &text, size_t samples = SIZE_MAX);

} // namespace xfc::test
