// Finds which launches of a program must wait for which others, if they are not run one after the other.
#include "Dependencies.h"
#include "Dialect/Values.h"
#include "llvm/ADT/BitVector.h"
#include <limits>

using namespace mlir;

namespace xfc {
namespace {

// The bytes begin .. end - 1 that a launch reads or writes, counted from the beginning of the place or, if it holds
// rows, from the beginning of each row.
struct Access {
  Place place;
  int64_t rowBytes; // from one row to the next; 0: there are no rows
  int64_t begin, end;
  bool writes;
};

Access accessOf(PlaceAttr place, Type type, bool writes) {
  constexpr int64_t all = std::numeric_limits<int64_t>::max();
  Access access{place.getPlace(), 0, 0, all, writes};
  const int64_t offset = place.getOffset();
  if (auto rows = dyn_cast_if_present<RowsType>(type); rows && place.getStride() > 0) {
    const int64_t element = elementBytes(type);
    access.rowBytes = place.getStride() * element;
    access.begin = offset;
    access.end = offset + rows.getFeatures() * element;
  } else if (auto tensor = dyn_cast_if_present<RankedTensorType>(type); tensor && tensor.hasStaticShape()) {
    access.begin = offset;
    access.end = offset + tensor.getNumElements() * elementBytes(type);
  }
  return access;
}

SmallVector<Access> accessesOf(LaunchOp launch) {
  SmallVector<Access> accesses;
  const size_t inputs = launch.getInputs().size(), values = inputs + launch.getOutputs().size();
  for (auto [i, place] : llvm::enumerate(launch.getPlacesAttr().getAsRange<PlaceAttr>())) {
    const Type type = i < inputs   ? launch.getInputs()[i].getType()
                      : i < values ? launch.getOutputs()[i - inputs].getType()
                                   : Type(); // a workspace
    if (place.getKind() != Place::Kind::None)
      accesses.push_back(accessOf(place, type, i >= inputs));
  }
  return accesses;
}

class Dependencies {
public:
  explicit Dependencies(ProgramOp program) {
    for (auto buffer : program.getOps<BufferOp>())
      buffers.push_back(buffer);
    for (auto launch : program.getOps<LaunchOp>())
      launches.push_back(accessesOf(launch));
  }

  SmallVector<SmallVector<int32_t>> find() const {
    SmallVector<SmallVector<int32_t>> all;
    SmallVector<llvm::BitVector> finished; // for each launch, those that have finished when it begins
    for (size_t i = 0; i < launches.size(); ++i) {
      llvm::BitVector before(launches.size());
      SmallVector<int32_t> own;
      for (size_t j = i; j-- > 0;) {
        if (before.test(j) || !conflict(launches[i], launches[j]))
          continue;
        own.push_back(static_cast<int32_t>(j));
        before |= finished[j];
        before.set(j);
      }
      std::reverse(own.begin(), own.end());
      all.push_back(std::move(own));
      finished.push_back(std::move(before));
    }
    return all;
  }

private:
  bool conflict(ArrayRef<Access> launch, ArrayRef<Access> earlier) const {
    return llvm::any_of(launch, [&](const Access &a) {
      return llvm::any_of(earlier, [&](const Access &b) { return (a.writes || b.writes) && mayOverlap(a, b); });
    });
  }

  bool mayOverlap(const Access &a, const Access &b) const {
    auto isArena = [](const Access &access) {
      return access.place.kind == Place::Kind::Arena || access.place.kind == Place::Kind::Gradients;
    };
    if (a.place.kind != b.place.kind)
      return isArena(a) && isArena(b);
    if (a.place.index == b.place.index)
      return a.rowBytes != b.rowBytes || (a.begin < b.end && b.begin < a.end);
    if (a.place.kind != Place::Kind::Arena)
      return false;
    BufferOp first = buffers[a.place.index], second = buffers[b.place.index];
    return first.getLast() < second.getFirst() || second.getLast() < first.getFirst();
  }

  SmallVector<BufferOp> buffers;
  SmallVector<SmallVector<Access>> launches;
};

} // namespace

SmallVector<SmallVector<int32_t>> dependenciesOf(ProgramOp program) { return Dependencies(program).find(); }

} // namespace xfc
