// The steps of elementwise optimizers.
#include "Optimizers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace xfc {

// The step of an element, or of a vector of elements: takes the parameter, the gradient times the clipping factor and
// the states, which it updates, and returns the new parameter.
using OptimizerStep = std::function<Value(Value parameter, Value gradient, MutableArrayRef<Value> states)>;
// Returns a hyperparameter as a scalar of the element type.
using Hyper = llvm::function_ref<Value(StringRef)>;

Value clamped(CodeBuilder &k, Value x, Value least, Value most) {
  Value raised = k.select(k.lessf(x, least), least, x);
  return k.select(k.lessf(most, x), most, raised);
}

static OptimizerStep adam(CodeBuilder &k, Hyper hyper) {
  Value one = k.scalar(1), rate = hyper("rate"), beta1 = hyper("beta1"), beta2 = hyper("beta2");
  Value keep = k.subf(one, k.mulf(rate, hyper("decay"))), step = k.divf(rate, hyper("correction1")),
        inverse2 = k.divf(one, hyper("correction2"));
  Value a1 = k.subf(one, beta1), a2 = k.subf(one, beta2), epsilon = hyper("epsilon"), l2 = hyper("l2");
  return [=, &k](Value parameter, Value given, MutableArrayRef<Value> states) {
    Value gradient = k.fma(l2, parameter, given);
    states[0] = k.fma(beta1, states[0], k.mulf(a1, gradient));
    states[1] = k.fma(beta2, states[1], k.mulf(a2, k.mulf(gradient, gradient)));
    Value denominator = k.addf(k.sqrt(k.mulf(states[1], inverse2)), epsilon);
    Value move = k.divf(k.mulf(step, states[0]), denominator);
    return k.subf(k.mulf(keep, parameter), move);
  };
}

static OptimizerStep sgd(CodeBuilder &k, Hyper hyper) {
  Value rate = hyper("rate"), momentum = hyper("momentum"), l2 = hyper("l2");
  return [=, &k](Value parameter, Value given, MutableArrayRef<Value> states) {
    states[0] = k.fma(momentum, states[0], k.fma(l2, parameter, given));
    return k.subf(parameter, k.mulf(rate, states[0]));
  };
}

static OptimizerStep lion(CodeBuilder &k, Hyper hyper) {
  Value zero = k.scalar(0), one = k.scalar(1), rate = hyper("rate"), beta1 = hyper("beta1"), beta2 = hyper("beta2");
  Value keep = k.subf(one, k.mulf(rate, hyper("decay"))), a1 = k.subf(one, beta1), a2 = k.subf(one, beta2),
        up = k.subf(zero, rate);
  return [=, &k](Value parameter, Value gradient, MutableArrayRef<Value> states) {
    Value direction = k.fma(beta1, states[0], k.mulf(a1, gradient));
    states[0] = k.fma(beta2, states[0], k.mulf(a2, gradient));
    Value upOrNone = k.select(k.lessf(direction, zero), up, zero);
    Value move = k.select(k.lessf(zero, direction), rate, upOrNone);
    return k.subf(k.mulf(keep, parameter), move);
  };
}

static OptimizerStep optimizerStep(CodeBuilder &k, OptimizeOp op, Hyper hyper) {
  using Make = OptimizerStep (*)(CodeBuilder &, Hyper);
  StringRef rule = op.getRule();
  const bool averages = rule.consume_back("_ema");
  const OptimizerStep step =
      llvm::StringSwitch<Make>(rule).Case("adam", adam).Case("sgd", sgd).Case("lion", lion)(k, hyper);
  Value most = hyper("limit"), least = k.subf(0, hyper("limit"));
  Value weight = averages ? hyper("weight") : Value();
  return [=, &k](Value parameter, Value gradient, MutableArrayRef<Value> states) {
    Value updated = step(parameter, clamped(k, gradient, least, most), states);
    if (averages)
      states.back() = k.fma(weight, k.subf(updated, states.back()), states.back());
    return updated;
  };
}

