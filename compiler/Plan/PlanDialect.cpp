// The plan dialect: syntax and verification.
#include "PlanDialect.h"
#include "Dialect/Values.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/FunctionImplementation.h"
#include "plan/StagingLayout.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace xfc;

//===--------------------------------------------------------------------------------------------------------===//
// Sizes, places, partitions
//===--------------------------------------------------------------------------------------------------------===//

namespace {

// Visits the terms of a size in storage order, each with its coefficient and with its unit as printed.
void eachTerm(Size &size, llvm::function_ref<void(int64_t &, StringRef unit, StringRef of, int64_t structure)> visit) {
  visit(size.constant, "", "", -1);
  for (int set = 0; set < XFC_ROW_SETS; ++set) {
    const StringRef name = stringifyRowSet(static_cast<RowSet>(set));
    visit(size.rows[set], name, "", -1);
    visit(size.sequences[set], name, "sequences", -1);
    visit(size.chunks[set], name, "chunks", -1);
  }
  for (int structure = 0; structure < XFC_KEY_STRUCTURES; ++structure)
    visit(size.pairs[structure], "pairs", "", structure);
}

ParseResult parseSize(AsmParser &parser, Size &size) {
  do {
    int64_t coefficient = 0, structure = -1;
    StringRef unit, of;
    SMLoc where = parser.getCurrentLocation();
    if (parser.parseInteger(coefficient))
      return failure();
    if (succeeded(parser.parseOptionalKeyword(&unit, {"source", "target", "cache", "pairs"}))) {
      if (unit != "pairs")
        (void)parser.parseOptionalKeyword(&of, {"sequences", "chunks"});
      else if (parser.parseInteger(structure))
        return failure();
    }
    bool known = false;
    eachTerm(size, [&](int64_t &term, StringRef termUnit, StringRef termOf, int64_t termStructure) {
      if (unit == termUnit && of == termOf && structure == termStructure) {
        term += coefficient;
        known = true;
      }
    });
    if (!known)
      return parser.emitError(where, "there are ") << int(XFC_KEY_STRUCTURES) << " key structures, found " << structure;
  } while (succeeded(parser.parseOptionalPlus()));
  return success();
}

void printSize(AsmPrinter &printer, Size size) {
  bool first = true;
  eachTerm(size, [&](int64_t &term, StringRef unit, StringRef of, int64_t structure) {
    if (!term)
      return;
    printer << (first ? "" : " + ") << term;
    for (StringRef word : {unit, of})
      if (!word.empty())
        printer << " " << word;
    if (structure >= 0)
      printer << " " << structure;
    first = false;
  });
  if (first)
    printer << "0";
}

// Indexed by Place::Kind.
constexpr StringLiteral placeNames[] = {"arena",  "parameters", "gradients", "state",
                                        "packed", "table",      "argument",  "none"};
bool isNumbered(Place::Kind kind) {
  using Kind = Place::Kind;
  return kind == Kind::Arena || kind == Kind::State || kind == Kind::Packed || kind == Kind::Table ||
         kind == Kind::Argument;
}

ParseResult parsePlace(AsmParser &parser, PlaceAttr &place) {
  StringRef name;
  int64_t index = 0, offset = 0, stride = 0;
  SMLoc where = parser.getCurrentLocation();
  if (parser.parseKeyword(&name))
    return failure();
  const auto *known = llvm::find(placeNames, name);
  if (known == std::end(placeNames))
    return parser.emitError(where, "expected one of ") << llvm::join(ArrayRef(placeNames), ", ") << ", found " << name;
  const auto kind = static_cast<Place::Kind>(known - std::begin(placeNames));
  if ((isNumbered(kind) && parser.parseInteger(index)) ||
      (succeeded(parser.parseOptionalPlus()) && parser.parseInteger(offset)) ||
      (succeeded(parser.parseOptionalKeyword("by")) && parser.parseInteger(stride)))
    return failure();
  place = parser.getChecked<PlaceAttr>(where, parser.getContext(), kind, index, offset, stride);
  return success(place != nullptr);
}

void printPlace(AsmPrinter &printer, PlaceAttr place) {
  printer << placeNames[static_cast<int>(place.getKind())];
  if (isNumbered(place.getKind()))
    printer << " " << place.getIndex();
  if (place.getOffset())
    printer << " + " << place.getOffset();
  if (place.getStride())
    printer << " by " << place.getStride();
}

constexpr StringLiteral unitNames[] = {"one", "rows", "key_rows", "sequences", "elements"};

} // namespace

