// Runs products on the CPU device in the way in which it decodes many hypotheses: each thread takes rows of its own
// through all launches, chunk by chunk. The results are those of one thread, which runs launch after launch.
#include "Code.h"
#include "device/cpu/CpuDevice.h"
#include "engine/Batch.h"
#include "engine/Engine.h"
#include "engine/Safetensors.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "plan/Serialization.h"
#include "trace/Trace.h"
#include <atomic>
#include <bit>

// The images of an executable, which a test brings along instead.
extern "C" const xfc_image *const xfc_images[] = {nullptr};
extern "C" const xfc_device_image *const xfc_device_images[] = {nullptr};

using namespace xfc;
using namespace xfc::test;

namespace {

xfc_kernel product = nullptr;
std::atomic<int64_t> allRows = 0, ownCalls = 0; // of a batch; calls with some of them
void countingProduct(const xfc_call *call, int64_t chunk, int64_t previous, void *scratch) {
  ownCalls += call->rows->rows < allRows;
  product(call, chunk, previous, scratch);
}

class OwnRows : public testing::TestWithParam<test::Target> {
protected:
  static constexpr int64_t in = 70, out = 1090; // 18 groups of 64 columns, in five slabs

  void SetUp() override {
    if (const std::string missing = GetParam().missing(); !missing.empty())
      GTEST_SKIP() << "this CPU lacks " << missing;
    const std::string x = "!xfc.rows<target, " + std::to_string(in) + "xf32>",
                      y = "!xfc.rows<target, " + std::to_string(out) + "xf32>",
                      w = "tensor<" + std::to_string(out) + "x" + std::to_string(in) + "xf32>";
    const std::string types = "(" + x + ", " + w + ") -> " + y;
    module = mlir::parseSourceString<mlir::ModuleOp>("func.func @f(%x: " + x + ", %w: " + w + ") -> " + y +
                                                         " {\n  %y = xfc.linear %x, %w in " + GetParam().compute +
                                                         " : " + types + "\n  return %y : " + y + "\n}\n",
                                                     &context());
    ASSERT_TRUE(module);
    mlir::Operation *op = &(*module->getOps<mlir::func::FuncOp>().begin()).getBody().front().front();
    code = compileForCPU(op, mlir::Float32Type::get(&context()), {.cpu = GetParam().cpu});
    const HostKernels compiled = code->hostKernels();
    ASSERT_EQ(compiled.pack.size(), 1u);
    ASSERT_EQ(compiled.info.partition.unit, Partition::Unit::Rows);
    ASSERT_GE(compiled.info.partition.times, 5);
    product = compiled.kernel;
    kernels = {compiled.pack[0], countingProduct};
    plan = serialize(planOf(compiled));
    image = {XFC_ABI_VERSION, 2, "any", "", kernels.data(), plan.data(), plan.size()};
  }

  // Two launches of the product, on other rows with another weight.
  xfc::Module planOf(const HostKernels &compiled) const {
    xfc::Module plan;
    const int64_t weight = out * in;
    plan.parameterElements = 2 * weight;
    plan.kernels = {{"pack", {Partition::Unit::One, 1, compiled.packChunks[0]}, 0},
                    {"product", compiled.info.partition, compiled.info.scratch}};
    xfc::Program step{.name = "decode_step", .rowByRow = true};
    Size rows, flops;
    rows.rows[XFC_TARGET] = out * 4;
    flops.rows[XFC_TARGET] = 2 * weight;
    for (int64_t i : {0, 1}) {
      const std::string number = std::to_string(i);
      plan.parameters.push_back({"w" + number, {}, {out, in}, i * weight, "xavier_uniform", in, out});
      plan.packed.push_back(
          {0, {Place::Kind::Parameters, 0, i * weight * 4}, code->packings[0].bytes, compiled.packChunks[0]});
      step.arguments.push_back({"x" + number, Argument::Role::Input, DType::F32, XFC_TARGET, {in}});
      step.buffers.push_back({rows, static_cast<int32_t>(i), 1});
      step.outputs.push_back({"y" + number, {Place::Kind::Arena, i, 0}, DType::F32, XFC_TARGET, -1, {out}, out});
      Step launch;
      launch.kernel = 1;
      launch.set = launch.keySet = XFC_TARGET;
      launch.buffers = {{Place::Kind::Argument, i, 0}, {Place::Kind::Packed, i, 0}, {Place::Kind::Arena, i, 0}};
      launch.strides = {in, 0, out};
      launch.flops = flops;
      step.steps.push_back(launch);
    }
    plan.programs = {step};
    return plan;
  }

