// Verification of a module's model: its attribute, its parameters, and the discardable attributes by which functions
// refer to the parameters.
#include "XFC.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "plan/Optimizers.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace xfc;

LogicalResult ModelAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError, StringRef name, int64_t sourceVocab,
                                int64_t targetVocab, int64_t sourceDim, int64_t targetDim, int64_t maxSourceLength,
                                int64_t maxTargetLength, bool decoder, int32_t pad, int32_t unk, int32_t bos,
                                int32_t eos, int32_t start, bool, StringRef description) {
  if (name.empty())
    return emitError() << "a model needs a name";
  if (description.empty())
    return emitError() << "a model needs its description, as `xfc compile --emit imported` writes it";
  const std::pair<StringRef, int64_t> counts[] = {
      {"source_vocab", sourceVocab}, {"target_vocab", targetVocab},          {"source_dim", sourceDim},
      {"target_dim", targetDim},     {"max_source_length", maxSourceLength}, {"max_target_length", maxTargetLength}};
  for (auto [field, count] : counts)
    if (count < 0)
      return emitError() << field << " must not be negative, found " << count;
  if ((sourceVocab > 0) == (sourceDim > 0))
    return emitError()
           << "the source must be either token ids (source_vocab) or rows of floats (source_dim), found source_vocab = "
           << sourceVocab << " and source_dim = " << sourceDim;
  if (decoder ? (targetVocab > 0) == (targetDim > 0) : targetVocab > 0 || targetDim > 0)
    return emitError()
           << "the target must be either token ids (target_vocab) or rows of floats (target_dim) if there is a "
              "decoder, and neither if there is none, found target_vocab = "
           << targetVocab << " and target_dim = " << targetDim;
  int64_t vocabulary = std::numeric_limits<int32_t>::max();
  for (int64_t size : {sourceVocab, targetVocab})
    if (size > 0)
      vocabulary = std::min(vocabulary, size);
  const std::pair<StringRef, int32_t> tokens[] = {
      {"pad", pad}, {"unk", unk}, {"bos", bos}, {"eos", eos}, {"start", start}};
  for (auto [field, id] : tokens)
    if (const bool optional = field == "pad" || field == "unk"; id < (optional ? -1 : 0) || id >= vocabulary)
      return emitError() << field << " = " << id << " is not in the vocabulary of " << vocabulary << " tokens";
  if (eos == pad)
    return emitError() << "eos = " << eos << " is also pad, which is never learned";
  return success();
}

LogicalResult ParameterOp::verify() {
  llvm::StringSet<> names = {getSymName()};
  for (StringAttr alias : getAliases().getAsRange<StringAttr>())
    if (alias.empty() || !names.insert(alias.getValue()).second)
      return emitOpError() << "has an empty or repeated alias, or its own name as an alias: " << alias;
  return success();
}

// Checks that each argument for a parameter, its gradient or its state refers to a declared parameter of the same type.
static LogicalResult verifyParameters(ModuleOp module) {
  llvm::DenseMap<StringAttr, ParameterOp> parameters;
  for (auto parameter : module.getOps<ParameterOp>()) {
    SmallVector<StringAttr> names = {parameter.getSymNameAttr()};
    llvm::append_range(names, parameter.getAliases().getAsRange<StringAttr>());
    for (StringAttr name : names)
      if (auto [known, isNew] = parameters.try_emplace(name, parameter); !isNew)
        return parameter.emitOpError() << "shares the name " << name << " with another parameter";
  }
  llvm::StringMap<Type> stateTypes; // of the numbers of each role
  llvm::StringSet<> roles = {attr::parameter, attr::gradient};
  roles.insert(optimizerStates().begin(), optimizerStates().end());
  for (auto function : module.getOps<FunctionOpInterface>()) {
    // A module's attributes are verified before the ops inside it, so this function may still be invalid.
    if (failed(function->getName().verifyInvariants(function)))
      return failure();
    if (function.isExternal())
      continue;
    for (BlockArgument argument : function.getArguments()) {
      auto role = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attr::role);
      if (!role || !roles.contains(role.getValue()))
        continue;
      auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attr::name);
      ParameterOp parameter = name ? parameters.lookup(name) : ParameterOp();
      if (!parameter)
        return function.emitError() << "the model has no parameter " << (name ? Attribute(name) : role) << " (argument "
                                    << argument.getArgNumber() << ")";
      // A state may hold less than the parameter, and in a narrower type.
      auto type = cast<RankedTensorType>(parameter.getType());
      const auto shape = shapeOfState(std::string_view(role.getValue()), type.getShape().vec());
      if (!shape)
        return function.emitError() << "argument " << argument.getArgNumber() << ", " << name << ": there is no "
                                    << role.getValue() << " of a parameter that is " << type;
      RankedTensorType own = RankedTensorType::get(*shape, type.getElementType());
      const bool isNarrow = mayBeNarrow(std::string_view(role.getValue())) && type.getElementType().isF32() &&
                            argument.getType() == own.clone(BFloat16Type::get(function.getContext()));
      if (argument.getType() != own && !isNarrow) {
        auto error = function.emitError() << "argument " << argument.getArgNumber() << ", " << name << ", is "
                                          << argument.getType() << ", but the model's parameter is " << type;
        if (*shape != type.getShape().vec())
          error << ", whose " << role.getValue() << " is " << RankedTensorType::get(*shape, type.getElementType());
        return error;
      }
      const Type element = cast<RankedTensorType>(argument.getType()).getElementType(),
                 known = stateTypes.try_emplace(role.getValue(), element).first->second;
      if (element != known)
        return function.emitError() << "argument " << argument.getArgNumber() << ", " << name << ", is "
                                    << argument.getType() << ", but other numbers of " << role << " are " << known;
    }
  }
  return success();
}

