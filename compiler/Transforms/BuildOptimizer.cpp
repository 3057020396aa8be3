// Adds @update, which computes new parameters from gradients, for each optimizer rule, and @accumulate, which adds the
// gradients of earlier batches. Each has one op per parameter.
#include "Dialect/XFC.h"
#include "Passes.h"
#include "plan/Optimizers.h"
#include "plan/Programs.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_BUILDOPTIMIZER
#include "Transforms/Passes.h.inc"

namespace {

struct BuildOptimizer : impl::BuildOptimizerBase<BuildOptimizer> {
  void runOnOperation() override {
    auto gradients = getOperation().lookupSymbol<func::FuncOp>(programs::lossAndGradients);
    if (!gradients)
      return;
    findParameters(gradients);
    if (parameters.empty())
      return;
    for (const Optimizer &optimizer : optimizers())
      if (&optimizer == findRule(optimizer.rule))
        buildUpdate(optimizer);
    buildAccumulate();
    updated += parameters.size();
  }

private:
  struct Parameter {
    StringAttr name;
    RankedTensorType type;
    Location location;
  };

  // Finds the parameters of which @loss_and_gradients returns a gradient, in the order of its arguments.
  void findParameters(func::FuncOp function) {
    parameters.clear();
    llvm::DenseSet<StringAttr> differentiated;
    Builder builder(&getContext());
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (auto name = function.getResultAttrOfType<StringAttr>(i, attr::name))
        if (StringRef parameter = name.getValue(); parameter.consume_front(names::gradientOf))
          differentiated.insert(builder.getStringAttr(parameter));
    for (BlockArgument argument : function.getArguments()) {
      auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attr::name);
      auto role = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attr::role);
      if (name && role && role.getValue() == attr::parameter && differentiated.contains(name))
        parameters.push_back({name, cast<RankedTensorType>(argument.getType()), argument.getLoc()});
    }
  }

  // gradients + sums, which overwrite the gradients.
  void buildAccumulate() {
    Location loc = NameLoc::get(StringAttr::get(&getContext(), programs::accumulate));
    OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
    auto function = func::FuncOp::create(builder, loc, programs::accumulate, builder.getFunctionType({}, {}));
    function.addEntryBlock();
    const auto n = static_cast<unsigned>(parameters.size());
    for (const Parameter &parameter : parameters)
      addArgument(function, parameter.name, attr::gradient, parameter.type, parameter.location);
    for (const Parameter &parameter : parameters)
      addArgument(function, builder.getStringAttr(names::sumOf + parameter.name.getValue()), attr::state,
                  parameter.type, parameter.location);
    builder.setInsertionPointToStart(&function.getBody().front());
    SmallVector<Value> results;
    for (unsigned i = 0; i < n; ++i)
      results.push_back(AddOp::create(builder, parameters[i].location, parameters[i].type, function.getArgument(i),
                                      function.getArgument(n + i)));
    func::ReturnOp::create(builder, loc, results);
    function.setFunctionType(
        builder.getFunctionType(function.getBody().getArgumentTypes(), ValueRange(results).getTypes()));
    for (unsigned i = 0; i < n; ++i) {
      function.setResultAttr(i, attr::name, parameters[i].name);
      function.setResultAttr(i, attr::alias, builder.getI64IntegerAttr(i));
    }
  }

  void buildUpdate(const Optimizer &optimizer) {
    Location loc = NameLoc::get(StringAttr::get(&getContext(), optimizer.program));
    OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
    auto function = func::FuncOp::create(builder, loc, optimizer.program, builder.getFunctionType({}, {}));
    function.addEntryBlock();
    const auto n = static_cast<unsigned>(parameters.size());
    SmallVector<StringRef> roles = {attr::parameter, attr::gradient};
    roles.append(optimizer.states.begin(), optimizer.states.end());
    for (StringRef role : roles)
      for (const Parameter &parameter : parameters)
        addArgument(function, parameter.name, role, parameter.type, parameter.location);
    Type element = parameters.front().type.getElementType();
    auto scalar = RankedTensorType::get({}, element);
    Value hyper = addArgument(function, builder.getStringAttr(names::hyper), attr::scalar,
                              RankedTensorType::get({static_cast<int64_t>(optimizer.hyper.size())}, element), loc);
    Value maxNorm = addArgument(function, builder.getStringAttr(names::maxNorm), attr::scalar, scalar, loc);

    builder.setInsertionPointToStart(&function.getBody().front());
    SmallVector<Value> sums;
    for (unsigned i = 0; i < n; ++i) {
      int64_t parts = llvm::divideCeil(parameters[i].type.getNumElements(), SquareSumOp::elementsOfPart);
      sums.push_back(SquareSumOp::create(builder, parameters[i].location,
                                         RankedTensorType::get({parts}, builder.getF64Type()),
                                         ValueRange{function.getArgument(n + i)}));
    }
    auto clip = ClipFactorOp::create(builder, loc, scalar, scalar, maxNorm, sums);
    const auto groups = static_cast<unsigned>(1 + optimizer.states.size()); // of results: parameters and each state
    SmallVector<Value> results(size_t{groups} * n);
    for (unsigned i = 0; i < n; ++i) {
      SmallVector<Value> states;
      for (unsigned group = 1; group < groups; ++group)
        states.push_back(function.getArgument((1 + group) * n + i));
      auto step = OptimizeOp::create(builder, parameters[i].location, SmallVector<Type>(groups, parameters[i].type),
                                     optimizer.rule, hyper, clip.getFactor(), function.getArgument(i),
                                     function.getArgument(n + i), states, /*packs=*/false);
      for (unsigned group = 0; group < groups; ++group)
        results[group * n + i] = step.getResult(group);
    }
    results.push_back(clip.getNorm());
    func::ReturnOp::create(builder, loc, results);

    function.setFunctionType(
        builder.getFunctionType(function.getBody().getArgumentTypes(), ValueRange(results).getTypes()));
    for (unsigned group = 0; group < groups; ++group)
      for (unsigned i = 0; i < n; ++i) {
        // Among the arguments, the gradients are between the parameters and the states.
        unsigned replaced = (group == 0 ? 0 : group + 1) * n + i;
        function.setResultAttr(group * n + i, attr::name, parameters[i].name);
        function.setResultAttr(group * n + i, attr::alias, builder.getI64IntegerAttr(replaced));
      }
    function.setResultAttr(groups * n, attr::name, builder.getStringAttr(names::norm));
  }

  Value addArgument(func::FuncOp function, StringAttr name, StringRef role, Type type, Location location) {
    unsigned index = function.getNumArguments();
    Builder builder(&getContext());
    DictionaryAttr attributes = builder.getDictionaryAttr(
        {builder.getNamedAttr(attr::name, name), builder.getNamedAttr(attr::role, builder.getStringAttr(role))});
    (void)function.insertArgument(index, type, attributes, location);
    return function.getArgument(index);
  }

  SmallVector<Parameter> parameters;
};

} // namespace
} // namespace xfc
