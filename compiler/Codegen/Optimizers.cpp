#include "Optimizers.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace xfc {

using Hyper = llvm::function_ref<Value(StringRef)>;
using Spread = llvm::function_ref<Value(Value)>;

static OptimizerStep adam(CodeBuilder &k, Hyper hyper, Spread spread) {
  Value one = k.scalar(1), rate = hyper("rate"), beta1 = hyper("beta1"), beta2 = hyper("beta2");
  Value keep = spread(k.subf(one, k.mulf(rate, hyper("decay")))), step = spread(k.divf(rate, hyper("correction1"))),
        inverse2 = spread(k.divf(one, hyper("correction2")));
  Value a1 = spread(k.subf(one, beta1)), a2 = spread(k.subf(one, beta2)), b1 = spread(beta1), b2 = spread(beta2),
        epsilon = spread(hyper("epsilon")), l2 = spread(hyper("l2"));
  return [=, &k](Value parameter, Value given, MutableArrayRef<Value> states) {
    Value gradient = k.fma(l2, parameter, given);
    states[0] = k.fma(b1, states[0], k.mulf(a1, gradient));
    states[1] = k.fma(b2, states[1], k.mulf(a2, k.mulf(gradient, gradient)));
    Value denominator = k.addf(k.sqrt(k.mulf(states[1], inverse2)), epsilon);
    return k.subf(k.mulf(keep, parameter), k.divf(k.mulf(step, states[0]), denominator));
  };
}

static OptimizerStep sgd(CodeBuilder &k, Hyper hyper, Spread spread) {
  Value rate = spread(hyper("rate")), momentum = spread(hyper("momentum")), l2 = spread(hyper("l2"));
  return [=, &k](Value parameter, Value given, MutableArrayRef<Value> states) {
    states[0] = k.fma(momentum, states[0], k.fma(l2, parameter, given));
    return k.subf(parameter, k.mulf(rate, states[0]));
  };
}

static OptimizerStep lion(CodeBuilder &k, Hyper hyper, Spread spread) {
  Value zero = k.scalar(0), one = k.scalar(1), rate = hyper("rate"), beta1 = hyper("beta1"), beta2 = hyper("beta2");
  Value keep = spread(k.subf(one, k.mulf(rate, hyper("decay")))), a1 = spread(k.subf(one, beta1)),
        a2 = spread(k.subf(one, beta2)), b1 = spread(beta1), b2 = spread(beta2), none = spread(zero),
        down = spread(rate), up = spread(k.subf(zero, rate));
  return [=, &k](Value parameter, Value gradient, MutableArrayRef<Value> states) {
    Value direction = k.fma(b1, states[0], k.mulf(a1, gradient));
    states[0] = k.fma(b2, states[0], k.mulf(a2, gradient));
    Value move = k.select(k.lessf(none, direction), down, k.select(k.lessf(direction, none), up, none));
    return k.subf(k.mulf(keep, parameter), move);
  };
}

OptimizerStep optimizerStep(CodeBuilder &k, OptimizeOp op, Hyper hyper, Spread spread) {
  using Make = OptimizerStep (*)(CodeBuilder &, Hyper, Spread);
  StringRef rule = op.getRule();
  const bool averages = rule.consume_back("_ema");
  const OptimizerStep step =
      llvm::StringSwitch<Make>(rule).Case("adam", adam).Case("sgd", sgd).Case("lion", lion)(k, hyper, spread);
  Value most = spread(hyper("limit")), least = spread(k.subf(k.scalar(0), hyper("limit")));
  Value weight = averages ? spread(hyper("weight")) : Value();
  return [=, &k](Value parameter, Value gradient, MutableArrayRef<Value> states) {
    Value clipped = k.select(k.lessf(most, gradient), most, k.select(k.lessf(gradient, least), least, gradient));
    Value updated = step(parameter, clipped, states);
    if (averages)
      states.back() = k.fma(weight, k.subf(updated, states.back()), states.back());
    return updated;
  };
}

} // namespace xfc
