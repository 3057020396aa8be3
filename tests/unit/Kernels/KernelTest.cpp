// Runs the kernel of one op on a ragged batch and compares it with the interpreter's answer.
#include "KernelTest.h"
#include "CPU/CPU.h"
#include "Code.h"
#include "Codegen/Elementwise.h"
#include "Dialect/Values.h"
#include "GPU/GPU.h"
#include "MachineCode/ObjectCache.h"
#include "Pipeline/Targets.h"
#include "Plain/Plain.h"
#include "TileEmulator.h"
#include "device/cpu/Features.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Parser/Parser.h"
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>

using namespace mlir;

namespace xfc::test {

//===--------------------------------------------------------------------------------------------------------===//
// Batch
//===--------------------------------------------------------------------------------------------------------===//

Batch::Batch(std::vector<int> source, std::vector<int> target, int cacheRows, bool training, int firstSentence,
             std::vector<int> cached) {
  auto fill = [&](int set, const std::vector<int> &lengths) {
    Set &s = sets[set];
    s.offsets = {0};
    for (size_t b = 0; b < lengths.size(); ++b) {
      for (int i = 0; i < lengths[b]; ++i) {
        s.positions.push_back(i);
        s.sequenceOf.push_back(b);
        ids[set].push_back((i * 7 + firstSentence * 3 + static_cast<int>(b) * 5) % vocabulary);
      }
      s.offsets.push_back(s.offsets.back() + lengths[b]);
      s.sentences.push_back(100 + firstSentence + b);
    }
    s.byId.resize(ids[set].size());
    for (size_t i = 0; i < s.byId.size(); ++i)
      s.byId[i] = i;
    std::stable_sort(s.byId.begin(), s.byId.end(), [&](int a, int b) { return ids[set][a] < ids[set][b]; });
    shape.sets[set] = {s.offsets.back(),    static_cast<int64_t>(lengths.size()),
                       s.offsets.data(),    s.positions.data(),
                       s.sequenceOf.data(), s.sentences.data(),
                       s.byId.data()};
  };
  fill(XFC_SOURCE, source);
  fill(XFC_TARGET, target);
  fill(XFC_CACHE, std::vector<int>{cacheRows});
  // A hypothesis is at the position of the last token it sees.
  for (size_t b = 0; b < cached.size(); ++b)
    if (target[b] == 1)
      sets[XFC_TARGET].positions[sets[XFC_TARGET].offsets[b]] = std::max(cached[b] - 1, 0);
  for (size_t i = 0; i < sets[XFC_TARGET].positions.size(); ++i)
    slots.push_back(i * 3 % cacheRows);
  // Some rows are the first of their hypothesis; others share the row of the step before.
  for (size_t i = 0; i < slots.size(); ++i)
    before.push_back(i % 4 ? static_cast<int32_t>(i / 2 * 5 % cacheRows) : -1);
  shape.slots = slots.data();
  shape.before = before.data();
  shape.dropout_key[0] = 0x12345678;
  shape.dropout_key[1] = 0x9abcdef0;
  shape.training = training;

  const int relations[][2] = {
      {XFC_SOURCE, XFC_SOURCE}, {XFC_TARGET, XFC_TARGET}, {XFC_TARGET, XFC_SOURCE}, {XFC_TARGET, XFC_CACHE}};
  for (int relation = 0; relation < XFC_KEY_RELATIONS; ++relation)
    for (int kind = 0; kind < 4; ++kind) {
      const bool padding = kind / 2, causal = kind % 2;
      const xfc_rows &queries = shape.sets[relations[relation][0]], &rows = shape.sets[relations[relation][1]];
      const bool cache = relations[relation][1] == XFC_CACHE;
      const int index = XFC_KEYS(relation, padding, causal);
      Keys &k = structures[index];
      k.pairOffsets = {0};
      for (int b = 0; b < queries.sequences; ++b) {
        k.begin.push_back(k.keys.size());
        // Pads also occur in the middle of a sequence, and a sequence of one token has no key left.
        if (cache && !cached.empty())
          for (int j = 0; j < cached[b]; ++j)
            k.keys.push_back((j * 7 + 3) % cacheRows);
        else if (cache)
          for (int j = b % 3; j < rows.rows; j += 2)
            k.keys.push_back(j);
        else if (b < rows.sequences)
          for (int j = rows.offsets[b]; j < rows.offsets[b + 1]; ++j)
            if (!padding || (rows.positions[j] % 5 != 3 && rows.offsets[b + 1] - rows.offsets[b] > 1))
              k.keys.push_back(j);
        const int count = k.keys.size() - k.begin.back();
        k.count.push_back(count);
        const int length = queries.offsets[b + 1] - queries.offsets[b];
        for (int i = 0; i < length; ++i) {
          int limit = count;
          if (causal) {
            limit = 0;
            while (limit < count && rows.positions[k.keys[k.begin.back() + limit]] <= i)
              ++limit;
          }
          k.limit.push_back(limit);
        }
        k.pairOffsets.push_back(k.pairOffsets.back() + int64_t(length) * count);
      }
      shape.keys[index] = {k.keys.data(),  k.begin.data(),       k.count.data(),
                           k.limit.data(), k.pairOffsets.data(), k.pairOffsets.back()};
    }
}

//===--------------------------------------------------------------------------------------------------------===//
// Running
//===--------------------------------------------------------------------------------------------------------===//

MLIRContext &context() {
  static MLIRContext *context = [] {
    auto *made = new MLIRContext(MLIRContext::Threading::DISABLED);
    DialectRegistry registry;
    registerEvaluators(registry);
    registerCPUKernels(registry);
    registerGPUKernels(registry);
    registerPlainLowerings(registry);
    made->appendDialectRegistry(registry);
    made->loadDialect<XFCDialect, func::FuncDialect, arith::ArithDialect, cf::ControlFlowDialect, linalg::LinalgDialect,
                      LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect, NVVM::NVVMDialect, scf::SCFDialect,
                      ub::UBDialect, vector::VectorDialect>();
    return made;
  }();
  return *context;
}

ObjectFile keptOr(ModuleOp kernels, llvm::ArrayRef<llvm::StringRef> parts, llvm::function_ref<ObjectFile()> compile) {
  static const ObjectCache cache = [] {
    const char *folder = std::getenv("XFC_TEST_CACHE");
    ObjectCache opened(folder ? folder : "");
    opened.prune();
    return opened;
  }();
  std::string text;
  if (cache)
    llvm::raw_string_ostream(text) << kernels;
  llvm::SmallVector<llvm::StringRef> all = {XFC_KERNEL_COMPILERS, text};
  all.append(parts.begin(), parts.end());
  return cache.findOr(all, compile);
}

std::function<void(int64_t, Tensor &)> setTarget(int64_t labels, int64_t smoothing) {
  return [=](int64_t operand, Tensor &tensor) {
    if (operand == labels) {
      const std::vector<double> ids = tensor.data; // one per row
      const auto count = static_cast<size_t>(tensor.features());
      tensor.data.resize(ids.size() * count);
      for (size_t i = 0; i < ids.size(); ++i)
        for (size_t j = 0; j < count; ++j)
          tensor.data[i * count + j] = j == 0             ? (i % 4 == 0 ? -1 : ids[i])
                                       : (i + j) % 5 == 0 ? -1
                                       : (i + j) % 5 == 1 ? ids[i]
                                                          : static_cast<double>((i * 3 + j * 11) % Batch::vocabulary);
    }
    if (operand == smoothing)
      for (double &share : tensor.data)
        share = tensor.shape.empty() ? 0.1 : std::abs(share) / 4;
  };
}

std::function<void(int64_t, Tensor &)> setLinks(const Batch &batch, RowSet queries, int structure) {
  return [&batch, queries, structure](int64_t operand, Tensor &tensor) {
    if (operand != 2) {
      for (double &x : tensor.data)
        x = 0.01 + std::abs(x) / 2;
      return;
    }
    const int64_t width = tensor.features();
    tensor.data.assign(tensor.shape[0] * width, -1);
    for (int64_t i = 0; i < tensor.shape[0]; ++i) {
      const int64_t keys =
          batch.shape.keys[structure].count[batch.shape.sets[static_cast<int>(queries)].sequence_of[i]];
      for (int64_t j = 0; j < std::min(width, keys); ++j)
        if ((i + j) % 4 != 3)
          tensor.data[i * width + j] = static_cast<double>((3 * i + j) % keys);
    }
  };
}

std::vector<std::pair<std::string, int>> elementwiseOps() {
  std::vector<std::pair<std::string, int>> ops;
  for (RegisteredOperationName op : context().getRegisteredOperationsByDialect("xfc"))
    if (op.hasInterface<ScalarOpInterface>() && op.getAttributeNames().empty()) {
      const int operands = op.hasTrait<OpTrait::OneOperand>() ? 1 : op.hasTrait<OpTrait::NOperands<3>::Impl>() ? 3 : 2;
      ops.emplace_back(op.getStringRef(), operands);
    }
  return ops;
}

namespace {

// A value in memory as a kernel sees it: [rows, stride], with guard patterns between and after the rows.
struct Memory {
  std::vector<char> bytes;
  Tensor tensor;      // its extents
  int64_t stride = 0; // of rows; 0 for other values
  Type element;
  char *data() { return reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64); }
  Block block() { return {data(), static_cast<int64_t>(bytes.data() + bytes.size() - data())}; }
  int64_t width() const { return stride ? tensor.features() : static_cast<int64_t>(tensor.data.size()); }
  int64_t count() const { return stride ? tensor.shape[0] : 1; }
  int64_t size() const { return element.getIntOrFloatBitWidth() / 8; }
  char *at(int64_t row, int64_t f) { return data() + (row * stride + f) * size(); }
  void allocate() { bytes.assign((count() * std::max(stride, width()) + 64) * size() + 256, static_cast<char>(0xff)); }
  void write() {
    const DType type = *dtypeOf(element);
    for (int64_t i = 0; i < count(); ++i)
      for (int64_t f = 0; f < width(); ++f)
        storeNumber(tensor.data[i * width() + f], type, at(i, f), 0);
  }
  void read() {
    const DType type = *dtypeOf(element);
    for (int64_t i = 0; i < count(); ++i)
      for (int64_t f = 0; f < width(); ++f)
        tensor.data[i * width() + f] = numberAt(type, at(i, f), 0);
  }
  bool untouched() const {
    return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == static_cast<char>(0xff); });
  }
  bool guarded() {
    for (int64_t i = 0; i < count(); ++i)
      for (char *p = at(i, width()), *end = i + 1 < count() ? at(i + 1, 0) : at(i, width()) + 64; p < end; ++p)
        if (*p != static_cast<char>(0xff))
          return false;
    return true;
  }
};

