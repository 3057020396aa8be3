// Tests the engine on a GPU with hand-written PTX and the driver of tests/ptx: what it computes, caches, copies and
// allocates.
#include "device/cuda/CudaDevice.h"
#include "device/cuda/Driver.h"
#include "engine/Batch.h"
#include "engine/Engine.h"
#include "engine/Safetensors.h"
#include "plan/Memory.h"
#include "plan/Serialization.h"
#include "plan/StepTable.h"
#include "variable.h"
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace xfc;

namespace {

constexpr int64_t width = 4;

// Offsets in an xfc_call: rows 8, buffers 32, strides 40; in xfc_rows: rows 0, positions 24; in xfc_shape: slots 936.
static_assert(offsetof(xfc_call, rows) == 8 && offsetof(xfc_call, buffers) == 32 && offsetof(xfc_call, strides) == 40);
static_assert(offsetof(xfc_rows, positions) == 24 && offsetof(xfc_shape, slots) == 936);
// In an xfc_step: instructions 8, finished 16; in an xfc_instruction: body 8, chunks 12, waits 16, wait_count 24,
// weight 32, weight_bytes 40; in an xfc_wait: chunks 4.
static_assert(offsetof(xfc_step, instructions) == 8 && offsetof(xfc_step, finished) == 16 &&
              offsetof(xfc_instruction, body) == 8 && offsetof(xfc_instruction, chunks) == 12 &&
              offsetof(xfc_instruction, waits) == 16 && offsetof(xfc_instruction, wait_count) == 24 &&
              offsetof(xfc_instruction, weight) == 32 && offsetof(xfc_instruction, weight_bytes) == 40 &&
              sizeof(xfc_instruction) == 48 && offsetof(xfc_wait, chunks) == 4);

const char ptx[] = R"(
.version 7.1
.target sm_80
.address_size 64

// weight [4][4] -> its transpose. A row a block.
.visible .entry pack(.param .u64 call) .reqntid 32 {
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<2>;
  ld.param.u64 %d0, [call];
  ld.global.u64 %d1, [%d0+32];
  ld.global.u64 %d2, [%d1];
  ld.global.u64 %d3, [%d1+8];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  setp.ge.u32 %p0, %r0, 4;
  @%p0 ret;
  mad.lo.u32 %r2, %r1, 4, %r0;
  mul.wide.u32 %d4, %r2, 4;
  add.u64 %d4, %d2, %d4;
  ld.global.f32 %f0, [%d4];
  mad.lo.u32 %r3, %r0, 4, %r1;
  mul.wide.u32 %d5, %r3, 4;
  add.u64 %d5, %d3, %d5;
  st.global.f32 [%d5], %f0;
  ret;
}

// x, packed weight, table of positions -> x W^T + table, in rows of the result's stride. Eight rows per block.
.visible .entry linear(.param .u64 call) .reqntid 32 {
  .reg .pred %p<3>; .reg .b32 %r<12>; .reg .b64 %d<28>; .reg .f32 %f<4>;
  ld.param.u64 %d0, [call];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  shr.u32 %r2, %r0, 2;
  and.b32 %r3, %r0, 3;
  mad.lo.u32 %r4, %r1, 8, %r2;
  cvt.u64.u32 %d1, %r4;
  ld.global.u64 %d2, [%d0+8];
  ld.global.u64 %d3, [%d2];
  setp.ge.u64 %p0, %d1, %d3;
  @%p0 ret;
  ld.global.u64 %d4, [%d0+32];
  ld.global.u64 %d5, [%d4];
  ld.global.u64 %d6, [%d4+8];
  ld.global.u64 %d7, [%d4+16];
  ld.global.u64 %d8, [%d4+24];
  ld.global.u64 %d9, [%d0+40];
  ld.global.u64 %d10, [%d9];
  ld.global.u64 %d11, [%d9+24];
  ld.global.u64 %d12, [%d2+24];
  shl.b64 %d13, %d1, 2;
  add.u64 %d13, %d12, %d13;
  ld.global.u32 %r5, [%d13];
  mad.lo.u32 %r6, %r5, 4, %r3;
  mul.wide.u32 %d14, %r6, 4;
  add.u64 %d14, %d7, %d14;
  ld.global.f32 %f0, [%d14];
  mul.lo.u64 %d15, %d1, %d10;
  shl.b64 %d15, %d15, 2;
  add.u64 %d15, %d5, %d15;
  mul.wide.u32 %d16, %r3, 4;
  add.u64 %d16, %d6, %d16;
  mov.u32 %r7, 0;
LOOP:
  ld.global.f32 %f1, [%d15];
  ld.global.f32 %f2, [%d16];
  fma.rn.f32 %f0, %f1, %f2, %f0;
  add.u64 %d15, %d15, 4;
  add.u64 %d16, %d16, 16;
  add.u32 %r7, %r7, 1;
  setp.lt.u32 %p1, %r7, 4;
  @%p1 bra LOOP;
  mul.lo.u64 %d17, %d1, %d11;
  cvt.u64.u32 %d18, %r3;
  add.u64 %d17, %d17, %d18;
  shl.b64 %d17, %d17, 2;
  add.u64 %d17, %d8, %d17;
  st.global.f32 [%d17], %f0;
  ret;
}

// weight, gradient -> twice the weight and its transpose; the gradient becomes the weight as it was. A row a block.
.visible .entry update(.param .u64 call) .reqntid 32 {
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %d<10>; .reg .f32 %f<3>;
  ld.param.u64 %d0, [call];
  ld.global.u64 %d1, [%d0+32];
  ld.global.u64 %d2, [%d1];
  ld.global.u64 %d3, [%d1+8];
  ld.global.u64 %d7, [%d1+16];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  setp.ge.u32 %p0, %r0, 4;
  @%p0 ret;
  mad.lo.u32 %r2, %r1, 4, %r0;
  mul.wide.u32 %d4, %r2, 4;
  add.u64 %d5, %d2, %d4;
  ld.global.f32 %f0, [%d5];
  add.u64 %d8, %d7, %d4;
  st.global.f32 [%d8], %f0;
  add.f32 %f1, %f0, %f0;
  st.global.f32 [%d5], %f1;
  mad.lo.u32 %r3, %r0, 4, %r1;
  mul.wide.u32 %d6, %r3, 4;
  add.u64 %d6, %d3, %d6;
  st.global.f32 [%d6], %f1;
  ret;
}

// x -> cache row slots[row]. A row a block.
.visible .entry store(.param .u64 call) .reqntid 32 {
  .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %d<16>; .reg .f32 %f<2>;
  ld.param.u64 %d0, [call];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  cvt.u64.u32 %d1, %r1;
  ld.global.u64 %d2, [%d0+8];
  ld.global.u64 %d3, [%d2];
  setp.ge.u64 %p0, %d1, %d3;
  @%p0 ret;
  setp.ge.u32 %p1, %r0, 4;
  @%p1 ret;
  ld.global.u64 %d4, [%d0];
  ld.global.u64 %d5, [%d4+936];
  shl.b64 %d6, %d1, 2;
  add.u64 %d6, %d5, %d6;
  ld.global.u32 %r2, [%d6];
  ld.global.u64 %d7, [%d0+32];
  ld.global.u64 %d8, [%d7];
  ld.global.u64 %d9, [%d7+8];
  mad.lo.u32 %r3, %r1, 4, %r0;
  mul.wide.u32 %d10, %r3, 4;
  add.u64 %d10, %d8, %d10;
  ld.global.f32 %f0, [%d10];
  mad.lo.u32 %r4, %r2, 4, %r0;
  mul.wide.u32 %d11, %r4, 4;
  add.u64 %d11, %d9, %d11;
  st.global.f32 [%d11], %f0;
  ret;
}

// result, parts: block c leaves c + 1 in parts where there are more than 2048 rows, else block 0 makes the result 1.
.visible .entry parts(.param .u64 call) .reqntid 32 {
  .reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %d<8>; .reg .f32 %f<2>;
  ld.param.u64 %d0, [call];
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 ret;
  mov.u32 %r1, %ctaid.x;
  ld.global.u64 %d1, [%d0+8];
  ld.global.u64 %d2, [%d1];
  ld.global.u64 %d3, [%d0+32];
  setp.gt.u64 %p1, %d2, 2048;
  @%p1 bra MANY;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 ret;
  ld.global.u64 %d4, [%d3];
  mov.f32 %f0, 0f3F800000;
  st.global.f32 [%d4], %f0;
  ret;
MANY:
  mul.wide.u32 %d5, %r1, 2048;
  setp.ge.u64 %p3, %d5, %d2;
  @%p3 ret;
  ld.global.u64 %d4, [%d3+8];
  mul.wide.u32 %d6, %r1, 4;
  add.u64 %d6, %d4, %d6;
  add.u32 %r2, %r1, 1;
  cvt.rn.f32.u32 %f0, %r2;
  st.global.f32 [%d6], %f0;
  ret;
}

// result, parts: their sum.
.visible .entry merge(.param .u64 call) .reqntid 32 {
  .reg .pred %p<3>; .reg .b32 %r<2>; .reg .b64 %d<8>; .reg .f32 %f<2>;
  ld.param.u64 %d0, [call];
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 ret;
  ld.global.u64 %d1, [%d0+8];
  ld.global.u64 %d2, [%d1];
  ld.global.u64 %d3, [%d0+32];
  ld.global.u64 %d4, [%d3];
  ld.global.u64 %d5, [%d3+8];
  mov.u64 %d6, 0;
  mov.f32 %f0, 0f00000000;
LOOP:
  ld.global.f32 %f1, [%d5];
  add.f32 %f0, %f0, %f1;
  add.u64 %d5, %d5, 4;
  add.u64 %d6, %d6, 2048;
  setp.lt.u64 %p1, %d6, %d2;
  @%p1 bra LOOP;
  st.global.f32 [%d4], %f0;
  ret;
}

// result: how many rows there are; or that they are few.
.visible .entry count(.param .u64 call) .reqntid 32 {
  .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %d<6>; .reg .f32 %f<2>;
  ld.param.u64 %d0, [call];
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 ret;
  ld.global.u64 %d1, [%d0+8];
  ld.global.u64 %d2, [%d1];
  ld.global.u64 %d3, [%d0+32];
  ld.global.u64 %d4, [%d3];
  cvt.rn.f32.u64 %f0, %d2;
  st.global.f32 [%d4], %f0;
  ret;
}
.visible .entry few(.param .u64 call) .reqntid 32 {
  .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %d<6>; .reg .f32 %f<2>;
  ld.param.u64 %d0, [call];
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 ret;
  ld.global.u64 %d3, [%d0+32];
  ld.global.u64 %d4, [%d3];
  mov.f32 %f0, 0fBF800000;
  st.global.f32 [%d4], %f0;
  ret;
}

// An xfc_step: the first buffer of instruction i becomes 1000000 * wait_count + 10000 * weight_bytes + 1000 * blocks +
// 100 * i + 10 * body + chunks, plus its counter, which has to be 0. If there are weight_bytes, they are of the next
// instruction's second buffer. The first wait, if there is one, is for the chunks of instruction 0.
.visible .entry steps(.param .u64 step) .reqntid 32 {
  .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<12>; .reg .f32 %f<2>;
  ld.param.u64 %d0, [step];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  or.b32 %r0, %r0, %r1;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 ret;
  mov.u32 %r2, %nctaid.x;
  ld.global.u64 %d1, [%d0];
  ld.global.u64 %d2, [%d0+8];
  ld.global.u64 %d3, [%d0+16];
  mov.u64 %d4, 0;
NEXT:
  ld.global.u64 %d5, [%d2];
  ld.global.u32 %r3, [%d2+8];
  ld.global.u32 %r4, [%d2+12];
  ld.global.u64 %d6, [%d5+32];
  ld.global.u64 %d6, [%d6];
  cvt.u32.u64 %r5, %d4;
  mad.lo.u32 %r6, %r2, 1000, %r4;
  mad.lo.u32 %r6, %r5, 100, %r6;
  mad.lo.u32 %r6, %r3, 10, %r6;
  ld.global.u32 %r7, [%d3];
  add.u32 %r6, %r6, %r7;
  ld.global.u32 %r9, [%d2+24];
  mad.lo.u32 %r6, %r9, 1000000, %r6;
  setp.eq.u32 %p3, %r9, 0;
  @%p3 bra FREE;
  ld.global.u64 %d9, [%d2+16];
  ld.global.u64 %d10, [%d0+8];
  ld.global.u32 %r9, [%d9];
  setp.ne.u32 %p3, %r9, 0;
  @%p3 trap;
  ld.global.u32 %r9, [%d9+4];
  ld.global.u32 %r10, [%d10+12];
  setp.ne.u32 %p3, %r9, %r10;
  @%p3 trap;
FREE:
  ld.global.u32 %r8, [%d2+40];
  mad.lo.u32 %r6, %r8, 10000, %r6;
  setp.eq.u32 %p2, %r8, 0;
  @%p2 bra SAME;
  ld.global.u64 %d7, [%d2+32];
  ld.global.u64 %d8, [%d2+48];
  ld.global.u64 %d8, [%d8+32];
  add.u64 %d8, %d8, 8;
  setp.ne.u64 %p2, %d7, %d8;
  @%p2 trap;
SAME:
  cvt.rn.f32.u32 %f0, %r6;
  st.global.f32 [%d6], %f0;
  add.u64 %d2, %d2, 48;
  add.u64 %d3, %d3, 4;
  add.u64 %d4, %d4, 1;
  setp.lt.u64 %p1, %d4, %d1;
  @%p1 bra NEXT;
  ret;
}
)";

