// All that the compiler tells the runtime: parameters, packed weights, kernels, and for each program its steps and
// buffers. Serialized into the executable; `xfc inspect` plans memory with the very same code.
#pragma once

#include "plan/Elements.h"
#include "plan/ModelSettings.h"
#include "plan/ProgramList.h"
#include "plan/Sizes.h"
#include "xfc/abi.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xfc {

// The place where a kernel finds an operand.
struct Place {
  enum class Kind : uint8_t {
    Arena,      // program.buffers[index], plus offset bytes
    Parameters, // the parameter block, plus offset bytes
    Gradients,  // a block laid out as the parameters, in the arena (plan/Layout.h), plus offset bytes
    State,      // the block of the optimizer's module.states[index], plus offset bytes
    Packed,     // module.packed[index]
    Table,      // module.tables[index]
    Argument,   // program.arguments[index], bound by the runtime, plus offset bytes
    None,       // an operand the op does not have
  };
  Kind kind = Kind::None;
  int64_t index = 0;
  int64_t offset = 0;
};

// How a kernel's work is cut: chunks = ceil(count(unit) / per) x times.
struct Partition {
  enum class Unit : uint8_t { One, Rows, KeyRows, Sequences, Elements };
  Unit unit = Unit::One;
  int64_t per = 1;
  int64_t times = 1;
};

struct Kernel {
  std::string name; // unique; readable: linear_512x2048_relu
  Partition partition;
  int64_t scratch = 0; // bytes per thread; on a GPU, bytes of dynamic shared memory per block
  int64_t threads = 0; // of a GPU's block; 0 in a plan for a CPU
  int32_t small = -1;  // on a GPU, the small-M variant, which replaces this one in batches of at most `smallRows` rows,
                       // with bit-identical results; it may itself have one, for fewer rows
  int64_t smallRows = 0;
  int32_t reduction = -1; // on a GPU, the kernel that adds up the partial sums of this one, and runs after it, with the
                          // same call, in batches of more than chunkRows rows
  bool resident = false;  // on a GPU, a block goes on with further chunks until none is left: as many blocks are
                          // launched as multiprocessors, but no more than chunks
  std::vector<int32_t> bodies = {}; // on a GPU, of a persistent kernel: the kernels that it can run in one launch
                                    // (xfc_step), each with the same results as in a launch of its own; else empty
};

// Floating-point numbers that a step computes.
struct LaunchResult {
  int32_t buffer = 0; // index into the step's buffers
  DType type = DType::F32;
  int8_t set = -1;   // rows: the row set. -1: a tensor or pairs
  int16_t keys = -1; // pairs: which key structure
  int64_t width = 1; // elements of a row, heads of pairs, or elements of the tensor
};

// One launch of a kernel.
struct Step {
  int32_t kernel = 0; // index into module.kernels
  int8_t set = 0;     // the row set the work is divided over
  int8_t keySet = 0;
  int16_t keys = -1;            // index into xfc_shape.keys, or -1
  std::vector<Place> buffers;   // operands, then results, then the partial sums of a reduction
  std::vector<int64_t> strides; // elements; parallel to buffers
  std::vector<LaunchResult> results;
  int64_t dropout = 0;  // the id of the random numbers that the kernel draws, if it draws any
  int64_t elements = 0; // for Unit::Elements
  std::vector<xfc_parted_tensor> tensors;
  std::vector<xfc_repacked_weight> repacked; // two copies of each, of W and of W^T, end the buffers
  Size flops;                                // floating-point operations, not bytes
  Size traffic;                              // bytes read and written
  std::string location;                      // the place in model.json: decoder.layers.3.cross_attn
  // In a program with a persistent kernel only: the buffer that is a weight of a product, and its bytes; -1: there is
  // none. And the earlier steps, ascending, that must have finished before this one begins: directly or through others,
  // all that access memory which this one writes, or write memory which it accesses, however the arena is laid out.
  int32_t weight = -1;
  int64_t weightBytes = 0;
  std::vector<int32_t> after = {};
};

struct Buffer {
  Size size;
  int32_t first = 0, last = 0; // the first and the last step at which it is live
};

struct Argument {
  std::string name; // source, target, labels, smoothing, cache.0.k ...
  enum class Role : uint8_t { Input, Scalar, State } role = Role::Input;
  DType type = DType::F32;
  int8_t set = -1;            // the row set, or -1 for a scalar
  std::vector<int64_t> shape; // features of a row; empty for ids and scalars
};

// Elements of a row.
int64_t featuresOf(const Argument &argument);

struct Output {
  std::string name; // logits, encoder_output, attention.encoder.layers.0.self_attn, loss, nll, grad.X, cross.0.k ...
  Place place;
  DType type = DType::F32;
  int8_t set = -1;            // rows: the row set. -1: a tensor or pairs
  int16_t keys = -1;          // pairs: which key structure
  std::vector<int64_t> shape; // features of a row, heads of pairs, or the tensor's shape
  int64_t stride = 0;         // elements between rows
};

// Elements of a row, or of a tensor.
int64_t featuresOf(const Output &output);