Memory memoryOf(const Batch &batch, Type type, int64_t extraStride) {
  Memory memory;
  if (auto rows = dyn_cast<RowsType>(type)) {
    memory.tensor.shape = {batch.rows(rows.getSet())};
    for (int64_t extent : rows.getShape())
      memory.tensor.shape.push_back(extent);
    memory.element = rows.getElementType();
    memory.stride = rows.getFeatures() + (memory.element.isInteger(32) ? 0
                                          : memory.size() < 4          ? (extraStride + 7) / 8 * 8
                                                                       : extraStride);
  } else if (auto pairs = dyn_cast<PairsType>(type)) {
    memory.tensor.shape = {batch.shape.keys[pairs.getStructure()].pairs * pairs.getHeads()};
    memory.element = pairs.getElementType();
  } else {
    auto tensor = cast<RankedTensorType>(type);
    memory.tensor.shape.assign(tensor.getShape().begin(), tensor.getShape().end());
    memory.element = tensor.getElementType();
  }
  int64_t elements = 1;
  for (int64_t extent : memory.tensor.shape)
    elements *= extent;
  memory.tensor.data.assign(elements, 0);
  memory.allocate();
  return memory;
}

// Sets the row and key sets of a launch as Schedule does.
void setsOf(const Batch &batch, Operation *op, xfc_call &call) {
  const LaunchDomain domain = cast<KernelOpInterface>(op).getLaunchDomain();
  call.rows = &batch.shape.sets[static_cast<int>(domain.rows)];
  call.key_rows = &batch.shape.sets[static_cast<int>(domain.keys)];
  call.keys = domain.structure ? &batch.shape.keys[*domain.structure] : nullptr;
}

