// Computes where each parameter begins in the block of parameters.
#include "ParameterLayout.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace xfc {

NamedArgument argumentOf(Value value) {
  auto argument = dyn_cast_if_present<BlockArgument>(value);
  auto function = argument ? dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp()) : FunctionOpInterface();
  if (!function)
    return {};
  auto text = [&](StringRef attribute) {
    auto found = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attribute);
    return found ? found.getValue() : StringRef();
  };
  return {text(attr::name), text(attr::role)};
}

FailureOr<ParameterLayout> ParameterLayout::of(ModuleOp module, const std::vector<Parameter> &parameters,
                                               int64_t elementBytes) {
  // The groups, by their first member, and all members that are not the first of their group.
  llvm::StringMap<std::vector<StringRef>> groups;
  llvm::StringSet<> later;
  WalkResult walked = module.walk([&](ViewOpInterface concat) -> WalkResult {
    if (!concat.makesWhole() || concat.getParts().empty() || !isa<RankedTensorType>(concat.getWhole().getType()))
      return WalkResult::advance();
    std::vector<StringRef> members;
    for (Value part : concat.getParts()) {
      NamedArgument argument = argumentOf(part);
      if (argument.role != attr::parameter)
        return concat.emitOpError("only parameters can be concatenated, found ") << part;
      members.push_back(argument.name);
    }
    auto [known, isNew] = groups.try_emplace(members.front(), members);
    if (!isNew && known->second != members)
      return concat.emitOpError() << "'" << members.front()
                                  << "' is the first member of two different groups of parameters";
    for (StringRef member : ArrayRef(members).drop_front())
      if (!later.insert(member).second && isNew)
        return concat.emitOpError() << "'" << member << "' belongs to two groups of parameters";
    return WalkResult::advance();
  });
  if (walked.wasInterrupted())
    return failure();

  llvm::StringMap<const Parameter *> byName;
  for (const Parameter &parameter : parameters)
    byName[parameter.name] = &parameter;
  const int64_t line = alignment / elementBytes;
  ParameterLayout layout;
  int64_t &next = layout.blockElements;
  for (const Parameter &parameter : parameters) {
    if (later.contains(parameter.name))
      continue;
    auto group = groups.find(parameter.name);
    for (StringRef member : group != groups.end() ? group->second : std::vector<StringRef>{parameter.name}) {
      const Parameter *known = byName.lookup(member);
      if (!known)
        return module.emitError() << "'" << member << "' is concatenated to '" << parameter.name
                                  << "', but is not a parameter of the model";
      layout.placed.push_back({known->name, known->elements, next});
      next += known->elements;
    }
    next = llvm::alignTo(next, line);
  }
  // A parameter has no place if its group's first member is missing, or if the group contains itself.
  if (layout.placed.size() != parameters.size())
    return module.emitError() << "concatenated parameters could not be laid out: only " << layout.placed.size()
                              << " of " << parameters.size() << " were placed";
  return layout;
}

} // namespace xfc
