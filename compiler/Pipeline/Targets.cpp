// The targets that code is generated for.
#include "Targets.h"
#include "CPU/CPU.h"
#include "CPU/Object.h"
#include "GPU/GPU.h"
#include "Plain/Plain.h"

using namespace mlir;

namespace xfc {
namespace {

class CPUImage : public Image {
public:
  explicit CPUImage(std::unique_ptr<ImageBackend> backend) : generator(std::move(backend)) {}
  const Backend &backend() const override { return *generator; }
  std::string text(ModuleOp code) const override { return generator->llvm(code); }
  std::vector<ObjectFile> objects(ModuleOp code, const Module &plan, const std::string &number,
                                  const ObjectCache &cache, Timed timed) const override {
    TimingScope timing = timed("machine code for " + generator->name());
    return generator->objects(code, plan, number, cache);
  }

private:
  std::unique_ptr<ImageBackend> generator;
};

class GPUImage : public Image {
public:
  explicit GPUImage(const gpu::Architecture &arch) : generator(arch), arch(arch) {}
  const Backend &backend() const override { return generator; }
  std::string text(ModuleOp code) const override { return gpu::emitPTX(code, arch); }
  std::vector<ObjectFile> objects(ModuleOp code, const Module &plan, const std::string &number,
                                  const ObjectCache &cache, Timed timed) const override {
    DeviceCode device{arch.name, {}, {}};
    {
      TimingScope timing = timed("PTX for " + arch.name);
      std::string text;
      if (cache)
        llvm::raw_string_ostream(text) << code;
      const ObjectFile ptx = cache.findOr({"PTX", arch.name, text}, [&] {
        const std::string made = gpu::emitPTX(code, arch);
        return ObjectFile(made.begin(), made.end());
      });
      device.ptx.assign(ptx.begin(), ptx.end());
    }
    // Without ptxas, the GPU's driver compiles the PTX when it is loaded.
    if (const std::optional<std::string> ptxas = gpu::findPtxas()) {
      TimingScope timing = timed("cubin for " + arch.name);
      const std::string version = cache ? gpu::versionOf(*ptxas) : "";
      const ObjectFile cubin = cache.findOr({"cubin", arch.name, version, device.ptx}, [&] {
        const std::vector<uint8_t> made = gpu::assemble(*ptxas, device.ptx, arch);
        return ObjectFile(made.begin(), made.end());
      });
      device.cubin.assign(cubin.begin(), cubin.end());
    }
    return {emitDeviceImage(device, plan, "xfc_device_image_" + number)};
  }

private:
  GPUBackend generator;
  const gpu::Architecture &arch;
};

} // namespace

std::unique_ptr<Image> cpuImage(const std::string &name, DType type, bool checkBounds) {
  const InstructionSet set = InstructionSet::named(name);
  if (set.plain)
    return std::make_unique<CPUImage>(std::make_unique<PlainBackend>(set, type, checkBounds));
  return std::make_unique<CPUImage>(std::make_unique<CPUBackend>(set, type, checkBounds));
}

std::unique_ptr<Image> gpuImage(const std::string &name) {
  return std::make_unique<GPUImage>(gpu::Architecture::named(name));
}

bool isGPU(llvm::StringRef name) {
  return llvm::any_of(gpu::Architecture::known(),
                      [&](const gpu::Architecture &architecture) { return name == architecture.name; });
}

bool isBetter(const std::string &a, const std::string &b) {
  return isGPU(a) ? &gpu::Architecture::named(a) > &gpu::Architecture::named(b) // known() lists the newest last
                  : InstructionSet::named(a) > InstructionSet::named(b);
}

void addCodeDialects(DialectRegistry &registry) {
  const InstructionSet any = InstructionSet::named("x86-64-v3");
  CPUBackend(any, DType::F32).addDialects(registry);
  PlainBackend(any, DType::F32).addDialects(registry);
  GPUBackend(gpu::Architecture::known().front()).addDialects(registry);
}

} // namespace xfc