namespace {

// Rounds states to bf16 at random (xfc.optimize defines the random bits). What is rounded is the same number in bf16,
// as which it is stored.
class RandomRounding {
public:
  RandomRounding(CodeBuilder &k, const View &hyper, int64_t count, Value factor) : k(k) {
    salt = times(bits(factor), 668265263);
    for (int64_t i = 0; i < count; ++i)
      salt = k.add(salt, times(bits(k.load(hyper + i)), static_cast<uint32_t>(2 * i + 1) * 3266489917U));
  }

  // The random bits of an element with this old parameter and this gradient.
  Value randomOf(Value parameter, Value gradient) const {
    Value p = times(bits(parameter), 2654435761), g = times(bits(gradient), 2246822519);
    Value x = times(mixed(k.add(k.add(p, g), salt), 16), 0x85ebca6b);
    return mixed(times(mixed(x, 13), 0xc2b2ae35), 16);
  }
  // The new value of the first state, or of the second.
  Value rounded(Value number, Value random, bool first) const {
    Type type = random.getType();
    Value part = first ? arith::AndIOp::create(k.b, random, integer(0xffff, type)).getResult()
                       : arith::ShRUIOp::create(k.b, random, integer(16, type)).getResult();
    Value word = bits(number), exponent = integer(0x7f800000, type);
    Value ofWord = arith::AndIOp::create(k.b, word, exponent),
          isFinite = arith::CmpIOp::create(k.b, arith::CmpIPredicate::ne, ofWord, exponent);
    Value sum = k.add(word, part), upper = arith::AndIOp::create(k.b, sum, integer(0xffff0000, type));
    return k.select(isFinite, arith::BitcastOp::create(k.b, number.getType(), upper), number);
  }

private:
  Value integer(uint32_t number, Type type) const { return k.constant(static_cast<int32_t>(number), type); }
  Value times(Value x, uint32_t factor) const {
    Value number = integer(factor, x.getType());
    return k.mul(x, number);
  }
  Value bits(Value number) const {
    auto vector = dyn_cast<VectorType>(number.getType());
    return arith::BitcastOp::create(k.b, vector ? Type(vector.clone(k.i32)) : k.i32, number);
  }
  Value mixed(Value x, uint32_t by) const {
    Value count = integer(by, x.getType()), shifted = arith::ShRUIOp::create(k.b, x, count);
    return arith::XOrIOp::create(k.b, x, shifted);
  }
  CodeBuilder &k;
  Value salt;
};

} // namespace

// The tensors of a group (parameters, gradients, each state) follow each other in memory, starting with the first.
OptimizerBlocks optimizerBlocks(CodeBuilder &k, OptimizeOp op) {
  auto scalarAt = [&](const View &p) { return k.elementOf(k.load(p)); };
  auto hyper = [&](StringRef name) { return scalarAt(k.buffer(op.getHyperMutable()) + op.getHyperIndex(name)); };
  OptimizerBlocks result;
  const OptimizerStep step = optimizerStep(k, op, hyper);
  Value factor = scalarAt(k.buffer(op.getFactorMutable()));
  result.blocks = {k.buffer(op.getParametersMutable()), k.buffer(op.getGradientsMutable())};
  for (unsigned i = 0; i < op.getNumStates(); ++i)
    result.blocks.push_back(k.buffer(op->getOpOperand(op.getState(i).getBeginOperandIndex())));
  const SmallVector<bool> narrow =
      llvm::map_to_vector(ArrayRef(result.blocks).drop_front(2), [&](const View &p) { return p.element != k.element; });
  std::optional<RandomRounding> rounding;
  if (llvm::is_contained(narrow, true))
    rounding.emplace(k, k.buffer(op.getHyperMutable()), op.getHyper().getType().getNumElements(), factor);
  result.compute = [=, &k](ArrayRef<Value> xs) {
    Values updated(xs);
    Value gradient = k.mulf(factor, xs[1]), random = rounding ? rounding->randomOf(xs[0], xs[1]) : Value();
    updated[0] = step(xs[0], gradient, MutableArrayRef<Value>(updated).drop_front(2));
    updated[1] = {};
    for (auto [i, isNarrow] : llvm::enumerate(narrow))
      if (isNarrow)
        updated[2 + i] = rounding->rounded(updated[2 + i], random, i == 0);
    return updated;
  };
  return result;
}

} // namespace xfc