static llvm::SmallVector<int64_t> termsOf(Size size) {
  llvm::SmallVector<int64_t> terms;
  eachTerm(size, [&](int64_t &term, StringRef, StringRef, int64_t) { terms.push_back(term); });
  return terms;
}

SizeAttr SizeAttr::get(MLIRContext *context, const Size &size) { return get(context, termsOf(size)); }

Size SizeAttr::getSize() const {
  Size size;
  const int64_t *next = getTerms().begin();
  eachTerm(size, [&](int64_t &term, StringRef, StringRef, int64_t) { term = *next++; });
  return size;
}

LogicalResult SizeAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError, ArrayRef<int64_t> terms) {
  for (int64_t term : terms)
    if (term < 0)
      return emitError() << "a size cannot have negative terms, found " << term;
  return success();
}

Attribute SizeAttr::parse(AsmParser &parser, Type) {
  Size size;
  SMLoc where = parser.getCurrentLocation();
  if (parser.parseLess() || parseSize(parser, size) || parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(where); }, parser.getContext(), termsOf(size));
}

void SizeAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printSize(printer, getSize());
  printer << ">";
}

PlaceAttr PlaceAttr::get(MLIRContext *context, const Place &place, int64_t stride) {
  return get(context, place.kind, place.index, place.offset, stride);
}

LogicalResult PlaceAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError, Place::Kind, int64_t index,
                                int64_t offset, int64_t stride) {
  if (index < 0 || offset < 0 || stride < 0)
    return emitError() << "a place cannot have a negative index, offset or stride, found " << index << ", " << offset
                       << ", " << stride;
  return success();
}

Attribute PlaceAttr::parse(AsmParser &parser, Type) {
  PlaceAttr place;
  if (parser.parseLess() || parsePlace(parser, place) || parser.parseGreater())
    return {};
  return place;
}

void PlaceAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printPlace(printer, *this);
  printer << ">";
}

PartitionAttr PartitionAttr::get(MLIRContext *context, const Partition &partition) {
  return get(context, partition.unit, partition.per, partition.times);
}

LogicalResult PartitionAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError, Partition::Unit, int64_t per,
                                    int64_t times) {
  if (per < 1 || times < 1)
    return emitError() << "'per' and 'times' must be at least 1, found per " << per << " times " << times;
  return success();
}

Attribute PartitionAttr::parse(AsmParser &parser, Type) {
  StringRef name;
  int64_t per = 0, times = 0;
  if (parser.parseLess())
    return {};
  SMLoc where = parser.getCurrentLocation();
  if (parser.parseKeyword(&name) || parser.parseKeyword("per") || parser.parseInteger(per) ||
      parser.parseKeyword("times") || parser.parseInteger(times) || parser.parseGreater())
    return {};
  const auto *unit = llvm::find(unitNames, name);
  if (unit == std::end(unitNames))
    return parser.emitError(where, "expected one of ") << llvm::join(ArrayRef(unitNames), ", ") << ", found " << name,
           Attribute();
  return parser.getChecked<PartitionAttr>(where, parser.getContext(),
                                          static_cast<Partition::Unit>(unit - std::begin(unitNames)), per, times);
}

