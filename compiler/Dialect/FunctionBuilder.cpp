// Builds functions whose signatures are set all at once.
#include "FunctionBuilder.h"
#include "llvm/ADT/BitVector.h"

using namespace mlir;

namespace xfc {

FunctionBuilder::FunctionBuilder(ModuleOp module, StringRef name, Location loc) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  function = func::FuncOp::create(builder, loc, name, builder.getFunctionType({}, {}));
  block = function.addEntryBlock();
}

Value FunctionBuilder::addArgument(StringRef name, StringRef role, Type type, Location loc) {
  Builder builder(function.getContext());
  attributes.push_back(builder.getDictionaryAttr({builder.getNamedAttr(attr::name, builder.getStringAttr(name)),
                                                  builder.getNamedAttr(attr::role, builder.getStringAttr(role))}));
  return block->addArgument(type, loc);
}

void FunctionBuilder::addResult(StringRef name, Value value, Value replaces) {
  results.push_back({StringAttr::get(function.getContext(), name), value, replaces});
}

void FunctionBuilder::finish(unsigned optional) {
  OpBuilder builder = OpBuilder::atBlockEnd(block);
  SmallVector<Value> values;
  for (const Result &result : results)
    values.push_back(result.value);
  func::ReturnOp::create(builder, function.getLoc(), values);

  llvm::BitVector unused(block->getNumArguments());
  for (unsigned i = 0; i < optional; ++i)
    unused[i] = block->getArgument(i).use_empty();
  block->eraseArguments(unused);
  SmallVector<DictionaryAttr> ofArguments, ofResults;
  for (auto [i, own] : llvm::enumerate(attributes))
    if (!unused[i])
      ofArguments.push_back(own);
  for (const Result &result : results) {
    NamedAttrList own;
    own.append(attr::name, result.name);
    if (result.replaces)
      own.append(attr::alias, builder.getI64IntegerAttr(cast<BlockArgument>(result.replaces).getArgNumber()));
    ofResults.push_back(own.getDictionary(function.getContext()));
  }
  function.setFunctionType(builder.getFunctionType(block->getArgumentTypes(), ValueRange(values).getTypes()));
  function.setAllArgAttrs(ofArguments);
  function.setAllResultAttrs(ofResults);
}

} // namespace xfc