struct Program {
  std::string name;
  // Whether this is that program of Programs.h, or its variant in a type.
  bool is(std::string_view program) const;
  // Every step works on the target's rows, and a row of a result depends only on the same row of the program's values
  // and on rows that no other row writes. If each row is a sequence of its own (decoding), a thread may take rows of
  // its own through all steps. The buffers of such a program are sized by the target's rows alone.
  bool rowByRow = false;
  int32_t persistent = -1; // on a GPU, the persistent kernel that can run the kernels of all steps, in the variants for
                           // few rows where they have one
  std::vector<Argument> arguments;
  std::vector<Output> outputs;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
};

struct Parameter {
  std::string name;
  std::vector<std::string> aliases; // tied names, also accepted when loading
  std::vector<int64_t> shape;
  int64_t offset = 0; // elements into the parameter block
  std::string init;   // xavier_uniform, fan_in_uniform, normal, scaled_normal, zero, one
  int64_t fanIn = 0, fanOut = 0;
};

// What an optimizer keeps of each parameter, in a block of its own: as much as the parameter holds, or less.
struct OptimizerState {
  // The tensor of a parameter.
  struct Part {
    int64_t parameter = 0; // index into module.parameters
    std::vector<int64_t> shape;
    int64_t offset = 0; // elements into the block
  };
  std::string name;
  DType type = DType::F32;    // of its numbers: the module's, or bf16 (`xfc compile --moment-type`)
  bool likeParameters = true; // the block is laid out like the parameters; if not, the rest says how
  int64_t elements = 0;       // of the block, alignment included
  std::vector<Part> parts;    // in the order of the parameters, which need not all have one
};

// A weight in the layout that a matrix kernel reads, packed again whenever the parameters change.
struct Packed {
  int32_t kernel = 0;
  Place source;
  int64_t bytes = 0;
  int64_t chunks = 1;
};

// A table that depends on nothing but the description. Row p, even column i (interleaved):
// sin(p / base^(m i / d)), column i+1: cos(p / base^(m (i + c) / d)); halves: sines first, then cosines.
struct Table {
  int64_t rows = 0, dim = 0;
  double base = 10000, exponentMultiplier = 1, cosineOffset = 0;
  bool halves = false;
};

struct Module {
  std::string model;                          // its name
  std::string hash;                           // of the canonical description
  std::string description;                    // the canonical model.json, which only the compiler parses
  ModelSettings settings;                     // what the runtime needs of it besides
  DType type = DType::F32;                    // of parameters, gradients and rows
  std::string compute = "f32";                // what products multiply in: f32, f64, or bf16
  int64_t parameterElements = 0;              // of the block, alignment included
  int64_t sourceVocab = 0, targetVocab = 0;   // 0: float rows
  int64_t dims[2] = {};                       // of float rows: the source's and the target's
  int64_t maxLength = 0, maxTargetLength = 0; // 0: any
  bool hasDecoder = false;
  int32_t pad = 0, unk = 1, bos = 2, eos = 3, start = 2;
  bool sourceEos = true;
  std::vector<Parameter> parameters;
  std::vector<OptimizerState> states; // of all optimizers: moment1, moment2
  std::vector<Packed> packed;
  std::vector<Table> tables;
  std::vector<Kernel> kernels;
  ProgramList programs;

  bool has(std::string_view program) const { return programs.has(program); }
  // Null if there is no such program.
  const Program *find(std::string_view program) const { return programs.find(program); }
  // Null if no optimizer keeps such a state.
  const OptimizerState *findState(std::string_view state) const;
  // The elements of its block, its bytes, and its tensors, however it is laid out.
  int64_t elementsOf(const OptimizerState &state) const;
  int64_t bytesOf(const OptimizerState &state) const { return elementsOf(state) * xfc::bytesOf(state.type); }
  std::vector<OptimizerState::Part> partsOf(const OptimizerState &state) const;
  // Throws Error unless the model maps tokens to tokens.
  void requireTranslator() const;
  // The types that a program can multiply in: `compute`, and then those of its variants, which are programs of their
  // own ("encode.bf16"). Empty if there is no such program.
  std::vector<std::string> computeTypes(const std::string &program) const;
  // The name of the program, or of its variant in a type; an empty type stands for `compute`. Throws Error naming the
  // types that there are if this is not one of them.
  std::string variant(const std::string &program, const std::string &type) const;
  // The program of a decoding step that gives `best` candidates for each hypothesis, in its variant for `type`:
  // decode_candidates, or decode_renormalized, if there is one that gives enough; else decode_step, which gives all
  // log-probabilities and is also meant by a `best` of 0. Null if the model has none.
  const Program *stepProgram(int64_t best, const std::string &type = {}, bool renormalized = false) const;
  // Whether a decoding step reads the cache rows of all tokens before it, as attention does. If not, it reads only
  // those of the last one.
  bool readsHistory() const;
  // Whether a decoding step may read several tokens of a hypothesis: all that it reads of earlier tokens are rows that
  // it has written before, as the keys and values of attention are. The state of a recurrence is of an earlier step.
  bool readsSeveral() const;
};

} // namespace xfc