Module model() {
  Module module;
  module.model = "linear";
  module.parameterElements = 32;
  module.states = {{"moment1"}, {"moment2"}};
  module.parameters = {{"unused", {}, {16}, 0, "one", 0, 0}, {"w", {}, {width, width}, 16, "xavier_uniform", 4, 4}};
  module.tables = {{100, width, 10000, 2, 1, false}};
  module.kernels = {{"pack", {Partition::Unit::One, 1, 4}, 0, 32},
                    {"linear", {Partition::Unit::Rows, 8, 1}, 64, 32},
                    {"update", {Partition::Unit::One, 1, 4}, 0, 32},
                    {"store", {Partition::Unit::Rows, 1, 1}, 0, 32},
                    {"parts", {Partition::Unit::Rows, chunkRows, 1}, 0, 32, -1, 0, 5},
                    {"merge", {Partition::Unit::One, 1, 1}, 0, 32},
                    {"count", {Partition::Unit::One, 1, 1}, 0, 32, 7, 40},
                    {"few", {Partition::Unit::One, 1, 1}, 0, 32},
                    {.name = "steps", .threads = 32, .bodies = {4, 7}}};
  module.packed = {{0, {Place::Kind::Parameters, 0, 64}, 64, 4}};
  Program forward;
  forward.name = "forward";
  forward.arguments = {{"source", Argument::Role::Input, DType::F32, XFC_SOURCE, {width}}};
  Size rows;
  rows.rows[XFC_SOURCE] = 2 * width * 4; // each row is followed by one that nothing writes
  forward.buffers = {{rows, 0, 1}};
  Step step;
  step.kernel = 1;
  step.buffers = {{Place::Kind::Argument, 0, 0},
                  {Place::Kind::Packed, 0, 0},
                  {Place::Kind::Table, 0, 0},
                  {Place::Kind::Arena, 0, 16}};
  step.strides = {width, 0, 0, 2 * width};
  step.flops.rows[XFC_SOURCE] = 32;
  step.location = "encoder.layers.0.linear";
  forward.steps = {step};
  forward.outputs = {{"encoder_output", {Place::Kind::Arena, 0, 16}, DType::F32, XFC_SOURCE, -1, {width}, 2 * width},
                     {"whole", {Place::Kind::Arena, 0, 0}, DType::F32, XFC_SOURCE, -1, {2 * width}, 2 * width}};
  module.programs = {forward};
  Step update;
  update.kernel = 2;
  update.buffers = {{Place::Kind::Parameters, 0, 64}, {Place::Kind::Packed, 0, 0}, {Place::Kind::Gradients, 0, 64}};
  update.strides = {0, 0, 0};
  module.programs.push_back({.name = "update", .steps = {update}});
  Program store;
  store.name = "store";
  store.arguments = {{"x", Argument::Role::Input, DType::F32, XFC_TARGET, {width}},
                     {"cache", Argument::Role::State, DType::F32, XFC_CACHE, {width}}};
  Step write;
  write.kernel = 3;
  write.set = write.keySet = XFC_TARGET;
  write.buffers = {{Place::Kind::Argument, 0, 0}, {Place::Kind::Argument, 1, 0}};
  write.strides = {width, width};
  store.steps = {write};
  store.outputs = {{"cache", {Place::Kind::Argument, 1, 0}, DType::F32, XFC_CACHE, -1, {width}, width}};
  module.programs.push_back(store);
  // A number from a kernel with a merge kernel, and one from a kernel with a small-M variant.
  Program sum;
  sum.name = "sum";
  Size number, parts;
  number.constant = 4;
  parts.chunks[XFC_SOURCE] = 4;
  sum.buffers = {{number, 0, 1}, {parts, 0, 0}, {number, 1, 1}};
  Step add, choose;
  add.kernel = 4;
  add.buffers = {{Place::Kind::Arena, 0, 0}, {Place::Kind::Arena, 1, 0}};
  add.strides = {0, 0};
  add.flops.rows[XFC_SOURCE] = 1;
  choose.kernel = 6;
  choose.buffers = {{Place::Kind::Arena, 2, 0}};
  choose.strides = {0};
  sum.steps = {add, choose};
  sum.outputs = {{"sum", {Place::Kind::Arena, 0, 0}, DType::F32, -1, -1, {1}, 0},
                 {"count", {Place::Kind::Arena, 2, 0}, DType::F32, -1, -1, {1}, 0}};
  module.programs.push_back(sum);
  return module;
}

