// The dialect itself: registration, types and their syntax.
#include "XFC.h"
#include "Values.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace xfc;

#include "XFCDialect.cpp.inc"
#include "XFCEnums.cpp.inc"
#include "XFCInterfaces.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "XFCTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "XFCAttributes.cpp.inc"
#define GET_OP_CLASSES
#include "XFCOps.cpp.inc"

void XFCDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "XFCTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "XFCAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "XFCOps.cpp.inc"
      >();
}

void Gradients::add(Value value, Value gradient) {
  if (!gradient)
    return;
  Value &known = gradients[value];
  known = known ? AddOp::create(builder, gradient.getLoc(), known, gradient).getResult() : gradient;
}

//===--------------------------------------------------------------------------------------------------------===//
// Types
//===--------------------------------------------------------------------------------------------------------===//

static FailureOr<RowSet> parseRowSet(AsmParser &parser) {
  StringRef name;
  SMLoc where = parser.getCurrentLocation();
  if (parser.parseKeyword(&name))
    return failure();
  if (std::optional<RowSet> set = symbolizeRowSet(name))
    return *set;
  return parser.emitError(where, "expected a set of rows: source, target or cache, found ") << name, failure();
}

RowsType RowsType::in(Type element) const { return get(getContext(), getSet(), getShape(), element); }
RowsType RowsType::computed() const { return in(computedType(getElementType())); }

int64_t RowsType::getFeatures() const {
  int64_t features = 1;
  for (int64_t extent : getShape())
    features *= extent;
  return features;
}

Type RowsType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type elementType;
  if (parser.parseLess())
    return {};
  FailureOr<RowSet> set = parseRowSet(parser);
  if (failed(set) || parser.parseComma() || parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(elementType) || parser.parseGreater())
    return {};
  return get(parser.getContext(), *set, shape, elementType);
}

void RowsType::print(AsmPrinter &printer) const {
  printer << "<" << stringifyRowSet(getSet()) << ", ";
  for (int64_t extent : getShape())
    printer << extent << "x";
  printer << getElementType() << ">";
}

LogicalResult PairsType::verify(llvm::function_ref<InFlightDiagnostic()> emitError, RowSet queries, RowSet keys, bool,
                                bool, int64_t heads, Type elementType) {
  if (queries == RowSet::cache || (queries == RowSet::source && keys != RowSet::source))
    return emitError() << "rows of " << stringifyRowSet(queries) << " do not attend to rows of "
                       << stringifyRowSet(keys);
  if (heads <= 0)
    return emitError() << "pairs need at least one head, found " << heads;
  if (!elementType.isFloat())
    return emitError() << "pairs must hold floats, found " << elementType;
  return success();
}

int64_t xfc::keyStructure(RowSet queries, RowSet keys, bool padding, bool causal) {
  const int relation = queries == RowSet::source ? XFC_SOURCE_SOURCE
                       : keys == RowSet::target  ? XFC_TARGET_TARGET
                       : keys == RowSet::source  ? XFC_TARGET_SOURCE
                                                 : XFC_TARGET_CACHE;
  return XFC_KEYS(relation, padding, causal);
}

int64_t PairsType::getStructure() const { return keyStructure(getQueries(), getKeys(), getPadding(), getCausal()); }

Type PairsType::parse(AsmParser &parser) {
  if (parser.parseLess())
    return {};
  FailureOr<RowSet> queries = parseRowSet(parser);
  if (failed(queries) || parser.parseComma())
    return {};
  FailureOr<RowSet> keys = parseRowSet(parser);
  if (failed(keys) || parser.parseComma())
    return {};
  bool padding = succeeded(parser.parseOptionalKeyword("padding"));
  bool causal = succeeded(parser.parseOptionalKeyword("causal"));
  if ((padding || causal) && parser.parseComma())
    return {};
  SmallVector<int64_t> heads;
  Type elementType;
  SMLoc where = parser.getCurrentLocation();
  if (parser.parseDimensionList(heads, /*allowDynamic=*/false) || parser.parseType(elementType) ||
      parser.parseGreater())
    return {};
  if (heads.size() != 1)
    return parser.emitError(where, "expected one number of heads, found ") << heads.size(), Type();
  return parser.getChecked<PairsType>(where, parser.getContext(), *queries, *keys, padding, causal, heads[0],
                                      elementType);
}

void PairsType::print(AsmPrinter &printer) const {
  printer << "<" << stringifyRowSet(getQueries()) << ", " << stringifyRowSet(getKeys()) << ", ";
  if (getPadding())
    printer << (getCausal() ? "padding " : "padding, ");
  if (getCausal())
    printer << "causal, ";
  printer << getHeads() << "x" << getElementType() << ">";
}
