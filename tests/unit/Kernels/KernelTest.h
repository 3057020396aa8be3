// Runs the kernel of one op, on any device, on a ragged batch and compares it with the interpreter's answer.
#pragma once

#include "Interpreter/Interpreter.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "plan/Optimizers.h"
#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <gtest/gtest.h>
#include <ostream>
#include <random>

namespace xfc::test {

// A batch with all the structures of abi.h, for sequences of the given lengths.
struct Batch {
  // `cached` is the number of cache rows that each target sequence sees: scattered rows, of which all sequences share
  // the first ones. Without it, each sees every second row.
  Batch(std::vector<int> source, std::vector<int> target, int cacheRows = 40, bool training = true,
        int firstSentence = 0, std::vector<int> cached = {});
  Batch(const Batch &) = delete;
  xfc_shape shape = {};
  std::vector<int32_t> ids[XFC_ROW_SETS]; // for every row; below `vocabulary`
  static constexpr int vocabulary = 37;
  int64_t rows(RowSet set) const { return shape.sets[static_cast<int>(set)].rows; }

private:
  struct Set {
    std::vector<int32_t> offsets, positions, sequenceOf, byId;
    std::vector<uint32_t> sentences;
  } sets[XFC_ROW_SETS];
  struct Keys {
    std::vector<int32_t> keys, begin, count, limit;
    std::vector<int64_t> pairOffsets;
  } structures[XFC_KEY_STRUCTURES];
  std::vector<int32_t> slots, before;
};

// The folder that kernels come from: CPU/, Plain/, or GPU/; the last are run by an interpreter of PTX.
enum class Device { CPU, Plain, GPU };

// A device, its variant and the element type.
struct Target {
  bool f64 = false;
  Device device = Device::CPU;
  std::string cpu = "x86-64-v3";
  std::string compute = {};   // of products, if it differs
  std::string arch = "sm_80"; // of GPU/
  bool narrow = false;        // whether rows are stored in bf16, where xfc-assign-types could
  std::string element() const { return f64 ? "f64" : "f32"; }
  std::string elementOfRows(int64_t features) const { return narrow && features % 8 == 0 ? "bf16" : element(); }
  std::string name() const {
    std::string name = (device == Device::Plain ? "plain_"
                        : device == Device::GPU ? "gpu_"
                                                : "") +
                       element() + (compute.empty() ? "" : "_" + compute) + (cpu == "x86-64-v3" ? "" : cpu.substr(6)) +
                       (arch == "sm_80" ? "" : "_" + arch) + (narrow ? "_narrow" : "");
    std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
    return name;
  }
  friend std::ostream &operator<<(std::ostream &out, const Target &target) {
    return out << target.name();
  } // for GoogleTest's messages
  // What this machine lacks for the target and cannot emulate.
  std::string missing() const;
};
inline const Target cpuTargets[] = {{.f64 = false}, {.f64 = true}},
                    plainTargets[] = {{.f64 = false, .device = Device::Plain}, {.f64 = true, .device = Device::Plain}};
inline const Target gpuTargets[] = {{.device = Device::GPU}};
inline std::string nameOf(const testing::TestParamInfo<Target> &target) { return target.param.name(); }

// A weight within the block of an optimizer that packs, and which packed copies, of W and of W^T, are wanted.
struct PackedWeight {
  int64_t offset, rows, columns; // elements
  std::array<bool, 2> wanted = {true, true};
};

struct Options {
  Device device = Device::CPU;
  int64_t extraStride = 0; // additional elements between rows; of fewer than 32 bits, the next multiple of 8
  std::string cpu = "x86-64-v3";
  std::string arch = "sm_80";             // of GPU/
  int64_t dropout = 0, elements = 0;      // as in xfc_call
  bool inPlace = false;                   // the first result takes the first operand's buffer
  std::vector<PackedWeight> weights = {}; // an optimizer's; its packed copies must equal those of the pack kernels
  std::vector<int> unused = {};           // results that nothing reads; the kernel must not write them
  bool evaluate = true;                   // whether to compute the interpreter's answer
  bool decodingStep = false;              // the op's program has a cache
  // Sets operands by hand (random in [-2, 2] otherwise).
  std::function<void(int64_t operand, Tensor &)> set = {};
};

struct Outcome {
  std::vector<Tensor> kernel, expected; // only the results that are used
};

// An op compiled to a kernel, for any number of batches.
class CompiledOp {
public:
  // `op` is one op in MLIR with operands %a0, %a1, ..; `types` are their types.
  CompiledOp(const std::string &op, const std::vector<std::string> &types, const Options &options = {});
  ~CompiledOp();
  Outcome run(const Batch &batch);

private:
  struct State;
  std::unique_ptr<State> state;
};

inline Outcome runKernel(const Batch &batch, const std::string &op, const std::vector<std::string> &types,
                         const Options &options = {}) {
  return CompiledOp(op, types, options).run(batch);
}

// An op's text, without its types; the types of its operands; its results'; and what to set.
struct OpCase {
  std::string op;
  std::vector<std::string> operands;
  std::string results;
  Options options;
};
// The ops of the second step of an optimizer that is not elementwise, each over tensors of these shapes; the elements
// of gradients are clipped to clipValue, if it is not 0.
std::vector<OpCase> factoredStep(const Optimizer &optimizer, const std::string &element,
                                 const std::vector<std::vector<int64_t>> &shapes, double clipValue);
// Sets the labels and the smoothing of a loss, which are operands number `labels` and `smoothing`: every fourth row has
// no label. Lists of labels have negative tokens, tokens that repeat the label, and shares whose sum is not 1.
std::function<void(int64_t, Tensor &)> setTarget(int64_t labels, int64_t smoothing);

// Sets operands of xfc.alignment_loss and its gradient: the links, which are operand number 2, to different keys of
// each query of this set and structure (XFC_KEYS), or to none, and all others to positive numbers, which probabilities
// and their means are.
std::function<void(int64_t, Tensor &)> setLinks(const Batch &batch, RowSet queries, int structure);

// The elementwise ops that have no attributes, and their numbers of operands.
std::vector<std::pair<std::string, int>> elementwiseOps();

// The tolerance of a type: relative to the largest expected value of a result.
inline double toleranceOf(bool f64) { return f64 ? 1e-12 : 1e-5; }
void expectClose(const Outcome &outcome, double tolerance, const std::string &what);

} // namespace xfc::test
