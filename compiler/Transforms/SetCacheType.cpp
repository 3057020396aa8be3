// Keeps the keys and values of decoding in a narrower type.
#include "Dialect/Values.h"
#include "Dialect/XFC.h"
#include "Passes.h"
#include "plan/Programs.h"
#include "support/Quoted.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_SETCACHETYPE
#include "Transforms/Passes.h.inc"

namespace {

struct SetCacheType : impl::SetCacheTypeBase<SetCacheType> {
  using SetCacheTypeBase::SetCacheTypeBase;

  void runOnOperation() override {
    const std::vector<ElementType> known = narrowTypes();
    const auto named = llvm::find_if(known, [&](const ElementType &each) { return type == each.name; });
    if (named == known.end()) {
      InFlightDiagnostic error = emitError(getOperation().getLoc());
      error << "cache type " << escaped(type) << ": expected ";
      llvm::interleave(known, error, [&](const ElementType &each) { error << each.name; }, " or ");
      return signalPassFailure();
    }
    element = elementType(&getContext(), named->type);
    // Those with the same suffix multiply in the same type (xfc-set-compute-type), and share keys and values.
    llvm::MapVector<StringRef, DecodingPrograms> bySuffix;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      const auto [program, suffix] = function.getName().split('.');
      if (program == programs::encode)
        bySuffix[suffix].encoders.push_back(function);
      else if (program == programs::decodeStep || program == programs::decodeCandidates ||
               program == programs::decodeRenormalized)
        bySuffix[suffix].steps.push_back(function);
    }
    SmallVector<func::FuncOp> unchanged; // encoders whose keys and values stay as they are
    for (const auto &[suffix, programs] : bySuffix) {
      if (whereRounded && !programs.round())
        continue;
      if (failed(narrow(programs)))
        return signalPassFailure();
      if (heads.empty())
        unchanged.append(programs.encoders);
    }
    // By default, there is nothing to say about it: nobody has asked for narrower ones.
    if (!unchanged.empty() && !whereRounded)
      emitWarning(unchanged.front().getLoc())
          << "cache type " << escaped(type)
          << ": no keys and values have a multiple of 8 features; all of them stay f32";
  }

private:
  // The encoder and the steps that multiply in one type.
  struct DecodingPrograms {
    SmallVector<func::FuncOp> encoders, steps;

    // Whether a product of a step rounds its operands.
    bool round() const {
      return llvm::any_of(steps, [](func::FuncOp step) {
        return step
            .walk([](ProductOpInterface product) {
              return product.getCompute() ? WalkResult::interrupt() : WalkResult::advance();
            })
            .wasInterrupted();
      });
    }
  };

  // With where-rounded, programs whose keys or values an op other than fused attention reads stay as they are;
  // otherwise that is an error.
  LogicalResult narrow(const DecodingPrograms &programs) {
    heads.clear();
    for (func::FuncOp step : programs.steps)
      for (const Kept &kept : keptBy(step))
        if (kept.readOtherwise())
          return whereRounded ? success()
                              : step.emitError()
                                    << "'" << kept.name.getValue() << "' is read by an op that reads no rows of "
                                    << element << "; only fused attention does (xfc-fuse-attention)";
    for (func::FuncOp step : programs.steps)
      if (failed(narrowArguments(step)))
        return failure();
    for (func::FuncOp encoder : programs.encoders)
      narrowResults(encoder);
    return success();
  }

  bool hasScales() const { return !element.isFloat(); }
  static std::string scaleOf(StringRef name) { return (name + ".scale").str(); }
  RowsType scalesOf(RowsType rows, int64_t ofHeads) const {
    return RowsType::get(rows.getContext(), rows.getSet(), {ofHeads}, rows.computed().getElementType());
  }
  // The argument that keys or values come from: as they are, or with the rows of the step written to it.
  static BlockArgument keptIn(Value rows) {
    auto write = rows.getDefiningOp<CacheWriteOp>();
    return dyn_cast<BlockArgument>(write ? write.getCache() : rows);
  }

  // An attention that reads an argument, as keys or as values. Both of them are narrowed, or none.
  struct Read {
    AttentionOp attention;
    bool asKeys;
    bool mayBeNarrow() {
      return hasWholePieces(attention.getK().getType()) && hasWholePieces(attention.getV().getType()) &&
             keptIn(attention.getK()) && keptIn(attention.getV());
    }
  };
  // The readers of an argument, and of the cache that it becomes when the rows of the step are written to it.
  struct Uses {
    CacheWriteOp write;
    SmallVector<Read> reads;
    bool others = false;
  };
  static Uses usesOf(Value argument) {
    Uses uses;
    auto add = [&](Value rows) {
      for (OpOperand &use : rows.getUses()) {
        auto attention = dyn_cast<AttentionOp>(use.getOwner());
        if (attention && &use == &attention.getKMutable())
          uses.reads.push_back({attention, true});
        else if (attention && &use == &attention.getVMutable())
          uses.reads.push_back({attention, false});
        else if (auto write = dyn_cast<CacheWriteOp>(use.getOwner()); write && write.getCache() == rows && !uses.write)
          uses.write = write;
        else
          uses.others |= !isa<func::ReturnOp>(use.getOwner());
      }
    };
    add(argument);
    if (uses.write)
      add(uses.write.getResult());
    return uses;
  }

