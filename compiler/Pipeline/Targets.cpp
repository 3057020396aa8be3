// The table of targets. A new one is a row: what it is called, what its machine has, and who generates its code.
#include "Targets.h"
#include "CPU/CPU.h"
#include "GPU/GPU.h"
#include "Plain/Plain.h"
#include "support/Error.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/X86TargetParser.h"
#include <variant>

using namespace mlir;

namespace xfc {
namespace {

using Machine = std::variant<InstructionSet, gpu::Architecture>;

struct Row {
  std::string name;
  Platform platform;
  Machine machine;
  TargetTraits traits;
  std::unique_ptr<Target> (*make)(const Machine &, const TargetTraits &, const TargetOptions &);
};

// The row of a target whose code T generates.
template <typename T> Row rowOf(const TargetTraits &traits, const typename T::Machine &machine) {
  return {machine.name, T::platform, machine, traits,
          [](const Machine &machine, const TargetTraits &traits, const TargetOptions &options) {
            return std::unique_ptr<Target>(
                std::make_unique<T>(std::get<typename T::Machine>(machine), traits, options));
          }};
}

// The targets of each platform; of two that a machine can run, it prefers the later one, and a program for several
// suits the first of them.
const std::vector<Row> &table() {
  // Up to 32 threads can share the rows of a norm; their partial sums take a thirty-second of the traffic of 2,048
  // rows.
  const TargetTraits plain = {.withoutFusions = {},
                              .normGradParts = 32,
                              .computeTypes = {},
                              .refusedDtype = "bf16",
                              .refusal = "plain code only multiplies in f32 or f64; use --dtype f32, or another --cpu"};
  const TargetTraits vectors = {.withoutFusions = {},
                                .normGradParts = 32,
                                .computeTypes = {ComputeType::bf16, ComputeType::int8, ComputeType::int4}};
  // Attention multiplies by tiles, too, of which a narrower head would leave a part empty.
  TargetTraits tiles = vectors;
  tiles.attentionProducts = 32;
  const TargetTraits gpu = {
      // Kernels read f32 weights unpacked, and the fusion does not apply to others.
      .withoutFusions = {"fuse-packing"},
      // This many blocks nearly fill two waves on 132 multiprocessors; their sums are 1 % of the size of 65,536 rows.
      .normGradParts = 512,
      // A slab is a tile of linear_candidates, or a few of a large vocabulary, so that none waits for another.
      .slabUnit = 128,
      .enoughSlabs = 132,
      .computeTypes = {ComputeType::bf16},
      .attentionProducts = 1,
      .refusedDtype = "f64",
      .refusal = "CUDA code cannot compute in f64; use --dtype f32 or bf16, or --target cpu"};

  const std::string v3 = "avx2,fma,bmi2,f16c,movbe", v4 = v3 + ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl";
  // With LLVM's instruction scheduling for a generic CPU, the micro-kernel's loop would spill one of its accumulators.
  constexpr const char *tune = "sapphirerapids";
  // PTX also runs on later GPUs, unless the architecture's name ends in "a", so it is limited to the shared memory of
  // those with the least (8.6, 8.9, 12.0).
  constexpr int64_t shared = 99 << 10;
  // Per clock and multiprocessor, an A100 multiplies 64 pairs in f32 and 512 in TF32, and an H100 128 and 1,024, of
  // which mma.sync reaches about 0.6. GPUs of 8.6, 8.9 and 12.0 multiply 128 in f32 and no more than 256 in TF32, a
  // third of which is less than 128. How fast mma.sync is on a B200 is not known here.
  constexpr gpu::F32Core fma = gpu::F32Core::FMA, split = gpu::F32Core::TF32x3;

  static const std::vector<Row> rows = {
      // name; LLVM's CPU and features; those needed; bytes of a vector; CPU to tune for; whether it has VNNI, BF16, AMX
      rowOf<PlainTarget>(plain, {"plain", "x86-64", "", "", 16, ""}),
      rowOf<CPUTarget>(vectors, {"x86-64-v3", "x86-64-v3", "", v3, 32, ""}),
      rowOf<CPUTarget>(vectors, {"x86-64-v3+vnni", "x86-64-v3", "+avxvnni", v3 + ",avx_vnni", 32, "", true}),
      rowOf<CPUTarget>(vectors, {"x86-64-v4", "x86-64-v4", "", v4, 64, tune}),
      rowOf<CPUTarget>(vectors, {"x86-64-v4+vnni", "x86-64-v4", "+avx512vnni", v4 + ",avx512_vnni", 64, tune, true}),
      rowOf<CPUTarget>(vectors, {"x86-64-v4+bf16", "x86-64-v4", "+avx512vnni,+avx512bf16",
                                 v4 + ",avx512_vnni,avx512_bf16", 64, tune, true, true}),
      rowOf<CPUTarget>(tiles, {"x86-64-v4+amx", "x86-64-v4", "+avx512vnni,+avx512bf16,+amx-bf16,+amx-int8",
                               v4 + ",avx512_vnni,avx512_bf16,amx_tile,amx_bf16,amx_int8", 64, tune, true, true, true}),
      // name; version of PTX; shared memory of a block; what multiplies f32; whether it has products by warpgroups
      rowOf<GPUTarget>(gpu, {"sm_80", "+ptx71", shared, split}),           // A100
      rowOf<GPUTarget>(gpu, {"sm_86", "+ptx71", shared, fma}),             // A10, RTX 30
      rowOf<GPUTarget>(gpu, {"sm_89", "+ptx78", shared, fma}),             // L40, RTX 40
      rowOf<GPUTarget>(gpu, {"sm_90", "+ptx78", shared, split}),           // H100, without warpgroups
      rowOf<GPUTarget>(gpu, {"sm_90a", "+ptx80", 227 << 10, split, true}), // H100, H200
      rowOf<GPUTarget>(gpu, {"sm_100", "+ptx86", shared, fma}),            // B200
      rowOf<GPUTarget>(gpu, {"sm_120", "+ptx87", shared, fma})};           // RTX 50
  return rows;
}

constexpr StringLiteral native = "native", tuning = " tuned for ";

const Row *find(Platform platform, StringRef name) {
  const auto found = llvm::find_if(
      table(), [&](const Row &row) { return row.platform == platform && row.name == name.split(tuning).first; });
  return found == table().end() ? nullptr : &*found;
}

std::unique_ptr<Target> make(const Row &row, const TargetOptions &options) {
  return row.make(row.machine, row.traits, options);
}

std::unique_ptr<Target> tunedFor(StringRef cpu, Row row, const TargetOptions &options) {
  auto &set = std::get<InstructionSet>(row.machine);
  set.tune = cpu.str();
  set.name += (tuning + cpu).str();
  return make(row, options);
}

// Tuned for this machine, but with only those instructions that the check at startup covers, so that a copy on another
// machine reports what is missing instead of crashing.
std::unique_ptr<Target> makeNative(const TargetOptions &options) {
  const llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  // LLVM writes avx512bf16 and amx-bf16 for avx512_bf16 and amx_bf16.
  auto has = [&](StringRef feature) {
    std::string name = feature.str();
    const size_t at = name.find('_');
    if (at != std::string::npos)
      name.replace(at, 1, feature.starts_with("amx") ? "-" : "");
    return host.lookup(name);
  };
  for (const Row &row : llvm::reverse(table())) {
    const auto *set = std::get_if<InstructionSet>(&row.machine);
    if (set && !set->needed.empty() && llvm::all_of(llvm::split(set->needed, ','), has))
      return tunedFor(llvm::sys::getHostCPUName(), row, options);
  }
  throw Error("--cpu native: this machine has no AVX2 and FMA, which generated code needs; name another with --cpu "
              "x86-64-v3");
}

} // namespace

std::vector<std::string> targetsOf(Platform platform) {
  std::vector<std::string> names;
  for (const Row &row : table())
    if (row.platform == platform)
      names.push_back(row.name);
  return names;
}

std::unique_ptr<Target> makeTarget(Platform platform, const std::string &name, const TargetOptions &options) {
  if (platform == Platform::CPU && name == native)
    return makeNative(options);
  const PlatformInfo &info = infoOf(platform);
  const Row *row = find(platform, name);
  if (!row)
    throw Error(std::string(info.flag) + ": unknown " + info.kind + " '" + name + "'; known: " +
                (platform == Platform::CPU ? native + ", " : "").str() + llvm::join(targetsOf(platform), ", "));
  const StringRef cpu = StringRef(name).split(tuning).second;
  if (cpu.empty())
    return make(*row, options);
  if (platform != Platform::CPU || llvm::X86::parseTuneCPU(cpu) == llvm::X86::CK_None)
    throw Error(std::string(info.flag) + ": unknown CPU '" + cpu.str() + "' in '" + name + "'");
  return tunedFor(cpu, *row, options);
}

std::unique_ptr<Target> makeTarget(const std::string &name, const TargetOptions &options) {
  return makeTarget(platformOf(name), name, options);
}

Platform platformOf(StringRef name) {
  for (const PlatformInfo &info : platforms)
    if (find(info.platform, name))
      return info.platform;
  return Platform::CPU;
}

bool isBetter(const Target &a, const Target &b) {
  const Platform platform = platformOf(a.name);
  return find(platform, a.name) > find(platform, b.name);
}

void addCodeDialects(DialectRegistry &registry) {
  for (const Row &row : table())
    make(row, {})->addDialects(registry);
}

} // namespace xfc
