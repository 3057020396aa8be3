// What devices have in common: how many chunks a step has, and how a result is read.
#include "Device.h"

namespace xfc {

double View::at(int64_t i, int64_t j) const {
  const int64_t k = i * stride + j;
  switch (output->type) {
  case DType::F64:
    return static_cast<const double *>(data)[k];
  case DType::F32:
    return static_cast<const float *>(data)[k];
  case DType::I32:
    return static_cast<const int32_t *>(data)[k];
  }
  return 0;
}

int64_t chunksOf(const Partition &partition, const Counts &counts, const Step &step) {
  int64_t count = 1;
  switch (partition.unit) {
  case Partition::Unit::One:
    break;
  case Partition::Unit::Rows:
    count = counts.rows[step.set];
    break;
  case Partition::Unit::KeyRows:
    count = counts.rows[step.keySet];
    break;
  case Partition::Unit::Sequences:
    count = counts.sequences[step.set];
    break;
  case Partition::Unit::Elements:
    count = step.elements;
    break;
  }
  return (count + partition.per - 1) / partition.per * partition.times;
}

} // namespace xfc
