// A batch with every special case, and functions given as text to evaluate on it.
#pragma once

#include "Interpreter/Interpreter.h"
#include "Interpreter/Shape.h"
#include "mlir/IR/OwningOpRef.h"
#include <gtest/gtest.h>
#include <map>
#include <string>

namespace xfc::test {

// Three sequences of odd sizes: one has a single token, pads occur inside and at the start, one source has only pads
// (no keys: limits of 0), and a causal query may precede the first key that is not a pad.
class OddBatch {
public:
  OddBatch() { ragged.setTraining(0x12345678u, 0x9abcdef0u); }
  const xfc_shape &shape() const { return ragged.shape(); }
  static constexpr int32_t vocabulary = 11;
  // The token ids of a row set, or labels, one of which is invalid.
  Tensor ids(RowSet set, bool labels) const;
  // Lists of `count` labels, which begin with those above: some repeat a label, and some are invalid.
  Tensor labelLists(RowSet set, int64_t count) const;
  // Lists of `count` links, up to 3, to the keys of the first three tokens; some are none.
  Tensor links(RowSet set, int64_t count) const;

private:
  const std::vector<RaggedSequence> source = {{{4, 0, 6}, 17}, {{0}, 5}, {{7, 1, 0, 8, 9}, 9}},
                                    target = {{{3, 4}, 17}, {{9}, 5}, {{0, 6, 7, 8}, 9}};
  Shape ragged{source, target, /*pad=*/0};
};

// A parsed module, one of its functions, and inputs for it.
class Program {
public:
  // `text` is a module, or the functions of one. !s4, !t4 ... are rows of 4 f64 of source and target.
  explicit Program(const std::string &text, const std::string &function = "loss");

  // Replaces @loss by @loss_and_gradients.
  void differentiate();

  // Random numbers, always the same for a name; ids and labels of the batch; multiples of 0.1 for "smoothing", and
  // numbers from 0.75 to 1.25 for "loss_scale".
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

// Checks that each element of `a` differs from that of `b` by at most `tolerance`, relative to the largest element.
void expectNear(const Tensor &a, const Tensor &b, double tolerance, const std::string &what);

// The text of @loss with the given parameters and other arguments, (name, type) each; `body` defines %loss, rows of
// `type`.
using Arguments = std::vector<std::pair<std::string, std::string>>;
std::string lossFunction(const Arguments &parameters, const Arguments &others, const std::string &type,
                         const std::string &body);

// Checks every gradient that @loss_and_gradients returns against central differences of @loss, whose rows have
// different weights: for all elements of a parameter, or `samples` of them, including the one with the largest
// gradient.
void expectGradients(const std::string &text, size_t samples = SIZE_MAX);

} // namespace xfc::test