// Splits "a, b<c, d>, e" at its outer commas.
std::vector<std::string> split(const std::string &list) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (char c : list) {
    depth += c == '<' ? 1 : c == '>' ? -1 : 0;
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else if (c != ' ' || !parts.back().empty())
      parts.back() += c;
  }
  return parts;
}

// The code of an op, given with its text. A test runs it with several strides, in place, and on several batches and
// operands, none of which the code depends on: it is compiled once for all of them.
std::shared_ptr<Code> codeOf(Operation *op, const std::string &text, Type element, const Options &options) {
  static std::map<std::string, std::shared_ptr<Code>> compiled;
  std::ostringstream key;
  key << text << static_cast<int>(options.device) << ' ' << options.cpu << ' ' << options.arch << ' '
      << options.evaluate;
  for (const PackedWeight &weight : options.weights)
    key << ' ' << weight.offset << ' ' << weight.rows << ' ' << weight.columns;
  std::shared_ptr<Code> &code = compiled[key.str()];
  if (!code)
    code = options.device == Device::GPU ? compileForGPU(op, options.arch) : compileForCPU(op, element, options);
  return code;
}

} // namespace

struct CompiledOp::State {
  std::string body;
  Options options;
  OwningOpRef<ModuleOp> module = {};
  Operation *op = nullptr;
  std::shared_ptr<Code> code = {};