void PartitionAttr::print(AsmPrinter &printer) const {
  printer << "<" << unitNames[static_cast<int>(getUnit())] << " per " << getPer() << " times " << getTimes() << ">";
}

//===--------------------------------------------------------------------------------------------------------===//
// Domains
//===--------------------------------------------------------------------------------------------------------===//

DomainAttr DomainAttr::get(MLIRContext *context, const LaunchDomain &domain) {
  return get(context, domain.rows, domain.keys, domain.structure.value_or(-1));
}

LogicalResult DomainAttr::verify(function_ref<InFlightDiagnostic()> emitError, RowSet rows, RowSet keys,
                                 int64_t structure) {
  if (structure < -1 || structure >= XFC_KEY_STRUCTURES)
    return emitError() << "there are " << int(XFC_KEY_STRUCTURES) << " key structures, found " << structure;
  auto is = [](int number, RowSet set) { return number == static_cast<int>(set); };
  const auto known = static_cast<int>(structure);
  if (known < 0 ? rows != keys : !is(querySetOf(known), rows) || !is(keySetOf(known), keys))
    return emitError() << "rows of the " << stringifyRowSet(rows) << " have no keys among rows of the "
                       << stringifyRowSet(keys);
  return success();
}

static ParseResult parseSet(AsmParser &parser, RowSet &set) {
  StringRef name;
  SMLoc where = parser.getCurrentLocation();
  if (parser.parseKeyword(&name))
    return failure();
  std::optional<RowSet> known = symbolizeRowSet(name);
  if (!known)
    return parser.emitError(where, "expected a set of rows: source, target or cache, found ") << name;
  set = *known;
  return success();
}

static ParseResult parseDomain(AsmParser &parser, DomainAttr &domain) {
  SMLoc where = parser.getCurrentLocation();
  RowSet rows, keys;
  if (parseSet(parser, rows))
    return failure();
  keys = rows;
  int64_t structure = -1;
  if (succeeded(parser.parseOptionalKeyword("keys"))) {
    if (parseSet(parser, keys))
      return failure();
    if (succeeded(parser.parseOptionalKeyword("unmasked"))) {
      structure = keyStructure(rows, keys, false, false);
    } else {
      const bool padding = succeeded(parser.parseOptionalKeyword("padding")),
                 causal = succeeded(parser.parseOptionalKeyword("causal"));
      if (padding || causal)
        structure = keyStructure(rows, keys, padding, causal);
    }
  }
  domain = parser.getChecked<DomainAttr>(where, parser.getContext(), rows, keys, structure);
  return success(domain != nullptr);
}

static void printDomain(raw_ostream &out, DomainAttr domain) {
  out << stringifyRowSet(domain.getRows());
  if (!domain.hasKeys())
    return;
  out << " keys " << stringifyRowSet(domain.getKeys());
  const bool padding = (domain.getStructure() & 2) != 0, causal = (domain.getStructure() & 1) != 0;
  out << (padding || causal ? "" : " unmasked") << (padding ? " padding" : "") << (causal ? " causal" : "");
}

static void printDomain(OpAsmPrinter &printer, LaunchOp, DomainAttr domain) {
  printDomain(printer.getStream(), domain);
}

Attribute DomainAttr::parse(AsmParser &parser, Type) {
  DomainAttr domain;
  if (parser.parseLess() || parseDomain(parser, domain) || parser.parseGreater())
    return {};
  return domain;
}

void DomainAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printDomain(printer.getStream(), *this);
  printer << ">";
}

//===--------------------------------------------------------------------------------------------------------===//
// Places
//===--------------------------------------------------------------------------------------------------------===//

static ParseResult parsePlaces(OpAsmParser &parser, ArrayAttr &places) {
  SmallVector<Attribute> list;
  auto one = [&] {
    PlaceAttr place;
    if (parsePlace(parser, place))
      return failure();
    list.push_back(place);
    return success();
  };
  if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Square, one))
    return failure();
  places = parser.getBuilder().getArrayAttr(list);
  return success();
}

