// Reads the numbers that tensors hold, whatever their type, and splits tensors into parts for several threads.
#pragma once

#include "device/ThreadPool.h"
#include "plan/Elements.h"
#include "plan/Plan.h"
#include "tensors/Safetensors.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace xfc {

// Calls use(type) with the tensor's type, one of namespace number. Weights have only these types: returns false for
// others.
template <typename Use> bool withType(const TensorView &tensor, Use use) {
  if (tensor.type == "F32")
    use(number::F32());
  else if (tensor.type == "F64")
    use(number::F64());
  else if (tensor.type == "F16")
    use(number::F16());
  else if (tensor.type == "BF16")
    use(number::BF16());
  else
    return false;
  return true;
}

// Calls use(i, number) for the numbers from `begin` to before `end`, which must be finite.
template <typename Use> void eachNumber(const TensorView &tensor, int64_t begin, int64_t end, Use use) {
  withType(tensor, [&]<typename Type>(Type) {
    for (int64_t i = begin; i < end; ++i) {
      typename Type::Bits bits;
      std::memcpy(&bits, tensor.bytes.data() + i * sizeof bits, sizeof bits);
      use(i, Type::number(bits));
    }
  });
}

// Calls body(0) ... body(parts - 1), on all threads of the pool if there is one.
template <typename Body> void onThreads(ThreadPool *pool, int64_t parts, Body body) {
  if (pool)
    pool->run([](void *context, int64_t part, int) { (*static_cast<Body *>(context))(part); }, &body, parts);
  else
    for (int64_t part = 0; part < parts; ++part)
      body(part);
}

// Calls body(tensor index, begin, end) for ranges of at most 2^18 elements that together cover the tensors.
template <typename Body> void inParts(ThreadPool *pool, const std::vector<const TensorView *> &tensors, Body body) {
  struct Part {
    size_t tensor;
    int64_t begin, end;
  };
  constexpr int64_t most = 1 << 18;
  std::vector<Part> parts;
  for (size_t i = 0; i < tensors.size(); ++i)
    for (int64_t begin = 0, count = elementsOf(tensors[i]->shape); begin < count; begin += most)
      parts.push_back({i, begin, std::min(begin + most, count)});
  onThreads(pool, static_cast<int64_t>(parts.size()),
            [&](int64_t part) { body(parts[part].tensor, parts[part].begin, parts[part].end); });
}

} // namespace xfc