  bool used(size_t result) const { return !op->getResult(result).use_empty(); }
};

CompiledOp::CompiledOp(const std::string &body, const std::vector<std::string> &types, const Options &options)
    : state(new State{body, options}) {
  std::string text = "func.func @f(",
              list = body.substr(body.rfind("->") == std::string::npos ? body.rfind(':') + 1 : body.rfind("->") + 2);
  for (size_t i = 0; i < types.size(); ++i)
    text += (i ? ", %a" : "%a") + std::to_string(i) + ": " + types[i];
  list.erase(0, list.find_first_not_of(" ("));
  list.erase(list.find_last_not_of(" )") + 1);
  const std::vector<std::string> results = split(list);
  std::string values, returned;
  for (size_t i = 0; i < results.size(); ++i)
    if (std::find(options.unused.begin(), options.unused.end(), i) == options.unused.end()) {
      values += (values.empty() ? "%r" : ", %r") + (results.size() > 1 ? "#" + std::to_string(i) : "");
      returned += (returned.empty() ? "" : ", ") + results[i];
    }
  if (options.decodingStep)
    text += ", %cache: !xfc.rows<cache, 1xf32>";
  text += ") -> (" + returned + ") {\n  %r" + (results.size() > 1 ? ":" + std::to_string(results.size()) : "") + " = " +
          body + "\n  return " + values + " : " + returned + "\n}\n";
  state->module = parseSourceString<ModuleOp>(text, &context());
  if (!state->module)
    throw std::runtime_error("cannot parse: " + text);
  Operation *op = state->op = &(*state->module->getOps<func::FuncOp>().begin()).getBody().front().front();

  // The first floats tell the type; partial sums, which are always f64, come later.
  Type element;
  for (Type type : op->getNumOperands() ? TypeRange(op->getOperandTypes()) : TypeRange(op->getResultTypes()))
    if (auto rows = dyn_cast<RowsType>(type); !element && rows && !rows.getElementType().isInteger(32))
      element = rows.getElementType();
    else if (auto pairs = dyn_cast<PairsType>(type); !element && pairs)
      element = pairs.getElementType();
    else if (auto tensor = dyn_cast<RankedTensorType>(type); !element && tensor)
      element = tensor.getElementType();
  if (!element || element.isBF16())
    element = Float32Type::get(&context());

  state->code = codeOf(op, text, element, options);
}

CompiledOp::~CompiledOp() = default;

const char *lesserCPU() { return std::getenv("XFC_TEST_CPU"); }

std::string Target::missing() const {
  const auto target = makeTarget(Platform::CPU, cpu);
  const InstructionSet &set = static_cast<const ImageTarget &>(*target).set;
  // Without AVX-512 its vectors are split in two, VNNI and conversions to bf16 are replaced by plain code, and tiles
  // are emulated.
  if (set.amx)
    return prepareTiles() == TileUnit::None ? "the tiles of AMX" : "";
  if (!set.bf16)
    return "";
  return lesserCPU() ? "AVX512-BF16" : missingFeatures(set.needed);
}

