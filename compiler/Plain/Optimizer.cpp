// The plain kernels of the optimizer's ops.
#include "Lowerings.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>
#include <functional>

using namespace mlir;

namespace xfc {

// sum + x^2 in f64.
static Number plusSquare(PlainBuilder &b, const Number &sum, const Number &x) {
  const Number wide = b.f64(x);
  return sum + wide * wide;
}

// x, or the nearest number from -limit to limit.
static Number clip(const Number &x, const Number &limit) {
  const Number least = 0 - limit, raised = select(x < least, least, x);
  return select(x > limit, limit, raised);
}

// The moving average of `mean` and the next number.
static Number moved(const Number &mean, const Number &next, const Number &decay) {
  const Number added = (1 - decay) * next;
  return decay * mean + added;
}

static void lowerPlainOp(SquareSumOp op, PlainBuilder &b) {
  Number elements = b.elementCount(),
         parts = (elements + (SquareSumOp::elementsOfPart - 1)) / SquareSumOp::elementsOfPart;
  Value tensors = b.dense(0, elements), sums = b.dense(op.getNumOperands(), parts);
  b.forEach(parts, [&](const Number &p) {
    Number begin = p * SquareSumOp::elementsOfPart;
    Value part = b.slice(tensors, {{begin, min(SquareSumOp::elementsOfPart, elements - begin)}});
    b.store(b.reduce("i->", part, b.f64(0), [&](auto v) { return plusSquare(b, v[1], v[0]); }), sums, {p});
  });
}

static void lowerPlainOp(ClipFactorOp op, PlainBuilder &b) {
  Number limit = b.f64(b.load(b.operand(0))), squares = b.f64(0);
  for (unsigned i = 1; i < op.getNumOperands(); ++i)
    squares = b.reduce("i->", b.operand(i), squares, [](auto v) { return v[1] + v[0]; });
  Number norm = sqrt(squares);
  Value factor = b.result(0);
  const Number clipping = limit / norm, isAbove = norm > limit;
  b.store(select((limit > 0) & isAbove, clipping, 1), factor);
  b.store(norm, b.result(1));
}

// An optimizer step reads and writes hyperparameters by name, and blocks, each with all tensors of a group.
struct PlainStep {
  PlainBuilder &b;
  llvm::function_ref<Number(StringRef)> hyper;
  Number factor;
  Value parameters, gradients;
  ArrayRef<Value> states;

