// The memory that a device needs to receive a batch, and where its parts lie there. Nothing here needs a device.
#pragma once

#include "plan/Plan.h"
#include "xfc/abi.h"
#include <cstdint>
#include <vector>

namespace xfc {

// The layout of a program's block. The shape and the arguments that the host gives have fixed places, since calls point
// to them; their rows are dense. The structures that the shape points to follow each other as closely as the batch
// allows, so that little is copied.
struct StagingLayout {
  static constexpr int64_t alignment = 128; // of arguments
  static constexpr int64_t structureAlignment = 16;
  StagingLayout() = default;
  StagingLayout(const Program &program, const Counts &capacity, const std::vector<bool> &onDevice);

  std::vector<int64_t> arguments;     // the offset of each; -1: it is on the device already
  bool keys[XFC_KEY_STRUCTURES] = {}; // those that the program reads
  int64_t structures = 0;             // where the structures begin
  int64_t bytes = 0;                  // enough for any batch within the capacity
};

int64_t bytesOfRow(const Argument &argument);

// Bytes of a call in device memory: the xfc_call and its arrays, of so many buffers, tensors and weights to pack.
constexpr int64_t callBytes(size_t buffers, size_t tensors, size_t repacked) {
  return static_cast<int64_t>(sizeof(xfc_call) + buffers * (sizeof(void *) + sizeof(int64_t)) +
                              tensors * sizeof(xfc_parted_tensor) + repacked * sizeof(xfc_repacked_weight));
}
int64_t callBytes(const Program &program); // of all its steps

// The sets of rows that a key structure's queries and keys belong to.
int querySetOf(int structure);
int keySetOf(int structure);

} // namespace xfc