Outcome CompiledOp::run(const Batch &batch) {
  const auto &[body, options, module, op, code] = *state;
  const std::vector<Code::Packing> &packings = code->packings;
  Outcome outcome;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<Memory> memory;
  std::vector<Tensor> operands;
  for (auto [i, type] : llvm::enumerate(op->getOperandTypes())) {
    Memory m = memoryOf(batch, type, options.extraStride);
    if (auto rows = dyn_cast<RowsType>(type); rows && rows.getElementType().isInteger(32)) {
      const auto &ids = batch.ids[static_cast<int>(rows.getSet())];
      m.tensor.data.assign(ids.begin(), ids.end());
    } else {
      for (double &x : m.tensor.data)
        x = uniform(random);
    }
    if (options.set)
      options.set(i, m.tensor);
    m.write();
    m.read(); // as rounded to its type
    operands.push_back(m.tensor);
    memory.push_back(std::move(m));
  }
  if (options.evaluate) {
    SmallVector<Tensor> expected;
    if (failed(cast<EvaluableOpInterface>(op).evaluate(batch.shape, operands, expected)))
      throw std::runtime_error("cannot evaluate " + body);
    for (auto [i, tensor] : llvm::enumerate(expected))
      if (state->used(i))
        outcome.expected.push_back(tensor);
  }

  const size_t n = memory.size();
  for (Type type : op->getResultTypes())
    memory.push_back(memoryOf(batch, type, options.extraStride));
  std::vector<Block> blocks;
  std::vector<int64_t> strides;
  auto placeOf = [&, &options = options, op = op](size_t i) -> size_t {
    if (isa<OptimizeOp, RowMomentsOp, ColumnMomentsOp, FactoredUpdateOp>(op) && i >= n) { // what is updated in place
      const int64_t replaced = cast<KernelOpInterface>(op).getInPlaceOperand(i - n);
      return replaced < 0 ? i : replaced;
    }
    auto kernel = dyn_cast<KernelOpInterface>(op);
    if (kernel && kernel.isAlwaysInPlace() && i >= n && kernel.getInPlaceOperand(i - n) >= 0)
      return kernel.getInPlaceOperand(i - n);
    return i >= n && options.inPlace && i == n ? 0 : i;
  };
  for (size_t i = 0; i < memory.size(); ++i) {
    blocks.push_back(memory[placeOf(i)].block());
    strides.push_back(memory[placeOf(i)].stride);
  }
  std::vector<GuardedBytes> packed;
  packed.reserve(packings.size());
  const PartedTensors parted = cast<KernelOpInterface>(op).getPartedTensors();
  std::vector<xfc_repacked_weight> repacked;
  for (const PackedWeight &weight : options.weights)
    repacked.push_back({weight.offset, weight.rows, weight.columns});
  for (auto [i, packing] : llvm::enumerate(packings)) {
    packed.emplace_back(packing.bytes);
    if (!options.weights.empty()) {
      blocks.push_back(options.weights[packing.operand / 2].wanted[packing.operand % 2] ? packed.back().block()
                                                                                        : Block{});
      continue;
    }
    code->pack(i, blocks[packing.operand], packed.back().block());
    EXPECT_TRUE(packed.back().guarded()) << body << ": packing wrote past its end";
    blocks[packing.operand] = packed.back().block();
  }
  std::vector<void *> buffers;
  for (const Block &block : blocks)
    buffers.push_back(block.data);
  xfc_call call{.shape = &batch.shape,
                .buffers = buffers.data(),
                .strides = strides.data(),
                .dropout = options.dropout,
                .elements = parted.chunks ? parted.chunks : options.elements,
                .tensors = parted.tensors.data(),
                .repacked_count = static_cast<int64_t>(repacked.size()),
                .repacked = repacked.data()};
  setsOf(batch, op, call);
  code->run(batch, call, blocks, parted.tensors.size());
  for (size_t i = 0; i < 2 * options.weights.size(); ++i) {
    const PackedWeight &weight = options.weights[i / 2];
    GuardedBytes expected(packings[i].bytes);
    if (weight.wanted[i % 2])
      code->pack(i, {memory[2].at(0, weight.offset), 0}, expected.block());
    EXPECT_TRUE(packed[i].guarded() && std::equal(expected.data(), expected.data() + expected.size, packed[i].data()))
        << body << ": the packed copy of the weight at " << weight.offset << (i % 2 ? ", transposed" : "");
  }
  for (size_t i = n; i < memory.size(); ++i) {
    Memory &m = memory[placeOf(i)];
    if (!state->used(i - n)) {
      EXPECT_TRUE(m.untouched()) << body << ": wrote result " << i - n << ", which nothing reads";
      continue;
    }
    EXPECT_TRUE(m.guarded()) << body << ": wrote past the features of result " << i - n;
    m.read();
    outcome.kernel.push_back(m.tensor);
  }
  return outcome;
}

