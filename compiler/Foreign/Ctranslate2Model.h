// CTranslate2's model.bin: the variables of a model.
//
// Little-endian: the version of the format (u32), from 2 on the name of the specification and its revision (u32), the
// number of variables (u32); each is a name, a rank (u8), extents (u32), a type (u8: f32, i8, i16, i32, f16, bf16), the
// number of its bytes (u32), and those. Before 4 the type is the bytes of an element, and their number that of
// elements. From 3 on the number of aliases (u32) follows, each two names. A name is its bytes with the zero that ends
// it (u16), and those.
#pragma once

#include "tensors/Safetensors.h"
#include <map>
#include <string>
#include <vector>

namespace xfc {

struct Ctranslate2Model {
  uint32_t version = 0, revision = 1;
  std::string specification;
  // With types of safetensors, aliases among them, and their scales.
  std::map<std::string, TensorView> variables;

  // A view of a file's contents; `file` is for messages. Throws Error: truncated, not of the format, of a version that
  // is not known, variables that come twice.
  static Ctranslate2Model parse(std::string_view contents, const std::string &file);
};

} // namespace xfc