static void printPlaces(OpAsmPrinter &printer, Operation *, ArrayAttr places) {
  printer << "[";
  llvm::interleaveComma(places.getAsRange<PlaceAttr>(), printer, [&](PlaceAttr place) { printPlace(printer, place); });
  printer << "]";
}

//===--------------------------------------------------------------------------------------------------------===//
// The module
//===--------------------------------------------------------------------------------------------------------===//

LogicalResult OffsetOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto block = getOperation()->getParentOfType<ParametersOp>();
  // The block is not a symbol table; the enclosing module is.
  auto parameter = symbols.lookupNearestSymbolFrom<ParameterOp>(block, getNameAttr());
  if (!parameter)
    return emitOpError("the model has no parameter ") << getNameAttr();
  const auto offset = static_cast<int64_t>(getOffset()), elements = static_cast<int64_t>(block.getElements()),
             own = cast<RankedTensorType>(parameter.getType()).getNumElements();
  if (offset < 0 || own > elements - offset)
    return emitOpError() << getNameAttr() << " has " << own << " elements from " << offset << " on, the block has "
                         << elements;
  return success();
}

LogicalResult PartOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto state = getOperation()->getParentOfType<StateOp>();
  if (!symbols.lookupNearestSymbolFrom<ParameterOp>(state->getParentOfType<ParametersOp>(), getNameAttr()))
    return emitOpError("the model has no parameter ") << getNameAttr();
  const auto offset = static_cast<int64_t>(getOffset()), elements = static_cast<int64_t>(state.getElements());
  int64_t own = 1;
  for (int64_t extent : getShape()) {
    if (extent < 0 || (extent > 0 && own > elements / extent))
      return emitOpError() << "a tensor of these extents does not fit the state, which has " << elements << " elements";
    own *= extent;
  }
  if (offset < 0 || own > elements - offset)
    return emitOpError() << getNameAttr() << " has " << own << " elements from " << offset << " on, the state has "
                         << elements;
  return success();
}

// Code is complete: it has a function for every kernel.
static LogicalResult verifyCode(Operation *kernel, StringAttr name, SymbolTableCollection &symbols) {
  auto plan = dyn_cast<ModuleOp>(kernel->getParentOp());
  auto code = plan ? symbols.lookupSymbolIn<ModuleOp>(plan, StringAttr::get(plan.getContext(), codeName)) : ModuleOp();
  if (code && !isa_and_present<FunctionOpInterface>(symbols.lookupSymbolIn(code, name)))
    return kernel->emitOpError("has no code: there is no function ") << name << " in the module @" << codeName;
  return success();
}

LogicalResult KernelOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (getBodies())
    for (auto body : getBodies()->getAsRange<FlatSymbolRefAttr>()) {
      auto kernel = symbols.lookupNearestSymbolFrom<KernelOp>(*this, body);
      if (!kernel || kernel.getBodies())
        return emitOpError("there is no plan.kernel ") << body << " without bodies of its own";
    }
  return verifyCode(*this, getSymNameAttr(), symbols);
}

LogicalResult PackKernelOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (getBytes() < 1 || getChunks() < 1)
    return emitOpError("packs in at least one chunk, to at least one byte");
  return verifyCode(*this, getSymNameAttr(), symbols);
}

void KernelOp::build(OpBuilder &builder, OperationState &state, StringRef name) {
  state.getOrAddProperties<Properties>().setSymName(builder.getStringAttr(name));
  state.addRegion();
}

LogicalResult KernelOp::verifyRegions() {
  if (getBody().empty())
    return success();
  Block &block = getBody().front();
  if (block.getOperations().size() != 2 || !isa<ReturnOp>(block.back()))
    return emitOpError("must hold one op and plan.return");
  if (getPacking() && getPacking()->size() != block.getNumArguments())
    return emitOpError("has ") << block.getNumArguments() << " operands, and `packing` of " << getPacking()->size();
  return success();
}

