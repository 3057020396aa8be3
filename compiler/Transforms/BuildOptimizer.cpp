// Adds @update, which computes new parameters from gradients, for each optimizer rule, and @accumulate, which adds the
// gradients of earlier batches. Each has one op, or a few, per parameter.
#include "Dialect/FunctionBuilder.h"
#include "Dialect/XFC.h"
#include "Passes.h"
#include "plan/Optimizers.h"
#include "plan/Programs.h"
#include "support/Quoted.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_BUILDOPTIMIZER
#include "Transforms/Passes.h.inc"

namespace {

struct BuildOptimizer : impl::BuildOptimizerBase<BuildOptimizer> {
  using BuildOptimizerBase::BuildOptimizerBase;

  void runOnOperation() override {
    auto gradients = getOperation().lookupSymbol<func::FuncOp>(programs::lossAndGradients);
    if (!gradients)
      return;
    if (momentType != "f32" && momentType != "bf16") {
      emitError(getOperation().getLoc()) << "moment type " << escaped(momentType) << ": expected f32 or bf16";
      return signalPassFailure();
    }
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
    FunctionBuilder function(getOperation(), programs::accumulate, loc);
    SmallVector<Value> batch, sums;
    for (const Parameter &parameter : parameters)
      batch.push_back(function.addArgument(parameter.name, attr::gradient, parameter.type, parameter.location));
    for (const Parameter &parameter : parameters)
      sums.push_back(function.addArgument((names::sumOf + parameter.name.getValue()).str(), attr::state, parameter.type,
                                          parameter.location));
    OpBuilder builder = OpBuilder::atBlockEnd(function.body());
    for (auto [parameter, gradient, sum] : llvm::zip_equal(parameters, batch, sums))
      function.addResult(parameter.name, AddOp::create(builder, parameter.location, parameter.type, gradient, sum),
                         gradient);
    function.finish();
  }

  // The type of what is kept of a parameter in a role.
  Type typeOf(StringRef role, const Parameter &parameter) {
    const Type element = parameter.type.getElementType();
    return momentType == "bf16" && element.isF32() && mayBeNarrow(std::string_view(role))
               ? Type(BFloat16Type::get(&getContext()))
               : element;
  }

  void buildUpdate(const Optimizer &optimizer) {
    Location loc = NameLoc::get(StringAttr::get(&getContext(), optimizer.program));
    FunctionBuilder function(getOperation(), optimizer.program, loc);
    const auto n = static_cast<unsigned>(parameters.size());
    SmallVector<StringRef> roles = {attr::parameter, attr::gradient};
    roles.append(optimizer.states.begin(), optimizer.states.end());
    ByRole arguments(roles.size(), SmallVector<Value>(n));
    for (auto [role, values] : llvm::zip_equal(roles, arguments))
      for (auto [parameter, value] : llvm::zip_equal(parameters, values))
        if (const auto shape = shapeOfState(std::string_view(role), parameter.type.getShape().vec()))
          value = function.addArgument(parameter.name, role, RankedTensorType::get(*shape, typeOf(role, parameter)),
                                       parameter.location);
    Type element = parameters.front().type.getElementType();
    auto scalar = RankedTensorType::get({}, element);
    Value hyper =
        function.addArgument(names::hyper, attr::scalar,
                             RankedTensorType::get({static_cast<int64_t>(optimizer.hyper.size())}, element), loc);
    Value maxNorm = function.addArgument(names::maxNorm, attr::scalar, scalar, loc);

    OpBuilder builder = OpBuilder::atBlockEnd(function.body());
    SmallVector<Value> sums;
    for (unsigned i = 0; i < n; ++i) {
      int64_t parts = llvm::divideCeil(parameters[i].type.getNumElements(), SquareSumOp::elementsOfPart);
      sums.push_back(SquareSumOp::create(builder, parameters[i].location,
                                         RankedTensorType::get({parts}, builder.getF64Type()),
                                         ValueRange{arguments[gradients][i]}));
    }
    auto clip = ClipFactorOp::create(builder, loc, scalar, scalar, maxNorm, sums);
    const ByRole updated = optimizer.elementwise
                               ? stepOf(optimizer, builder, hyper, clip.getFactor(), arguments)
                               : factoredStepOf(optimizer, builder, hyper, clip.getFactor(), arguments);

    // Each new value replaces the argument of its role.
    for (auto [values, old] : llvm::zip_equal(updated, arguments))
      for (auto [i, value] : llvm::enumerate(values))
        if (value)
          function.addResult(parameters[i].name, value, old[i]);
    function.addResult(names::norm, clip.getNorm());
    function.finish();
  }

