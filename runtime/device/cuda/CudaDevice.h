// A GPU of NVIDIA's: kernels of the executable's cubin or PTX, launched as graphs over GPU memory.
#pragma once

#include "device/Device.h"
#include <memory>
#include <string_view>

namespace xfc::cuda {

class CudaDevice : public Device {
public:
  // Uses GPU number `ordinal`, modulo their number, of those that the driver shows and, of the images (abi.h), the one
  // that --cuda-image names. If `persistent`, programs that have a persistent kernel run as one launch where the GPU
  // can keep all of its blocks at the same time, unless single launches are observed or measured. Throws Error if there
  // is no such image, no driver or one that is too old, no GPU, or the image does not run on the GPU.
  explicit CudaDevice(const xfc_device_image *const *images, std::string_view image = {}, int ordinal = 0,
                      bool persistent = false);
  ~CudaDevice() override;
  ImagePlan plan() const override;
  void load(const Module &module, ThreadPool &pool) override;

  const char *kind() const override { return "cuda"; }
  std::string name() const override;
  const DeviceTraits &traits() const override {
    static constexpr DeviceTraits traits{.hostMemory = false,
                                         .hostThreads = false,
                                         .keepsLayouts = true, // graphs are captured for it
                                         .word = "gpu",
                                         .named = "GPU",
                                         .owner = "GPU"};
    return traits;
  }
  bool runsPersistent() const override;
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes, const char *what, bool sparse) override;
  int64_t available() const override;
  void copyToDevice(void *to, const void *from, int64_t bytes) override;
  void copyToHost(void *to, const void *from, int64_t bytes) override;
  void copyOnDevice(void *to, const void *from, int64_t bytes) override;
  std::string identity() const override;
  std::string newGroup() override;
  std::unique_ptr<Peers> join(const std::string &group, int rank, int size) override;
  void prepare(const Program &program) override;
  void pack(std::span<const PackRun> runs, const std::function<void(size_t begun)> &between) override;
  void stage(const ProgramRun &run) override;
  void run(const ProgramRun &run) override;
  void copyRows(const ProgramRun &run, const Output &output, void *rows, std::span<const int32_t> to) override;
  View output(const ProgramRun &run, const Output &output) override;
  void fetch(const ProgramRun &run, const Output &output, std::unique_ptr<Readback> &into) override;

private:
  struct State;
  std::unique_ptr<State> state;
};

// The image that --cuda-image names. "": the best image for the GPU, as machine code if it has some; "sm_90a": that
// image; "ptx": the best image, and "ptx:sm_90a": that image, as PTX that the driver must compile.
struct ImageRequest {
  int index = -1; // in the images; -1: the best
  bool ptx = false;
};
// Throws Error listing the known names if this is not one of them.
ImageRequest requestedImage(const xfc_device_image *const *images, std::string_view name);
// The index in `images` of the first, and so the newest, that runs on a GPU of compute capability major.minor; -1 if
// there is none, or the requested one does not run there.
int chooseImage(const xfc_device_image *const *images, int major, int minor, const ImageRequest &request = {});
// The version of the driver, as cuDriverGetVersion gives it, that PTX with this .version needs; 0 if the text has none.
int driverFor(const char *ptx);

} // namespace xfc::cuda
