// Runs small PTX programs on arrays.
#pragma once

#include "Interpreter.h"
#include <cstring>
#include <gtest/gtest.h>

namespace xfc::ptx::test {

inline const std::string header = ".version 8.0\n.target sm_90a\n.address_size 64\n";

inline bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

// An array on the device.
template <class T> struct Array {
  Array(Interpreter &on, std::vector<T> values) : on(on), size(values.size()), address(on.allocate(size * sizeof(T))) {
    on.write(address, values.data(), size * sizeof(T));
  }
  std::vector<T> get() const {
    std::vector<T> values(size);
    on.read(values.data(), address, size * sizeof(T));
    return values;
  }
  Interpreter &on;
  size_t size;
  uint64_t address;
};

inline void run(Interpreter &on, const std::string &text, Dimensions grid, Dimensions block,
                std::vector<uint64_t> parameters, size_t shared = 0, Dimensions cluster = {},
                bool cooperative = false) {
  const Program &program = on.load(text);
  auto entry = on.entry(program, on.entries(program).at(0));
  ASSERT_EQ(entry.parameterBytes, 8 * parameters.size());
  on.launch(entry, grid, block, shared, parameters.data(), cluster, cooperative);
}

// The text of a kernel with pointers p0, p1, ... in registers %p0, %p1 ..., and with %tid in %t, 8 * %tid in %t8 and 4
// * %tid in %t4.
inline std::string kernel(int pointers, const std::string &body, const std::string &before = "") {
  std::string text = header + before + "\n.visible .entry test(";
  for (int k = 0; k < pointers; ++k)
    text += (k ? ", " : "") + std::string(".param .u64 a") + std::to_string(k);
  text += ")\n{\n.reg .b64 %p<9>;\n.reg .b64 %t8, %t4;\n.reg .b32 %t;\nmov.u32 %t, %tid.x;\nmul.wide.u32 %t8, %t, "
          "8;\nmul.wide.u32 %t4, %t, 4;\n";
  for (int k = 0; k < pointers; ++k)
    text += "ld.param.u64 %p" + std::to_string(k) + ", [a" + std::to_string(k) + "];\n";
  return text + body + "\nret;\n}\n";
}

// The message of the exception that launching the kernel on one block throws.
inline std::string faultOf(const std::string &text, uint32_t threads, std::vector<uint64_t> parameters, Interpreter &on,
                           size_t shared = 0, uint32_t grid = 1, bool cooperative = false) {
  try {
    run(on, text, {grid, 1, 1}, {threads, 1, 1}, parameters, shared, {}, cooperative);
  } catch (const Error &e) {
    return e.what();
  }
  return "";
}

} // namespace xfc::ptx::test