LogicalResult XFCDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  auto module = dyn_cast<ModuleOp>(op);
  if (attribute.getName() == attr::compute) {
    auto type = dyn_cast<StringAttr>(attribute.getValue());
    if (!module || !type || !symbolizeComputeType(type))
      return op->emitError() << "expected " << attribute.getName()
                             << " to be the compute type of a module's products, found " << attribute.getValue();
    return success();
  }
  if (attribute.getName() != attr::model)
    return op->emitError() << "the xfc dialect has no attribute " << attribute.getName();
  if (!module || !isa<ModelAttr>(attribute.getValue()))
    return op->emitError() << "expected " << attribute.getName() << " to be a #xfc.model of a module, found "
                           << attribute.getValue();
  return verifyParameters(module);
}

static LogicalResult verifyName(Operation *op, NamedAttribute attribute) {
  auto name = dyn_cast<StringAttr>(attribute.getValue());
  if (!name || name.empty())
    return op->emitError() << "expected " << attribute.getName() << " to be a name, found " << attribute.getValue();
  return success();
}

LogicalResult XFCDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned argument,
                                                   NamedAttribute attribute) {
  if (attribute.getName() == attr::name)
    return verifyName(op, attribute);
  if (attribute.getName() != attr::role)
    return op->emitError() << "argument " << argument << ": the xfc dialect has no attribute " << attribute.getName()
                           << " of arguments";
  SmallVector<StringRef> roles = {attr::parameter, attr::gradient};
  roles.append(optimizerStates().begin(), optimizerStates().end());
  roles.append({attr::input, attr::scalar, attr::state});
  auto role = dyn_cast<StringAttr>(attribute.getValue());
  if (!role || !llvm::is_contained(roles, role.getValue()))
    return op->emitError() << "argument " << argument << ": expected a role (" << llvm::join(roles, ", ") << "), found "
                           << attribute.getValue();
  return success();
}

LogicalResult XFCDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned result,
                                                      NamedAttribute attribute) {
  if (attribute.getName() == attr::name)
    return verifyName(op, attribute);
  if (attribute.getName() != attr::alias)
    return op->emitError() << "result " << result << ": the xfc dialect has no attribute " << attribute.getName()
                           << " of results";
  auto function = dyn_cast<FunctionOpInterface>(op);
  auto index = dyn_cast<IntegerAttr>(attribute.getValue());
  if (!function || !index || index.getValue().isNegative() || index.getValue().uge(function.getNumArguments()))
    return op->emitError() << "result " << result << ": expected the index of the argument it replaces, found "
                           << attribute.getValue();
  Type replaced = function.getArgumentTypes()[index.getValue().getZExtValue()];
  if (replaced != function.getResultTypes()[result])
    return op->emitError() << "result " << result << " is " << function.getResultTypes()[result]
                           << ", but the argument it replaces is " << replaced;
  return success();
}