FlatSymbolRefAttr KernelOp::getPackingOf(unsigned operand) {
  return getPacking() ? dyn_cast<FlatSymbolRefAttr>((*getPacking())[operand]) : FlatSymbolRefAttr();
}

LogicalResult PackedWeightOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!symbols.lookupNearestSymbolFrom<PackKernelOp>(*this, getKernelAttr()))
    return emitOpError("there is no plan.pack_kernel ") << getKernelAttr();
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// Programs
//===--------------------------------------------------------------------------------------------------------===//

void ProgramOp::build(OpBuilder &, OperationState &state, FunctionOpInterface function) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.setSymName(function.getNameAttr());
  properties.setFunctionType(TypeAttr::get(function.getFunctionType()));
  properties.setArgAttrs(function.getArgAttrsAttr());
  properties.setResAttrs(function.getResAttrsAttr());
  state.addRegion()->takeBody(function.getFunctionBody());
}

ParseResult ProgramOp::parse(OpAsmParser &parser, OperationState &result) {
  auto type = [](Builder &builder, ArrayRef<Type> arguments, ArrayRef<Type> results,
                 function_interface_impl::VariadicFlag,
                 std::string &) { return builder.getFunctionType(arguments, results); };
  return function_interface_impl::parseFunctionOp(parser, result, /*allowVariadic=*/false,
                                                  getFunctionTypeAttrName(result.name), type,
                                                  getArgAttrsAttrName(result.name), getResAttrsAttrName(result.name));
}

void ProgramOp::print(OpAsmPrinter &printer) {
  function_interface_impl::printFunctionOp(printer, *this, /*isVariadic=*/false, getFunctionTypeAttrName(),
                                           getArgAttrsAttrName(), getResAttrsAttrName());
}

// Checks that buffers come first and are numbered in order, that ops have enough places, that places refer to existing
// buffers, that launches wait for earlier ones only, and that the results have the declared types.
LogicalResult ProgramOp::verifyRegions() {
  Block &block = getBody().front();
  auto buffers = getOps<BufferOp>();
  const int64_t count = std::distance(buffers.begin(), buffers.end());
  for (auto [i, op] : llvm::enumerate(block))
    if (auto buffer = dyn_cast<BufferOp>(op); buffer && buffer.getIndex() != i)
      return buffer.emitOpError("must have index ") << i << " and precede all launches";
  auto verify = [&](Operation *op, std::optional<ArrayAttr> places, size_t least) -> LogicalResult {
    if (!places)
      return success();
    if (places->size() < least)
      return op->emitOpError("has ") << places->size() << " places; expected at least " << least;
    for (auto place : places->getAsRange<PlaceAttr>())
      if (place.getKind() == Place::Kind::Arena && place.getIndex() >= count)
        return op->emitOpError("lies in buffer ") << place.getIndex() << ", but there are only " << count;
    return success();
  };
  for (auto [i, launch] : llvm::enumerate(getOps<LaunchOp>())) {
    if (failed(verify(launch, launch.getPlaces(), launch->getNumOperands() + launch->getNumResults())))
      return failure();
    int64_t least = 0;
    for (int64_t earlier : launch.getAfter().value_or(ArrayRef<int32_t>())) {
      if (earlier < least || earlier >= static_cast<int64_t>(i))
        return launch.emitOpError("is launch ") << i << "; expected `after` to list earlier ones, ascending";
      least = earlier + 1;
    }
  }
  auto last = cast<ReturnOp>(block.back());
  if (TypeRange(getResultTypes()) != last.getOperandTypes())
    return last.emitOpError("operand types do not match the results of the program's type, ") << getFunctionType();
  return verify(last, last.getPlaces(), last->getNumOperands());
}