const std::vector<uint8_t> plan = serialize(model());
const xfc_device_image image{XFC_ABI_VERSION, 9, "sm_80", ptx, sizeof ptx - 1, nullptr, 0, plan.data(), plan.size()};
const xfc_device_image *const images[] = {&image, nullptr};

// The same, where a persistent kernel can run the steps of "sum", the second of which reads a packed weight, and waits
// for the first.
Module persistentModel() {
  Module module = model();
  Program &sum = *module.programs.find("sum");
  sum.persistent = 8;
  sum.steps[1].buffers.push_back({Place::Kind::Packed, 0, 0});
  sum.steps[1].strides.push_back(0);
  sum.steps[1].weight = 1;
  sum.steps[1].weightBytes = module.packed[0].bytes;
  sum.steps[1].after = {0};
  return module;
}
const std::vector<uint8_t> persistentPlan = serialize(persistentModel());
const xfc_device_image persistentImage{
    XFC_ABI_VERSION, 9, "sm_80", ptx, sizeof ptx - 1, nullptr, 0, persistentPlan.data(), persistentPlan.size()};
const xfc_device_image *const persistentImages[] = {&persistentImage, nullptr};

template <typename Run> std::string message(Run run) {
  try {
    run();
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

class CudaEngine : public testing::Test {
protected:
  void SetUp() override { initializeParameters(engine, 1); }
  void assign(int64_t count, int64_t length) {
    std::vector<Sequence> sequences(count, Sequence{{}, length, 0});
    batch.assign(sequences, {}, 0, false);
    x.resize(count * length * 6); // rows of 4 with a stride of 6
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>((i + ++filled) * 7 % 13) - 6;
  }
  void run(Engine &on) {
    const Binding bindings[] = {{"source", x.data(), 6}};
    on.run("forward", batch.shape(), bindings);
  }
  void run() { run(engine); }
  void check(const char *what = "encoder_output", int64_t column = 0) {
    check(engine.output("forward", what), batch, x, column);
  }
  void check(const View &view, Batch &batch, const std::vector<float> &x, int64_t column = 0) {
    const auto *w = static_cast<float *>(engine.parameters()) + 16;
    for (int64_t row = 0; row < batch.shape().sets[XFC_SOURCE].rows; ++row) {
      const double p = batch.shape().sets[XFC_SOURCE].positions[row];
      const double positions[] = {std::sin(p), std::cos(p / std::pow(10000.0, 0.5)),
                                  std::sin(p / std::pow(10000.0, 1.0)), std::cos(p / std::pow(10000.0, 1.5))};
      for (int64_t j = 0; j < width; ++j) {
        double want = positions[j];
        for (int64_t i = 0; i < width; ++i)
          want += x[row * 6 + i] * w[j * width + i];
        ASSERT_NEAR(view.at(row, column + j), want, 1e-5) << row << " " << j;
      }
    }
  }
  Engine engine{std::make_unique<cuda::CudaDevice>(images), 1};
  Batch batch;
  std::vector<float> x;
  size_t filled = 0;
};

} // namespace

TEST_F(CudaEngine, RunsBatchesOfAnySize) {
  EXPECT_STREQ(engine.device().kind(), "cuda");
  EXPECT_FALSE(engine.device().traits().hostMemory);
  for (auto [count, length] : {std::pair(1, 1), {3, 5}, {2, 70}, {1, 100}, {4, 2}, {0, 0}, {3, 5}}) {
    assign(count, length);
    run();
    check();
  }
}

// The first run of a bucket launches the kernels, the second captures a graph, and the third replays it, each with a
// different batch.
TEST_F(CudaEngine, AGraphServesEveryBatchOfItsBucket) {
  Counts counts;
  counts.rows[XFC_SOURCE] = 200;
  counts.sequences[XFC_SOURCE] = 30;
  counts.longest = 70;
  engine.reserve("forward", counts);
  for (int length : {16, 15, 14, 13, 12, 9, 16}) {
    assign(2, length);
    run();
    check();
    check("whole", width);
  }
}

TEST_F(CudaEngine, ResultsAreReadBackAsTheyAreAskedFor) {
  for (int i = 0; i < 3; ++i) { // the second run copies what was read after the first
    assign(3, 4);
    run();
    check();
    check();
  }
  assign(5, 6);
  run(); // nothing is read
  assign(2, 6);
  run();
  check("whole", width);
  check();
}

TEST_F(CudaEngine, WeightsFollowTheHost) {
  assign(2, 3);
  run();
  check();
  static_cast<float *>(engine.parameters())[20] = 3;
  engine.parametersChanged();
  run();
  check();
}

TEST_F(CudaEngine, TheHostFollowsAnUpdate) {
  assign(2, 3);
  run();
  std::vector<float> before(static_cast<float *>(engine.parameters()), static_cast<float *>(engine.parameters()) + 32);
  for (const float factor : {1, 2, 4}) {
    engine.run("update", batch.shape(), {});
    for (int i = 16; i < 32; ++i)
      EXPECT_EQ(static_cast<float *>(engine.gradients())[i], factor * before[i]);
  }
  run();
  check(); // with the weight that the update packed
  for (int i = 16; i < 32; ++i)
    EXPECT_EQ(static_cast<float *>(engine.parameters())[i], 8 * before[i]);
  EXPECT_EQ(static_cast<float *>(engine.parameters())[3], 1);
  static_cast<float *>(engine.parameters())[16] = -1; // and back to the device
  engine.parametersChanged();
  run();
  check();
}

TEST_F(CudaEngine, StatesGoThereAndBack) {
  static_cast<float *>(engine.optimizerState("moment1"))[5] = 7;
  engine.statesChanged();
  EXPECT_EQ(static_cast<float *>(engine.optimizerState("moment1"))[5], 7);
  EXPECT_EQ(static_cast<float *>(engine.optimizerState("moment2"))[5], 0);
}

// Batches that the copy stream brings, regularly or with gaps, of any size.
TEST_F(CudaEngine, BatchesAreStagedWhileOthersRun) {
  Counts counts;
  counts.rows[XFC_SOURCE] = 300;
  counts.sequences[XFC_SOURCE] = 30;
  counts.longest = 100;
  engine.reserve("forward", counts);
  struct Input {
    Batch batch;
    std::vector<float> x;
    void assign(int64_t count, int64_t length, float first) {
      std::vector<Sequence> sequences(count, Sequence{{}, length, 0});
      batch.assign(sequences, {}, 0, false);
      x.resize(count * length * 6);
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = first + static_cast<float>(i * 5 % 11);
    }
  } inputs[2];
  std::unique_ptr<Readback> results[2];
  const std::pair<int, int> sizes[] = {{3, 5}, {2, 70}, {1, 1},   {4, 60}, {3, 5}, {30, 10},
                                       {2, 7}, {2, 7},  {400, 1}, {2, 7},  {1, 90}};
  auto bindings = [&](size_t i) { return std::array<Binding, 1>{{{"source", inputs[i % 2].x.data(), 6}}}; };
  auto look = [&](size_t i) { check(results[i % 2]->view(), inputs[i % 2].batch, inputs[i % 2].x); };
  for (size_t i = 0; i < std::size(sizes); ++i) {
    if (i == 0)
      inputs[0].assign(sizes[0].first, sizes[0].second, 0);
    engine.run("forward", inputs[i % 2].batch.shape(), bindings(i));
    engine.fetch("forward", "encoder_output", results[i % 2]);
    if (i > 0)
      look(i - 1); // the result of an earlier run, read after a later one began
    if (i + 1 < std::size(sizes)) {
      inputs[(i + 1) % 2].assign(sizes[i + 1].first, sizes[i + 1].second, static_cast<float>(i));
      if (i != 5)
        engine.stage("forward", inputs[(i + 1) % 2].batch.shape(), bindings(i + 1));
    }
  }
  look(std::size(sizes) - 1);
  // The batch that runs is not the staged one, which must be discarded.
  inputs[0].assign(2, 3, 1);
  inputs[1].assign(2, 3, 7);
  engine.stage("forward", inputs[0].batch.shape(), bindings(0));
  engine.run("forward", inputs[1].batch.shape(), bindings(1));
  engine.fetch("forward", "encoder_output", results[1]);
  look(1);
  engine.stage("forward", inputs[0].batch.shape(), bindings(0));
  inputs[0].batch.shape().dropout_key[1] = 9;
  engine.run("forward", inputs[0].batch.shape(), bindings(0));
  engine.fetch("forward", "encoder_output", results[0]);
  look(0);
}

// The operations on streams as the driver logs them: runs of three rows.
class CudaStreams : public testing::Test {
protected:
  CudaStreams() {
    initializeParameters(engine, 1);
    const Sequence sequence{{}, 3, 0};
    batch.assign({&sequence, 1}, {}, 0, false);
  }
  ~CudaStreams() override { std::remove(file.c_str()); }
  void run() { engine.run("forward", batch.shape(), bindings); }
  std::string read() const {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  const std::string file = testing::TempDir() + "xfc-trace-" + std::to_string(getpid());
  Variable trace{"XFC_PTX_TRACE", file};
  Engine engine{std::make_unique<cuda::CudaDevice>(images), 1};
  Batch batch;
  std::vector<float> x = std::vector<float>(3 * width);
  const Binding bindings[1] = {{"source", x.data()}};
};

// New cache rows are copied into place on the device, adjacent ones together, and nothing else is copied.
TEST_F(CudaStreams, RowsAreSpreadOnTheDevice) {
  run();
  void *cache = engine.rows("cache", 20 * 16);
  const size_t before = read().size();
  const int32_t to[] = {7, 8, 2};
  engine.copyRows("forward", "encoder_output", cache, to);
  EXPECT_EQ(read().substr(before),
            "stream 1: copy of 2 rows of 16 bytes on the device\nstream 1: copy of 1 rows of 16 bytes on the device\n");
}

// A staged batch is copied on a stream of its own, after the last reader of the previous one, and the run waits for it.
TEST_F(CudaStreams, AStagedBatchComesBesideTheRun) {
  for (int i = 0; i < 3; ++i)
    run();
  engine.output("forward", "encoder_output");
  size_t before = read().size();
  run();
  const size_t at = read().find("copy of ", before);
  const std::string copied = read().substr(at, read().find("to the device", at) - at); // "copy of N bytes "
  EXPECT_EQ(read().substr(before), "stream 1: " + copied +
                                       "to the device\nstream 1: event\nstream 1: graph\n"
                                       "stream 1: copy of 3 rows of 16 bytes to the host\nstream 1: event\n");
  before = read().size();
  engine.stage("forward", batch.shape(), bindings);
  EXPECT_EQ(read().substr(before),
            "stream 2: wait for an event\nstream 2: " + copied + "to the device\nstream 2: event\nstream 2: event\n");
  before = read().size();
  run();
  EXPECT_EQ(read().substr(before),
            "stream 1: wait for an event\nstream 1: " + copied + "on the device\nstream 1: event\nstream 1: graph\n");
}

TEST_F(CudaEngine, RowsStayOnTheDevice) {
  auto *cache = engine.rows("cache", 20 * 16);
  // Stores rows of numbers from `first` on into three slots.
  auto store = [&](float first, std::vector<int32_t> slots) {
    std::vector<float> values(3 * width);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = first + static_cast<float>(i);
    const std::vector<int32_t> ids = {4, 5}, rows = {0, 1};
    const EncodedSentence sentence{ids, rows};
    const std::vector<int32_t> sentenceOf(3, 0), positions(3, 0);
    const std::span<const int32_t> history[] = {{&slots[0], 1}, {&slots[1], 1}, {&slots[2], 1}};
    batch.assignStep({&sentence, 1}, 0, 2, sentenceOf, positions, slots, history, 20);
    const Binding bindings[] = {{"x", values.data()}, {"cache", cache, 0, true}};
    engine.run("store", batch.shape(), bindings);
    return engine.output("store", "cache");
  };
  for (int round = 0; round < 3; ++round) {
    View view = store(static_cast<float>(100 * round), {7 + round, 1, 19});
    for (int j = 0; j < width; ++j) {
      EXPECT_EQ(view.at(7 + round, j), 100 * round + j);
      EXPECT_EQ(view.at(1, j), 100 * round + width + j);
      EXPECT_EQ(view.at(19, j), 100 * round + 2 * width + j);
      if (round > 0) {
        EXPECT_EQ(view.at(7 + round - 1, j), 100 * (round - 1) + j);
      }
    }
  }
  // Rows of a result, scattered.
  assign(2, 3);
  run();
  const int32_t to[] = {4, 5, 0, 13, 14, 2};
  engine.copyRows("forward", "encoder_output", cache, to);
  View all = store(500, {15, 16, 17}), from = engine.output("forward", "encoder_output");
  for (int row = 0; row < 6; ++row)
    for (int j = 0; j < width; ++j)
      EXPECT_EQ(all.at(to[row], j), from.at(row, j)) << row;
  EXPECT_EQ(all.at(16, 0), 504);
  EXPECT_EQ(all.at(1, 0), 204);
}

// The merge kernel runs if there is more than one chunk, and its memory is allocated then; a sum over no rows is
// written, too. A bucket has only one of the kernel variants of a step.
TEST_F(CudaEngine, RowsChooseWhatAStepLaunches) {
  for (auto [rows, sum, count] : {std::tuple(3, 1, -1),
                                  {0, 1, -1},
                                  {2048, 1, 2048},
                                  {2049, 3, 2049},
                                  {5000, 6, 5000},
                                  {32, 1, -1},
                                  {33, 1, 33},
                                  {4096, 3, 4096}}) {
    SCOPED_TRACE(rows);
    assign(rows > 0, rows);
    if (rows == 5000) {
      engine.reserve("sum", countsOf(batch.shape()));
      EXPECT_EQ(engine.arenaBytes(), predictMemory(engine.module(), {"sum"}, countsOf(batch.shape()), 0).arena);
    }
    std::vector<LaunchTiming> timings;
    engine.profile(&timings);
    engine.run("sum", batch.shape(), {});
    engine.profile(nullptr);
    EXPECT_EQ(engine.output("sum", "sum").at(0), sum);
    EXPECT_EQ(engine.output("sum", "count").at(0), count);
    ASSERT_EQ(timings.size(), rows > chunkRows ? 3u : 2u);
    EXPECT_EQ(timings[0].flops, rows);
    EXPECT_EQ(timings[1].flops, 0); // a step's count is attributed to its first launch
  }
}

// The persistent kernel gets the launches as instructions, and as many blocks as the largest has chunks. Batches of
// more rows run other kernels than it has, or reductions, and so do those whose launches are timed.
TEST(CudaPersistent, RunsTheLaunchesOfAProgramAsOne) {
  auto outputs = [](Engine &engine, int64_t rows) {
    Batch batch;
    const Sequence sequence{{}, rows, 0};
    batch.assign({&sequence, 1}, {}, 0, false);
    engine.run("sum", batch.shape(), {});
    return std::pair(engine.output("sum", "sum").at(0), engine.output("sum", "count").at(0));
  };
  using Pair = std::pair<double, double>;
  Engine engine(std::make_unique<cuda::CudaDevice>(persistentImages, "", 0, true), 1);
  for (int64_t rows : {3, 32, 3, 3, 3})
    EXPECT_EQ(outputs(engine, rows), Pair(641001, 1001111)) << rows; // the second instruction's weight is fetched early
  EXPECT_EQ(outputs(engine, 64), Pair(1, 64));
  EXPECT_EQ(outputs(engine, 4096), Pair(1 + 2, 4096));
  std::vector<LaunchTiming> timings;
  engine.profile(&timings);
  EXPECT_EQ(outputs(engine, 3), Pair(1, -1));
  EXPECT_GE(timings.size(), 2u);
  engine.profile(nullptr);
  EXPECT_EQ(outputs(engine, 3), Pair(641001, 1001111));
  Engine graphs(std::make_unique<cuda::CudaDevice>(persistentImages), 1);
  EXPECT_EQ(outputs(graphs, 3), Pair(1, -1));
}

// The tables of all buckets take what is predicted, and those of the same launches are one.
TEST(CudaPersistent, TakesTheMemoryThatWasPredicted) {
  const Module module = persistentModel();
  const Program &sum = *module.find("sum");
  Counts counts;
  counts.rows[XFC_SOURCE] = 90;
  counts.sequences[XFC_SOURCE] = 1;
  const int64_t tables =
      predictMemory(module, {"sum"}, counts, 0, true).batches - predictMemory(module, {"sum"}, counts, 0).batches;
  // An xfc_step, two instructions and a wait, then the counters of both and that of the blocks that have left. Above 40
  // rows, "count" has no variant that is among the bodies: the buckets are 1, 2, 4, 8, 16 and 32.
  EXPECT_EQ(stepTableBytes(sum), 128 + 3 * 4);
  EXPECT_EQ(tables, 6 * (128 + 3 * 4));
  EXPECT_EQ(predictMemory(module, {"forward"}, counts, 0, true).batches,
            predictMemory(module, {"forward"}, counts, 0).batches);
  Engine engine(std::make_unique<cuda::CudaDevice>(persistentImages, "", 0, true), 1);
  EXPECT_TRUE(engine.device().runsPersistent());
  engine.reserve("sum", counts);
  auto availableAfter = [&](int64_t rows) {
    Batch batch;
    const Sequence sequence{{}, rows, 0};
    batch.assign({&sequence, 1}, {}, 0, false);
    for (int run = 0; run < 3; ++run)
      engine.run("sum", batch.shape(), {});
    return engine.device().available();
  };
  const int64_t before = availableAfter(64);
  for (int64_t rows : {1, 2, 3, 4, 9, 20, 32}) // each has as many chunks as the others
    EXPECT_EQ(before - availableAfter(rows), stepTableBytes(sum)) << rows;
}

// Where the device has no cooperative launches, or refuses one because its blocks would not run at the same time, the
// graph runs; any other refusal is an error.
TEST(CudaPersistent, LeavesToTheGraphWhatCannotRunAtOnce) {
  Batch batch;
  const Sequence sequence{{}, 32, 0};
  batch.assign({&sequence, 1}, {}, 0, false);
  for (auto [most, sum] : {std::pair("0", 1), {"-1", 1}, {"64", 641001}}) {
    SCOPED_TRACE(most);
    Variable blocks("XFC_PTX_COOPERATIVE", most);
    Engine engine(std::make_unique<cuda::CudaDevice>(persistentImages, "", 0, true), 1);
    for (int run = 0; run < 3; ++run) {
      engine.run("sum", batch.shape(), {});
      EXPECT_EQ(engine.output("sum", "sum").at(0), sum);
    }
  }
  Variable lost("XFC_PTX_LOST_AFTER", "0:700");
  Engine engine(std::make_unique<cuda::CudaDevice>(persistentImages, "", 0, true), 1);
  EXPECT_THROW(engine.run("sum", batch.shape(), {}), Error);
}

// A plan may say that a step has no elements, so that none of its kernel's chunks run. An instruction has at least one,
// and others may wait for it, so the graph runs what is left.
TEST(CudaPersistent, LeavesStepsWithoutChunksToTheGraph) {
  Batch batch;
  const Sequence sequence{{}, 3, 0};
  batch.assign({&sequence, 1}, {}, 0, false);
  for (const int64_t elements : {1, 0}) {
    SCOPED_TRACE(elements);
    Module module = persistentModel();
    module.kernels[7].partition = {Partition::Unit::Elements, 1, 1};
    module.programs.find("sum")->steps[1].elements = elements;
    const std::vector<uint8_t> bytes = serialize(module);
    xfc_device_image other = persistentImage;
    other.plan = bytes.data();
    other.plan_size = bytes.size();
    const xfc_device_image *const others[] = {&other, nullptr};
    Engine engine(std::make_unique<cuda::CudaDevice>(others, "", 0, true), 1);
    for (int run = 0; run < 3; ++run) {
      engine.run("sum", batch.shape(), {});
      EXPECT_EQ(engine.output("sum", "sum").at(0), elements ? 641001 : 1);
    }
  }
}

TEST_F(CudaEngine, TakesTheMemoryThatWasPredicted) {
  Counts counts;
  counts.rows[XFC_SOURCE] = 90;
  counts.sequences[XFC_SOURCE] = 30;
  counts.longest = 70;
  engine.reserve("forward", counts);
  assign(1, 70);
  run();
  const Memory memory = predictMemory(engine.module(), {"forward"}, counts, 0);
  EXPECT_EQ(engine.arenaBytes(), memory.arena);
  EXPECT_EQ(engine.stateBytes(), memory.state());
  EXPECT_EQ(memory.arena, 90 * 32);
  EXPECT_EQ(memory.scratch, 0); // shared memory belongs to the block
  EXPECT_GT(memory.batches, 90 * 16);
}

TEST_F(CudaEngine, ProfilesEveryLaunch) {
  assign(2, 5);
  std::vector<LaunchTiming> timings;
  engine.profile(&timings);
  run();
  run();
  engine.profile(nullptr);
  run();
  check();
  ASSERT_EQ(timings.size(), 3u); // one of them packs
  EXPECT_EQ(timings[0].kernel->name, "pack");
  EXPECT_EQ(timings[0].step, nullptr);
  EXPECT_EQ(timings[1].kernel->name, "linear");
  EXPECT_EQ(timings[1].flops, 320);
  EXPECT_GE(timings[1].seconds, 0);
}

TEST_F(CudaEngine, TracesEveryLaunch) {
  assign(2, 5);
  Trace trace(1);
  engine.traceTo(&trace);
  run();
  run();
  engine.traceTo(nullptr);
  run();
  check();
  const std::vector<TraceEvent> &launches = trace.events(trace.gpu());
  ASSERT_EQ(launches.size(), 3u); // one of them packs
  EXPECT_EQ(launches[0].name, "pack");
  EXPECT_EQ(launches[0].place, "packing weights");
  for (size_t i = 1; i < launches.size(); ++i) {
    EXPECT_EQ(launches[i].name, "linear");
    EXPECT_EQ(launches[i].program, "forward");
    EXPECT_EQ(launches[i].flops, 320);
    EXPECT_LE(launches[i].begin, launches[i].end);
    EXPECT_LE(launches[i - 1].end, launches[i].begin);
  }
  int programs = 0, batches = 0;
  for (const TraceEvent &event : trace.events(0)) {
    programs += event.name == "forward";
    batches += event.name == "send batch" && event.bytes > 0;
  }
  EXPECT_EQ(programs, 2);
  EXPECT_EQ(batches, 2);
}

TEST(CudaErrors, SayWhatIsMissing) {
  auto opened = [] { Engine engine(std::make_unique<cuda::CudaDevice>(images), 1); };
  {
    Variable none("XFC_PTX_DEVICES", "0");
    EXPECT_NE(message(opened).find("the driver found no GPU"), std::string::npos) << message(opened);
  }
  {
    Variable old("XFC_PTX_DRIVER_VERSION", "11000");
    EXPECT_NE(
        message(opened).find("driver is for CUDA 11.0, but this executable's PTX needs one for CUDA 11.1 or later"),
        std::string::npos)
        << message(opened);
  }
  {
    Variable small("XFC_PTX_ARCH", "75");
    EXPECT_NE(message(opened).find("has compute capability 7.5, but this executable was compiled for sm_80"),
              std::string::npos)
        << message(opened);
  }
  {
    const xfc_device_image *const none[] = {nullptr};
    EXPECT_NE(message([&] {
                Engine engine(std::make_unique<cuda::CudaDevice>(none), 1);
              }).find("compile it with --target cpu,cuda"),
              std::string::npos);
  }
  {
    xfc_device_image broken = image;
    broken.ptx = ".version 7.1\n.target sm_80\n.address_size 64\nnonsense";
    const xfc_device_image *const list[] = {&broken, nullptr};
    EXPECT_NE(message([&] { Engine engine(std::make_unique<cuda::CudaDevice>(list), 1); }).find("PTX of sm_80"),
              std::string::npos);
    xfc_device_image other = image;
    other.abi_version = XFC_ABI_VERSION + 1;
    const xfc_device_image *const others[] = {&other, nullptr};
    EXPECT_NE(
        message([&] { Engine engine(std::make_unique<cuda::CudaDevice>(others), 1); }).find("compile the model again"),
        std::string::npos);
  }
}

// Destructors call functions through result(), which returns a status: an Error there would end the process.
TEST(CudaErrors, AFunctionThatTheDriverLacks) {
  const cuda::Driver driver;
  const cuda::Driver::F<int *> lacking(driver, "cuOfALaterDriver");
  int version = 0;
  static_assert(noexcept(lacking.result(&version)));
  EXPECT_EQ(lacking.result(&version), cuda::error::notFound);
  EXPECT_NE(message([&] { lacking(&version); }).find("this driver has no cuOfALaterDriver"), std::string::npos);
  const cuda::Driver::F<int *> renamed(driver, "cuOfALaterDriver", "cuDriverGetVersion");
  renamed(&version);
  EXPECT_GE(version, 11000);
}

TEST(CudaErrors, SayWhatDoesNotFit) {
  Variable memory("XFC_PTX_MEMORY", "1000000");
  Engine engine(std::make_unique<cuda::CudaDevice>(images), 1);
  Counts counts;
  counts.rows[XFC_SOURCE] = 100000;
  const std::string said = message([&] { engine.reserve("forward", counts); });
  EXPECT_NE(said.find("3200000 bytes of the arena do not fit into the GPU's memory, of which"), std::string::npos)
      << said;
  EXPECT_NE(said.find("of 1000000 bytes are free"), std::string::npos) << said;
}

TEST(CudaErrors, ALostGpuIsSaid) {
  Variable lost("XFC_PTX_LOST_AFTER", "3");
  Engine engine(std::make_unique<cuda::CudaDevice>(images), 1);
  initializeParameters(engine, 1);
  Batch batch;
  const Sequence sequence{{}, 3, 0};
  batch.assign({&sequence, 1}, {}, 0, false);
  std::vector<float> x(3 * width);
  const Binding bindings[] = {{"source", x.data()}};
  const std::string said = message([&] {
    for (int i = 0; i < 10; ++i) {
      engine.run("forward", batch.shape(), bindings);
      engine.output("forward", "encoder_output");
    }
  });
  EXPECT_NE(said.find("the GPU was lost in the middle of the run"), std::string::npos) << said;
}
