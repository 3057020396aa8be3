// Makes launches read weights in packed form.
#include "Dialect/Values.h"
#include "Passes.h"
#include "plan/Programs.h"
#include <map>

using namespace mlir;

namespace xfc {
#define GEN_PASS_DEF_PACKWEIGHTS
#include "Schedule/Passes.h.inc"

namespace {

struct PackWeights : impl::PackWeightsBase<PackWeights> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    symbols.emplace(module);
    indices.clear();
    weights.clear();
    const SmallVector<ProgramOp> programs(module.getOps<ProgramOp>());
    for (ProgramOp program : programs)
      for (auto launch : program.getOps<LaunchOp>())
        if (failed(packOperands(launch, programs.front())))
          return signalPassFailure();
    trained = weightsOf(module.lookupSymbol<ProgramOp>(xfc::programs::lossAndGradients));
    for (ProgramOp program : programs)
      for (auto launch : program.getOps<LaunchOp>())
        if (KernelOp kernel = kernelOf(launch))
          if (auto op = cast<KernelOpInterface>(kernel.getOp()); !op.getRepacked().empty())
            packResults(launch, op);
  }

private:
  // Null for a launch that packs a weight.
  KernelOp kernelOf(LaunchOp launch) { return symbols->lookup<KernelOp>(launch.getKernel()); }

  bool isPackedInStep(Value operand) {
    auto launch = operand.getDefiningOp<LaunchOp>();
    return launch && !kernelOf(launch);
  }

  // Declares packed weights before `first`, a program.
  LogicalResult packOperands(LaunchOp launch, ProgramOp first) {
    KernelOp kernel = kernelOf(launch);
    if (!kernel || !kernel.getPacking())
      return success();
    if (!launch.getPlaces())
      return launch.emitOpError("has no places; run xfc-assign-buffers first");
    SmallVector<Attribute> places(launch.getPlaces()->getValue());
    for (unsigned i = 0; i < launch.getInputs().size(); ++i)
      if (FlatSymbolRefAttr form = kernel.getPackingOf(i); form && !isPackedInStep(launch.getInputs()[i])) {
        auto plain = cast<PlaceAttr>(places[i]);
        if (plain.getKind() != Place::Kind::Parameters)
          return launch.emitOpError("operand ") << i << " is to be packed, but is not a parameter";
        places[i] = PlaceAttr::get(&getContext(), packedFor(launch, form, plain.getOffset(), first), plain.getStride());
      }
    launch.setPlacesAttr(ArrayAttr::get(&getContext(), places));
    return success();
  }

  Place packedFor(LaunchOp launch, FlatSymbolRefAttr form, int64_t offset, ProgramOp first) {
    const auto next = static_cast<int64_t>(weights.size());
    auto [known, isNew] = indices.try_emplace({offset, form.getValue().str()}, next);
    if (isNew) {
      OpBuilder builder(first);
      weights.push_back(PackedWeightOp::create(builder, launch.getLoc(), next, form.getValue(), offset));
      ++packed;
    }
    return {Place::Kind::Packed, known->second, 0};
  }

  // A weight of the training step that is read in packed form, and its packed copies.
  struct Weight {
    int64_t offset, end;   // in bytes from the start of the parameter block
    int64_t rows, columns; // in elements
    std::optional<ComputeType> compute;
    Place copies[2]; // of W and of W^T, if they are read
  };
  PackKernelOp formOf(const Place &place) { return symbols->lookup<PackKernelOp>(weights[place.index].getKernel()); }

  // The weights of the training step that are packed, in the order of the block. Of overlapping weights, and of one
  // that is packed in several types, only the first is kept.
  SmallVector<Weight> weightsOf(ProgramOp training) {
    if (!training)
      return {};
    std::map<int64_t, Weight> byOffset;
    for (auto launch : training.getOps<LaunchOp>())
      for (auto attribute : launch.getPlacesAttr().getAsRange<PlaceAttr>()) {
        const Place place = attribute.getPlace();
        if (place.kind != Place::Kind::Packed)
          continue;
        auto type = cast<RankedTensorType>(formOf(place).getWeight());
        const std::optional<ComputeType> compute = formOf(place).getCompute();
        const int64_t offset = weights[place.index].getOffset(), rows = type.getDimSize(0),
                      columns = type.getDimSize(1), end = offset + rows * columns * elementBytes(type);
        Weight &weight = byOffset.try_emplace(offset, Weight{offset, end, rows, columns, compute, {}}).first->second;
        if (weight.rows == rows && weight.columns == columns && weight.compute == compute)
          weight.copies[formOf(place).getTransposed()] = place;
      }
    SmallVector<Weight> found;
    int64_t end = 0;
    for (auto &[offset, weight] : byOffset)
      if (offset >= end) {
        end = weight.end;
        found.push_back(weight);
      }
    return found;
  }

  // Adds to an update's launch the weights that it packs, and the places of their packed copies.
  void packResults(LaunchOp launch, KernelOpInterface kernel) {
    const int64_t bytes = bytesOf(*dtypeOf((*getOperation().getOps<ParametersOp>().begin()).getType()));
    SmallVector<Attribute> places(launch.getPlaces()->getValue());
    const int64_t begin = cast<PlaceAttr>(places[kernel.getRepacked().getBeginOperandIndex()]).getOffset(),
                  end = begin + static_cast<int64_t>(launch.getElements()) * bytes;
    const ArrayRef<Weight> from(
        llvm::lower_bound(trained, begin, [](const Weight &w, int64_t at) { return w.offset < at; }), trained.end());
    const ArrayRef<Weight> own = from.take_while([&](const Weight &weight) { return weight.end <= end; });
    SmallVector<Attribute> packs;
    Size traffic = launch.getTraffic().getSize();
    for (const Weight &weight : own) {
      if (weight.compute != kernel.getRepackedCompute())
        continue;
      packs.push_back(RepackedAttr::get(&getContext(), (weight.offset - begin) / bytes, weight.rows, weight.columns));
      for (const Place &copy : weight.copies) {
        places.push_back(PlaceAttr::get(&getContext(), copy, 0));
        if (copy.kind == Place::Kind::Packed)
          traffic.constant += formOf(copy).getBytes();
      }
    }
    launch.setRepackedAttr(ArrayAttr::get(&getContext(), packs));
    launch.setPlacesAttr(ArrayAttr::get(&getContext(), places));
    launch.setTrafficAttr(SizeAttr::get(&getContext(), traffic));
  }

  std::optional<SymbolTable> symbols;
  std::map<std::pair<int64_t, std::string>, int64_t> indices; // by offset and pack kernel
  SmallVector<PackedWeightOp> weights;
  SmallVector<Weight> trained; // the training step's, by offset
};

} // namespace
} // namespace xfc