  // Both results for so many hypotheses.
  std::vector<float> run(int64_t hypotheses, int threads, bool traced = false) {
    Engine engine(cpuDevice(image), threads);
    initializeParameters(engine, 1);
    Trace trace(threads);
    engine.traceTo(traced ? &trace : nullptr);
    std::vector<float> x[2];
    for (int i : {0, 1})
      for (int64_t at = 0; at < hypotheses * in; ++at)
        x[i].push_back(static_cast<float>((at * 37 + i * 11) % 101 - 50) / static_cast<float>(1 + at / in % 7));
    std::vector<int32_t> slots(hypotheses), zeros(hypotheses);
    std::vector<std::span<const int32_t>> history;
    for (int64_t h = 0; h < hypotheses; ++h) {
      slots[h] = static_cast<int32_t>(h);
      history.push_back({&slots[h], 1});
    }
    const int32_t id = 4, row = 0;
    const EncodedSentence sentence{{&id, 1}, {&row, 1}};
    xfc::Batch batch;
    batch.assignStep({&sentence, 1}, 0, 1, zeros, zeros, slots, history, hypotheses);
    allRows = hypotheses;
    ownCalls = 0;
    const Binding bindings[] = {{"x0", x[0].data(), in}, {"x1", x[1].data(), in}};
    engine.run("decode_step", batch.shape(), bindings);
    std::vector<float> results;
    for (const char *name : {"y0", "y1"}) {
      const View view = engine.output("decode_step", name);
      for (int64_t h = 0; h < hypotheses; ++h)
        for (int64_t j = 0; j < out; ++j)
          results.push_back(static_cast<float>(view.at(h, j)));
    }
    return results;
  }

  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<Code> code;
  std::vector<xfc_kernel> kernels;
  std::vector<uint8_t> plan;
  xfc_image image = {};
};

// A thread's rows are one block, whose rounded rows all chunks after the first find in scratch, or several blocks. The
// second launch finds there what the first has left.
TEST_P(OwnRows, GiveTheBitsOfOneThread) {
  for (const auto &[hypotheses, threads] : {std::pair(100, 2), {170, 3}, {600, 2}}) {
    const std::vector<float> one = run(hypotheses, 1);
    EXPECT_EQ(ownCalls, 0);
    for (const bool traced : {false, true}) {
      const std::vector<float> several = run(hypotheses, threads, traced);
      EXPECT_GE(ownCalls, threads * 2 * 5) << "threads do not have rows of their own";
      ASSERT_EQ(one.size(), several.size());
      size_t differing = 0;
      for (size_t i = 0; i < one.size(); ++i)
        differing += std::bit_cast<uint32_t>(one[i]) != std::bit_cast<uint32_t>(several[i]);
      EXPECT_EQ(differing, 0u) << "of " << one.size() << " numbers, for " << hypotheses << " hypotheses"
                               << (traced ? ", traced" : "");
    }
  }
}

const test::Target products[] = {{.compute = "int8"},
                                 {.compute = "bf16"},
                                 {.cpu = "x86-64-v4+amx", .compute = "int8"},
                                 {.cpu = "x86-64-v4+amx", .compute = "bf16"}};
INSTANTIATE_TEST_SUITE_P(CPU, OwnRows, testing::ValuesIn(products), test::nameOf);

} // namespace