std::vector<OpCase> factoredStep(const Optimizer &optimizer, const std::string &element,
                                 const std::vector<std::vector<int64_t>> &shapes, double clipValue) {
  auto typeOf = [&](const std::vector<int64_t> &shape, const std::string &of) {
    std::string text = "tensor<";
    for (int64_t extent : shape)
      text += std::to_string(extent) + "x";
    return text + of + ">";
  };
  const auto scalars = static_cast<int64_t>(optimizer.hyper.size());
  std::vector<std::string> tensors, rows, matrixRows, parts, columnSums, columns;
  for (const std::vector<int64_t> &shape : shapes) {
    const MatrixForm form(RankedTensorType::get(shape, Float32Type::get(&context())));
    tensors.push_back(typeOf(shape, element));
    parts.push_back(typeOf({form.parts}, "f64"));
    rows.push_back(typeOf(*shapeOfState("row_mean", shape), element));
    if (form.factored) {
      matrixRows.push_back(rows.back());
      columnSums.push_back(typeOf({form.parts, form.columns}, "f64"));
      columns.push_back(typeOf({form.columns}, element));
    }
  }
  const std::vector<std::string> none, averages = optimizer.averages ? tensors : none;

  // Adds lists of operands, each after a word and with the least value that is set in it, or no limit.
  std::vector<OpCase> cases;
  struct List {
    std::string before;
    std::vector<std::string> types;
    double least;
  };
  const double any = -HUGE_VAL;
  auto add = [&](const std::string &name, bool clips, const std::vector<List> &lists,
                 const std::vector<std::vector<std::string>> &results) {
    OpCase made{"xfc." + name + " \"" + optimizer.rule + "\" %a0", {typeOf({scalars}, element)}, "", {}};
    std::vector<double> least = {any};
    if (clips) {
      made.op += ", %a1";
      made.operands.push_back(typeOf({}, element));
      least.push_back(any);
    }
    for (const List &list : lists) {
      made.op += " " + list.before + "(";
      for (size_t i = 0; i < list.types.size(); ++i) {
        made.op += (i ? ", %a" : "%a") + std::to_string(made.operands.size());
        made.operands.push_back(list.types[i]);
        least.push_back(list.least);
      }
      made.op += ")";
    }
    for (const std::vector<std::string> &kind : results)
      for (const std::string &type : kind)
        made.results += (made.results.empty() ? "" : ", ") + type;
    made.options.set = [&optimizer, least, clipValue, any](int64_t i, Tensor &t) {
      const OptimizerSettings settings{.rate = 0.01,
                                       .weightDecay = 0.1,
                                       .eps1 = 1e-3,
                                       .eps2 = 0.1,
                                       .clipThreshold = 0.5,
                                       .scaleParameter = true,
                                       .clipValue = clipValue,
                                       .averageDecay = 0.9};
      if (i == 0)
        for (size_t h = 0; h < optimizer.hyper.size(); ++h)
          t.data[h] = optimizer.hyper[h].value(settings, 2);
      if (least[i] > any) // what is a mean or a sum of squares
        for (double &x : t.data)
          x = least[i] + std::abs(x);
    };
    cases.push_back(std::move(made));
  };
  add("row_moments", true, {{"parameters", tensors, any}, {"gradients", tensors, any}, {"rows", rows, 0.1}},
      {rows, parts, columnSums});
  if (!columns.empty())
    add("column_moments", false, {{"rows", matrixRows, 0.1}, {"sums", columnSums, 0}, {"columns", columns, 0.1}},
        {columns, columns});
  add("update_squares", true, {{"gradients", tensors, any}, {"rows", rows, 0.1}, {"factors", columns, 0.1}}, {parts});
  add("factored_update", true,
      {{"parameters", tensors, any},
       {"gradients", tensors, any},
       {"rows", rows, 0.1},
       {"factors", columns, 0.1},
       {"squares", parts, 100},
       {",", parts, 100000},
       {"averages", averages, any}},
      {tensors, averages});
  return cases;
}

void expectClose(const Outcome &outcome, double tolerance, const std::string &what) {
  ASSERT_EQ(outcome.kernel.size(), outcome.expected.size()) << what;
  for (size_t i = 0; i < outcome.kernel.size(); ++i) {
    const std::vector<double> &got = outcome.kernel[i].data, &want = outcome.expected[i].data;
    ASSERT_EQ(got.size(), want.size()) << what << ", result " << i;
    double scale = 1;
    for (double x : want)
      if (std::isfinite(x))
        scale = std::max(scale, std::abs(x));
    for (size_t j = 0; j < got.size(); ++j)
      if (!(got[j] == want[j] || std::abs(got[j] - want[j]) <= tolerance * scale ||
            (std::isnan(got[j]) && std::isnan(want[j])))) {
        ADD_FAILURE() << what << ", result " << i << ", element " << j << ": " << got[j] << ", expected " << want[j]
                      << " to " << tolerance * scale;
        break;
      }
  }
}

} // namespace xfc::test