  // One value for each parameter, for each role of an update's arguments: parameters, gradients, then the states. Null
  // if there is none, as for a state that holds nothing of a parameter, and for new gradients.
  using ByRole = SmallVector<SmallVector<Value>>;
  static constexpr unsigned values = 0, gradients = 1, states = 2;

  // A step that updates each element by itself: one op for each parameter.
  ByRole stepOf(const Optimizer &optimizer, OpBuilder &builder, Value hyper, Value factor, const ByRole &arguments) {
    ByRole updated(arguments.size());
    for (auto [i, parameter] : llvm::enumerate(parameters)) {
      SmallVector<Value> old;
      for (ArrayRef<Value> state : ArrayRef(arguments).drop_front(states))
        old.push_back(state[i]);
      SmallVector<Type> types = {parameter.type};
      llvm::append_range(types, ValueRange(old).getTypes());
      auto step = OptimizeOp::create(builder, parameter.location, types, optimizer.rule, hyper, factor,
                                     arguments[values][i], arguments[gradients][i], old,
                                     /*packs=*/false, /*compute=*/nullptr);
      updated[values].push_back(step.getResult(0));
      for (unsigned state = 0; state < old.size(); ++state)
        updated[states + state].push_back(step.getResult(1 + state));
    }
    return updated;
  }

  // A step by means of rows and columns: four ops for each parameter, or three if it is no matrix. All of one kind come
  // before those of the next, so that they can be merged.
  ByRole factoredStepOf(const Optimizer &optimizer, OpBuilder &builder, Value hyper, Value factor,
                        const ByRole &arguments) {
    constexpr unsigned rows = states, columns = states + 1, averages = states + 2;
    const size_t n = parameters.size();
    ByRole updated(arguments.size());
    updated[columns].resize(n);
    SmallVector<Value> columnSums(n), factors(n), parameterSquares, updateSquares;
    auto given = [](const Value &value) { return value ? ValueRange(value) : ValueRange(); }; // refers to the value
    for (auto [i, parameter] : llvm::enumerate(parameters)) {
      const MatrixForm form(parameter.type);
      SmallVector<Type> types = {arguments[rows][i].getType(),
                                 RankedTensorType::get({form.parts}, builder.getF64Type())};
      if (form.factored)
        types.push_back(RankedTensorType::get({form.parts, form.columns}, builder.getF64Type()));
      auto op = RowMomentsOp::create(builder, parameter.location, types, optimizer.rule, hyper, factor,
                                     arguments[values][i], arguments[gradients][i], arguments[rows][i]);
      updated[rows].push_back(op.getResult(0));
      parameterSquares.push_back(op.getResult(1));
      if (form.factored)
        columnSums[i] = op.getResult(2);
    }
    for (auto [i, parameter] : llvm::enumerate(parameters))
      if (columnSums[i]) {
        Value old = arguments[columns][i];
        auto op = ColumnMomentsOp::create(builder, parameter.location, TypeRange{old.getType(), old.getType()},
                                          optimizer.rule, hyper, updated[rows][i], columnSums[i], old);
        updated[columns][i] = op.getResult(0);
        factors[i] = op.getResult(1);
      }
    for (auto [i, parameter] : llvm::enumerate(parameters))
      updateSquares.push_back(UpdateSquaresOp::create(builder, parameter.location, parameterSquares[i].getType(),
                                                      optimizer.rule, hyper, factor, arguments[gradients][i],
                                                      updated[rows][i], given(factors[i]))
                                  .getResult(0));
    for (auto [i, parameter] : llvm::enumerate(parameters)) {
      const ValueRange average = optimizer.averages ? ValueRange(arguments[averages][i]) : ValueRange();
      auto op =
          FactoredUpdateOp::create(builder, parameter.location, SmallVector<Type>(1 + average.size(), parameter.type),
                                   optimizer.rule, hyper, factor, arguments[values][i], arguments[gradients][i],
                                   updated[rows][i], given(factors[i]), parameterSquares[i], updateSquares[i], average);
      updated[values].push_back(op.getResult(0));
      if (optimizer.averages)
        updated[averages].push_back(op.getResult(1));
    }
    return updated;
  }

  SmallVector<Parameter> parameters;
};

} // namespace
} // namespace xfc