  // An element of the gradient after scaling and clipping.
  Number clipped(const Number &given) const {
    Number limit = hyper("limit"), scaled = factor * given;
    return clip(scaled, limit);
  }
  // The same, with the gradient of an L2 penalty.
  Number penalized(const Number &given, const Number &l2, const Number &parameter) const {
    const Number penalty = l2 * parameter;
    return clipped(given) + penalty;
  }
};

static void adam(const PlainStep &step) {
  const Value p = step.parameters, m = step.states[0], v = step.states[1];
  Number rate = step.hyper("rate"), beta1 = step.hyper("beta1"), beta2 = step.hyper("beta2"),
         epsilon = step.hyper("epsilon"), l2 = step.hyper("l2"), decay = step.hyper("decay"),
         correction1 = step.hyper("correction1"), correction2 = step.hyper("correction2");
  step.b.elementwise({p, step.gradients}, m,
                     [&](auto x) { return moved(x[2], step.penalized(x[1], l2, x[0]), beta1); });
  step.b.elementwise({p, step.gradients}, v, [&](auto x) {
    const Number g = step.penalized(x[1], l2, x[0]), added = (1 - beta2) * g * g;
    return beta2 * x[2] + added;
  });
  step.b.elementwise({m, v}, p, [&](auto x) {
    const Number deviation = sqrt(x[1] / correction2) + epsilon, move = rate * (x[0] / correction1) / deviation;
    return x[2] - (rate * decay * x[2] + move);
  });
}

static void sgd(const PlainStep &step) {
  Number rate = step.hyper("rate"), momentum = step.hyper("momentum"), l2 = step.hyper("l2");
  step.b.elementwise({step.parameters, step.gradients}, step.states[0], [&](auto x) {
    const Number gradient = step.penalized(x[1], l2, x[0]);
    return momentum * x[2] + gradient;
  });
  step.b.elementwise({step.states[0]}, step.parameters, [&](auto x) { return x[1] - rate * x[0]; });
}

static void lion(const PlainStep &step) {
  const Value m = step.states[0];
  Number rate = step.hyper("rate"), beta1 = step.hyper("beta1"), beta2 = step.hyper("beta2"),
         decay = step.hyper("decay");
  step.b.elementwise({m, step.gradients}, step.parameters, [&](auto x) {
    const Number direction = moved(x[0], step.clipped(x[1]), beta1);
    const Number back = 0 - rate, backOrNone = select(direction < 0, back, 0),
                 move = select(direction > 0, rate, backOrNone);
    return x[2] - (move + rate * decay * x[2]);
  });
  step.b.elementwise({step.gradients}, m, [&](auto x) { return moved(x[1], step.clipped(x[0]), beta2); });
}

static void lowerPlainOp(OptimizeOp op, PlainBuilder &b) {
  const Number elements = b.elementCount();
  auto block = [&](OperandRange tensors) { return b.dense(tensors.getBeginOperandIndex(), elements); };
  const Value hyper = b.operand(0);
  auto scalar = [&](StringRef name) { return b.load(hyper, {static_cast<int>(op.getHyperIndex(name))}); };
  SmallVector<Value> states;
  for (unsigned i = 0; i < op.getNumStates(); ++i)
    states.push_back(block(op.getState(i)));
  const PlainStep step{b, scalar, b.load(b.operand(1)), block(op.getParameters()), block(op.getGradients()), states};
  StringRef rule = op.getRule();
  const bool averages = rule.consume_back("_ema");
  llvm::StringSwitch<void (*)(const PlainStep &)>(rule).Case("adam", adam).Case("sgd", sgd).Case("lion", lion)(step);
  if (averages)
    b.elementwise({step.parameters}, states.back(), [&](auto x) {
      const Number difference = x[0] - x[1];
      return x[1] + scalar("weight") * difference;
    });
}

// The only tensor of an op of a rule that factors the second moment: without fusion, each op has one.
namespace {

template <typename Op> struct PlainTensor {
  PlainTensor(PlainBuilder &b, Op op)
      : b(b), op(op), rows(number(offsetof(xfc_parted_tensor, rows))),
        columns(number(offsetof(xfc_parted_tensor, columns))), per(number(offsetof(xfc_parted_tensor, per))),
        parts(number(offsetof(xfc_parted_tensor, parts))), group(number(offsetof(xfc_parted_tensor, group))) {}
  Number number(size_t offset) { return b.inTensor(offset); }

  PlainBuilder &b;
  Op op;
  Number rows, columns, per, parts, group;

  // Runs `body` unless the tensor is frozen.
  void run(llvm::function_ref<void()> body) {
    b.forEach(min(group + 1, 1), [&](const Number &) { body(); });
  }
  Number hyper(StringRef name) {
    const auto count = op.getHyper().getType().getNumElements();
    Value rows = b.dense(0, (group + 1) * count);
    return b.load(rows, {group * count + op.getHyperIndex(name)});
  }
  Number wide(StringRef name) { return b.f64(hyper(name)); }
  Number newMean(const Number &mean, const Number &square) {
    const Number kept = (1 - wide("share")) * mean, added = square + wide("eps1");
    return wide("share") * added + kept;
  }
  // What clips an element of a gradient.
  std::function<Number(const Number &)> clipping() {
    Number limit = hyper("limit"), factor = b.load(b.operand(op.getFactorMutable().getOperandNumber()));
    return [=](const Number &given) {
      Number scaled = factor * given;
      return clip(scaled, limit);
    };
  }
  // A group's only value, of `count` elements; null if the group is empty.
  Value of(OperandRange group, const Number &count) {
    return group.empty() ? Value() : b.dense(group.getBeginOperandIndex(), count);
  }
  Value result(unsigned i, const Number &count) { return b.dense(op->getNumOperands() + i, count); }
  // A row of values that are given one after the other.
  Value row(Value values, const Number &i) { return b.slice(values, {{i * columns, columns}}); }
  Number rowsOfPart(const Number &part) { return min(per, rows - part * per); }

  // Stores the sum over each part of term(row), in f64.
  void sumParts(Value sums, llvm::function_ref<Number(const Number &row, const Number &sum)> add) {
    b.forEach(parts, [&](const Number &part) {
      b.store(b.f64(0), sums, {part});
      b.forEach(rowsOfPart(part), [&](const Number &i) {
        const Number before = b.load(sums, {part});
        b.store(add(part * per + i, before), sums, {part});
      });
    });
  }
  // Calls use(operands, update): update(elements of the operands) is the unscaled update of an element of the row.
  void fromUpdates(const Number &row,
                   llvm::function_ref<void(ValueRange, llvm::function_ref<Number(ArrayRef<Number>)>)> use) {
    const auto clipped = clipping();
    Value factors = of(op.getFactors(), columns);
    Number inverse = 1 / sqrt(b.load(of(op.getRows(), rows), {row}));
    SmallVector<Value> operands = {this->row(of(op.getGradients(), rows * columns), row)};
    if (factors)
      operands.push_back(factors);
    use(operands,
        [&](ArrayRef<Number> v) { return factors ? clipped(v[0]) * inverse * v[1] : clipped(v[0]) * inverse; });
  }
};

} // namespace

static void lowerPlainOp(RowMomentsOp op, PlainBuilder &b) {
  PlainTensor tensor(b, op);
  tensor.run([&] {
    Number elements = tensor.rows * tensor.columns;
    Value p = tensor.of(op.getParameters(), elements), g = tensor.of(op.getGradients(), elements),
          means = tensor.of(op.getRows(), tensor.rows);
    const auto clipped = tensor.clipping();
    auto square = [&](const Number &given) {
      Number x = b.f64(clipped(given));
      return x * x;
    };
    b.forEach(tensor.rows, [&](const Number &i) {
      const Number zero = b.f64(0);
      Number sum = b.reduce("i->", tensor.row(g, i), zero, [&](auto v) { return v[1] + square(v[0]); });
      const Number mean = sum / b.f64(tensor.columns);
      b.store(tensor.newMean(b.f64(b.load(means, {i})), mean), means, {i});
    });
    tensor.sumParts(tensor.result(1, tensor.parts), [&](const Number &row, const Number &sum) {
      return b.reduce("i->", tensor.row(p, row), sum, [&](auto v) { return plusSquare(b, v[1], v[0]); });
    });
    if (op.getResultSegment(2).empty())
      return;
    Value sums = tensor.result(2, tensor.parts * tensor.columns);
    b.fill(sums, b.f64(0));
    b.forEach(tensor.rows, [&](const Number &i) {
      Value sumsOfPart = tensor.row(sums, i / tensor.per);
      b.elementwise(tensor.row(g, i), sumsOfPart, [&](auto v) { return v[1] + square(v[0]); });
    });
  });
}

static void lowerPlainOp(ColumnMomentsOp op, PlainBuilder &b) {
  PlainTensor tensor(b, op);
  tensor.run([&] {
    Value rows = tensor.of(op.getRows(), tensor.rows),
          sums = tensor.of(op.getColumnSums(), tensor.parts * tensor.columns),
          means = tensor.of(op.getColumns(), tensor.columns), factors = tensor.result(1, tensor.columns);
    Number height = b.f64(tensor.rows);
    Number mean = b.reduce("i->", rows, b.f64(0), [&](auto v) { return v[1] + b.f64(v[0]); }) / height;
    b.forEach(tensor.columns, [&](const Number &j) {
      // The loop runs over the parts; the operand only says how many there are.
      const Number zero = b.f64(0);
      Number sum = b.reduce("i->", b.slice(sums, {{0, tensor.parts}}), zero,
                            [&](auto v) { return v[1] + b.load(sums, {b.loop('i') * tensor.columns + j}); });
      const Number square = sum / height, updated = tensor.newMean(b.f64(b.load(means, {j})), square);
      b.store(updated, means, {j});
      b.store(sqrt(mean / updated), factors, {j});
    });
  });
}

static void lowerPlainOp(UpdateSquaresOp op, PlainBuilder &b) {
  PlainTensor tensor(b, op);
  tensor.run([&] {
    tensor.sumParts(tensor.result(0, tensor.parts), [&](const Number &row, const Number &before) {
      Number sum = before;
      tensor.fromUpdates(row, [&](ValueRange operands, auto update) {
        sum = b.reduce(operands.size() == 2 ? "i,i->" : "i->", operands, before, [&](auto v) {
          Number x = b.f64(update(v));
          return v.back() + x * x;
        });
      });
      return sum;
    });
  });
}

static void lowerPlainOp(FactoredUpdateOp op, PlainBuilder &b) {
  PlainTensor tensor(b, op);
  tensor.run([&] {
    Number elements = tensor.rows * tensor.columns;
    Value p = tensor.of(op.getParameters(), elements), averages = tensor.of(op.getAverages(), elements);
    auto rootOfMean = [&](OperandRange group) {
      const Number count = b.f64(elements), zero = b.f64(0);
      return sqrt(b.reduce("i->", tensor.of(group, tensor.parts), zero, [](auto v) { return v[1] + v[0]; }) / count);
    };
    const Number root = rootOfMean(op.getParameterSquares()), relative = max(tensor.wide("eps2"), root);
    const Number scale = select(tensor.wide("scales") > 0, relative, 1), rate = tensor.wide("rate") * scale;
    const Number threshold = tensor.wide("clip_threshold"), excess = rootOfMean(op.getUpdateSquares()) / threshold,
                 shrink = max(b.f64(1), excess);
    auto inType = [&](const Number &x) { return Number(b, x.as(b, b.element)); };
    Number decay = inType(rate * tensor.wide("decay")), step = inType(rate / shrink);
    b.forEach(tensor.rows, [&](const Number &row) {
      tensor.fromUpdates(row, [&](ValueRange operands, auto update) {
        b.elementwise(operands, tensor.row(p, row), [&](auto v) {
          const Number move = step * update(v);
          return v.back() - (decay * v.back() + move);
        });
      });
    });
    if (!averages)
      return;
    Number weight = tensor.hyper("weight");
    b.elementwise({p}, averages, [&](auto x) { return x[1] + weight * (x[0] - x[1]); });
  });
}

void attachOptimizerLowerings(MLIRContext &context) {
  attachLowerings<SquareSumOp, ClipFactorOp, OptimizeOp, RowMomentsOp, ColumnMomentsOp, UpdateSquaresOp,
                  FactoredUpdateOp>(context);
}

} // namespace xfc
