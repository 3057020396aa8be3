// Parses and writes CTranslate2's model.bin, which holds the variables of a model.
//
// The format is little-endian. It begins with the version of the format (u32), from version 2 on the name of the
// specification and its revision (u32), and the number of variables (u32). Each variable is a name, a rank (u8),
// extents (u32), a type (u8: f32, i8, i16, i32, f16, bf16), its size in bytes (u32), and its bytes. Before version 4,
// the type is instead the size of an element in bytes, and the size is a number of elements. From version 3 on, the
// number of aliases (u32) follows, and two names for each. A name is its length (u16), which includes a terminating
// zero, and its bytes.
#pragma once

#include "tensors/Safetensors.h"
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace xfc {

struct Ctranslate2Model {
  uint32_t version = 0, revision = 1;
  std::string specification = "TransformerBase"; // what models of version 1 are
  // Variables have types of safetensors. Aliases, and scales under the names of aliases, are among them. Those of
  // revision 1, which OpenNMT-tf named, have the names that later revisions give them.
  std::map<std::string, TensorView> variables;

  // The variables are views of `contents`; `file` is for messages. Throws an Error if the contents are truncated, not
  // in this format or of an unknown version, or if a variable comes twice.
  static Ctranslate2Model parse(std::string_view contents, const std::string &file);
};

// A variable to be written. Its bytes are made when it is its turn, so that a converted model need not fit in memory.
struct Ctranslate2Variable {
  std::string name, type; // a type of safetensors
  std::vector<int64_t> shape;
  std::function<std::string()> bytes;
};

// Writes a model.bin of the latest version. An alias is a name, and the name of the variable that it stands for. Throws
// Error if a variable is larger than the format allows, or if the file cannot be written.
void writeCtranslate2(const std::string &file, const std::string &specification, uint32_t revision,
                      const std::vector<Ctranslate2Variable> &variables,
                      const std::vector<std::pair<std::string, std::string>> &aliases);

} // namespace xfc