LogicalResult ProgramOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!getPersistentAttr())
    return success();
  auto kernel = symbols.lookupNearestSymbolFrom<KernelOp>(*this, getPersistentAttr());
  if (!kernel || !kernel.getBodies())
    return emitOpError("there is no plan.kernel ") << getPersistentAttr() << " with bodies";
  return success();
}

LogicalResult BufferOp::verify() {
  if (static_cast<int64_t>(getFirst()) < 0 || getLast() < getFirst())
    return emitOpError("has an invalid live range, from launch ") << getFirst() << " to " << getLast();
  return success();
}

// A launch that packs a weight takes it plain and makes a tensor of the packed bytes.
static LogicalResult verifyPacking(LaunchOp launch, PackKernelOp kernel) {
  auto isOf = [](Type type, int64_t bytes) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    const std::optional<DType> element = tensor ? dtypeOf(tensor.getElementType()) : std::nullopt;
    return element && tensor.hasStaticShape() && tensor.getNumElements() * bytesOf(*element) == bytes;
  };
  if (launch.getNumOperands() == 1 && launch.getOperand(0).getType() == kernel.getWeight() &&
      launch.getNumResults() == 1 && isOf(launch.getResult(0).getType(), static_cast<int64_t>(kernel.getBytes())))
    return success();
  return launch.emitOpError() << launch.getKernelAttr() << " packs a " << kernel.getWeight() << " into a tensor of "
                              << kernel.getBytes() << " bytes";
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (auto packing = symbols.lookupNearestSymbolFrom<PackKernelOp>(*this, getKernelAttr()))
    return verifyPacking(*this, packing);
  auto kernel = symbols.lookupNearestSymbolFrom<KernelOp>(*this, getKernelAttr());
  if (!kernel || !kernel.getOp())
    return emitOpError("there is no plan.kernel ") << getKernelAttr() << " with a body";
  Operation *op = kernel.getOp();
  if (op->getNumOperands() != getNumOperands() || op->getNumResults() != getNumResults())
    return emitOpError("has ") << getNumOperands() << " operands and " << getNumResults() << " results, the kernel has "
                               << op->getNumOperands() << " and " << op->getNumResults();
  for (auto [result, own] : llvm::zip_equal(op->getResults(), getResults()))
    if (result.use_empty() && !own.use_empty())
      return emitOpError("reads result ") << result.getResultNumber() << ", which the kernel does not write";
  return success();
}

LogicalResult ReturnOp::verify() {
  if (getPlaces() && getPlaces()->size() != getNumOperands())
    return emitOpError("has ") << getPlaces()->size() << " places for " << getNumOperands() << " values";
  return success();
}

//===--------------------------------------------------------------------------------------------------------===//
// The dialect
//===--------------------------------------------------------------------------------------------------------===//

#include "PlanDialect.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "PlanAttributes.cpp.inc"
#define GET_OP_CLASSES
#include "PlanOps.cpp.inc"

ModuleOp xfc::codeOf(ModuleOp plan) { return plan.lookupSymbol<ModuleOp>(codeName); }

std::string xfc::computeOf(ModuleOp plan) {
  if (auto type = plan->getAttrOfType<StringAttr>(attr::compute))
    return type.str();
  auto blocks = plan.getOps<ParametersOp>();
  return !blocks.empty() && (*blocks.begin()).getType().isF64() ? "f64" : "f32";
}

LogicalResult PlanDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  if (attribute.getName() != targetAttr)
    return op->emitError() << "the plan dialect has no attribute " << attribute.getName();
  auto module = dyn_cast<ModuleOp>(op);
  auto name = dyn_cast<StringAttr>(attribute.getValue());
  if (!module || module.getName() != codeName || !name || name.empty())
    return op->emitError() << "expected " << attribute.getName() << " to name the target of the module @" << codeName
                           << ", found " << attribute.getValue();
  return success();
}

void PlanDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "PlanAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "PlanOps.cpp.inc"
      >();
}