  // An argument of f32 rows that a step gets from the encoder, or keeps.
  struct Kept {
    BlockArgument argument;
    StringAttr role, name;
    Uses uses;
    // Whether they are keys or values that an op other than fused attention reads.
    bool readOtherwise() const { return uses.others && (!uses.reads.empty() || isKeysOrValues(name)); }
  };
  static SmallVector<Kept> keptBy(func::FuncOp function) {
    SmallVector<Kept> kept;
    for (BlockArgument argument : function.getArguments()) {
      const auto role = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attr::role),
                 name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attr::name);
      auto rows = dyn_cast<RowsType>(argument.getType());
      if (role && name && (role == attr::input || role == attr::state) && rows && rows.getElementType().isF32())
        kept.push_back({argument, role, name, usesOf(argument)});
    }
    return kept;
  }

  LogicalResult narrowArguments(func::FuncOp function) {
    for (auto &[argument, role, name, uses] : keptBy(function)) {
      auto rows = cast<RowsType>(argument.getType());
      if (uses.reads.empty() || !llvm::all_of(uses.reads, [](Read &read) { return read.mayBeNarrow(); }))
        continue;
      const auto ofHeads = uses.reads.front().attention.getKeyHeads();
      heads[name.getValue()] = ofHeads;
      argument.setType(rows.in(element));
      Value scales = hasScales() ? addArgument(function, scaleOf(name), role, scalesOf(rows, ofHeads)) : Value();
      if (uses.write)
        scales = write(function, uses.write, scales, ofHeads);
      for (auto [attention, asKeys] : uses.reads)
        if (scales)
          (asKeys ? attention.getKScaleMutable() : attention.getVScaleMutable()).assign(scales);
      ++narrowed;
    }
    function.setFunctionType(FunctionType::get(&getContext(), function.getBody().front().getArgumentTypes(),
                                               function.getBody().front().getTerminator()->getOperandTypes()));
    return success();
  }

  Value addArgument(func::FuncOp function, const std::string &name, StringAttr role, Type type) {
    Builder builder(&getContext());
    const unsigned number = function.getNumArguments();
    (void)function.insertArgument(
        number, type,
        builder.getDictionaryAttr(
            {builder.getNamedAttr(attr::name, builder.getStringAttr(name)), builder.getNamedAttr(attr::role, role)}),
        NameLoc::get(builder.getStringAttr(name)));
    return function.getArgument(number);
  }

  void addResult(func::FuncOp function, const std::string &name, Value value, Value replaced = {}) {
    Builder builder(&getContext());
    SmallVector<NamedAttribute> attributes = {builder.getNamedAttr(attr::name, builder.getStringAttr(name))};
    if (auto argument = dyn_cast_if_present<BlockArgument>(replaced))
      attributes.push_back(builder.getNamedAttr(attr::alias, builder.getI64IntegerAttr(argument.getArgNumber())));
    (void)function.insertResult(function.getNumResults(), value.getType(), builder.getDictionaryAttr(attributes));
    Operation *last = function.getBody().front().getTerminator();
    last->insertOperands(last->getNumOperands(), value);
  }

  // The rows of the step are rounded as they are written, or turned into integers before. Returns the scales with those
  // of the step, if there are any.
  Value write(func::FuncOp function, CacheWriteOp write, Value scales, int64_t ofHeads) {
    write.getResult().setType(write.getCache().getType());
    if (!scales)
      return {};
    OpBuilder builder(write);
    auto x = cast<RowsType>(write.getRows().getType());
    auto integers =
        QuantizeOp::create(builder, write.getLoc(), x.in(element), scalesOf(x, ofHeads), write.getRows(), ofHeads);
    write.getRowsMutable().assign(integers.getResult());
    Value now = CacheWriteOp::create(builder, write.getLoc(), scales.getType(), scales, integers.getScale());
    const auto cache = cast<BlockArgument>(scales);
    addResult(function, function.getArgAttrOfType<StringAttr>(cache.getArgNumber(), attr::name).str(), now, cache);
    return now;
  }

  // The encoder gives keys and values in the type in which steps take them.
  void narrowResults(func::FuncOp encoder) {
    Operation *last = encoder.getBody().front().getTerminator();
    OpBuilder builder(last);
    for (unsigned i = 0, count = last->getNumOperands(); i < count; ++i) {
      const auto name = encoder.getResultAttrOfType<StringAttr>(i, attr::name);
      const auto known = name ? heads.find(name.getValue()) : heads.end();
      if (known == heads.end())
        continue;
      Value value = last->getOperand(i);
      auto rows = cast<RowsType>(value.getType());
      auto narrow =
          QuantizeOp::create(builder, value.getLoc(), rows.in(element),
                             hasScales() ? Type(scalesOf(rows, known->second)) : Type(), value, known->second);
      last->setOperand(i, narrow.getResult());
      if (narrow.getScale())
        addResult(encoder, scaleOf(name.getValue()), narrow.getScale());
    }
    encoder.setFunctionType(FunctionType::get(&getContext(), encoder.getArgumentTypes(), last->getOperandTypes()));
  }

  Type element;                   // of the keys and values
  llvm::StringMap<int64_t> heads; // of keys and values, by their names, in the programs of one type
};

} // namespace
} // namespace xfc
