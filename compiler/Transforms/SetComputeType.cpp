// Makes products round their operands before they multiply, in place or in copies of functions.
#include "ComputeTypes.h"
#include "Passes.h"
#include "mlir/IR/SymbolTable.h"
#include "support/CommandLine.h"
#include "support/Quoted.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_SETCOMPUTETYPE
#include "Transforms/Passes.h.inc"

namespace {

// The parameters that a weight is, or is made of.
SmallVector<Value, 3> parametersOf(Value weight) {
  if (auto concat = weight.getDefiningOp<ConcatOp>())
    return SmallVector<Value, 3>(concat->getOperands());
  return {weight};
}

struct SetComputeType : impl::SetComputeTypeBase<SetComputeType> {
  using SetComputeTypeBase::SetComputeTypeBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    llvm::Expected<ComputeTypes> parsed = ComputeTypes::parse(type);
    if (!parsed) {
      emitError(module.getLoc()) << "compute type " << escaped(type) << ": " << llvm::toString(parsed.takeError());
      return signalPassFailure();
    }
    types = std::move(*parsed);
    used.assign(types.rules.size(), false);
    names.clear();
    if (variants.empty()) {
      for (auto function : module.getOps<func::FuncOp>())
        mark(function);
      if (types.rules.empty() && types.others)
        module->setAttr(attr::compute, StringAttr::get(&getContext(), type));
      return checkRules();
    }
    for (const std::string &name : variants) {
      auto function = module.lookupSymbol<func::FuncOp>(name);
      if (!function) // a model without decoding
        continue;
      auto variant = cast<func::FuncOp>(function->clone());
      variant.setName((Twine(name) + "." + type).str());
      module.push_back(variant);
      mark(variant);
    }
    checkRules();
  }

private:
  ComputeTypes types;
  std::vector<bool> used; // whether a rule matches a weight
  std::vector<std::string> names;

  template <typename Op> bool excludes(Op op) const {
    return op &&
           (!attention || !op.computesIn(*types.others) || std::min(op.getKeyDim(), op.getValueDim()) < attention);
  }
  // The name of a parameter, and those of the weights that are tied to it.
  SmallVector<StringRef> namesOf(StringRef name) {
    SmallVector<StringRef> result = {name};
    if (auto parameter = getOperation().lookupSymbol<ParameterOp>(name))
      for (Attribute alias : parameter.getAliases())
        result.push_back(cast<StringAttr>(alias).getValue());
    return result;
  }
  // The type of a product by its weight. All that the weight is made of must have the same.
  ComputeTypes::Type typeOf(ProductOpInterface product) {
    std::optional<unsigned> operand = product.getWeightOperand();
    if (!operand || types.rules.empty())
      return types.others;
    std::optional<ComputeTypes::Type> result;
    StringRef first;
    for (Value parameter : parametersOf(product->getOperand(*operand))) {
      StringRef name = parameterName(parameter);
      const SmallVector<StringRef> namesOfThis = namesOf(name);
      ComputeTypes::Type ofThis = types.others;
      for (auto [i, rule] : llvm::enumerate(types.rules))
        if (rule.matches(namesOfThis)) {
          used[i] = true;
          ofThis = rule.type;
        }
      for (StringRef known : namesOfThis)
        if (!known.empty() && !llvm::is_contained(names, known))
          names.push_back(known.str());
      if (!result) {
        result = ofThis;
        first = name;
      } else if (*result != ofThis) {
        emitError(product->getLoc())
            << "compute type " << escaped(type) << ": " << first << " and " << name
            << " are multiplied together and need the same type; give both the same, or compile "
               "with --no-fuse=merge-projections";
        signalPassFailure();
      }
    }
    return *result;
  }
  void mark(func::FuncOp function) {
    function.walk([&](ProductOpInterface product) {
      Operation *op = product;
      const ComputeTypes::Type ofThis = typeOf(product);
      if (!ofThis || excludes(dyn_cast<AttentionOp>(op)) || excludes(dyn_cast<AttentionGradOp>(op)))
        return;
      product.setComputeAttr(ComputeTypeAttr::get(&getContext(), *ofThis));
      if (failed(verifyComputeType(product)))
        signalPassFailure();
      ++changed;
    });
  }
  // A rule for nothing is a mistake, if there is anything that rules could be for.
  void checkRules() {
    for (auto [rule, isUsed] : llvm::zip_equal(types.rules, used))
      if (!isUsed && !names.empty()) {
        const std::string near = nearest(rule.pattern, names);
        emitError(getOperation().getLoc())
            << "compute type " << escaped(type) << ": no weight of a product is called " << inQuotes(rule.pattern)
            << "; " << (near.empty() ? "" : "did you mean '" + near + "'? ") << "there are, for example, "
            << names.front() << " and " << names.back();
        signalPassFailure();
      }
  }
};

} // namespace
} // namespace xfc
