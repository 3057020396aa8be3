// The stages of passes between import and scheduling, as pass pipelines with options: for PassManagers here, and by
// name in xfc-opt.
#pragma once

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"
#include <string>
#include <vector>

namespace xfc {

// The values of --dtype: the type of matrix products; f64 is the type of everything.
enum class DataType { f32, bf16, f64 };

// The types that decoding can choose besides f32 if --compute-type does not say which.
inline const std::vector<std::string> &defaultComputeTypes() {
  static const std::vector<std::string> types = {"bf16", "int8"};
  return types;
}

// The values of --recompute.
enum class Recomputation { none, cheap, most };

// The options of a stage. As text:
// --xfc-differentiate-pipeline="target=sm_80 recompute=cheap no-fuse=fuse-epilogue"
struct StageOptions : mlir::PassPipelineOptions<StageOptions> {
  Option<std::string> target{*this, "target",
                             llvm::cl::desc("instruction set or GPU architecture to generate code for"),
                             llvm::cl::init("x86-64-v3")};
  Option<DataType> dtype{
      *this, "dtype", llvm::cl::desc("type of matrix products"), llvm::cl::init(DataType::f32),
      llvm::cl::values(clEnumValN(DataType::f32, "f32", "f32; decoding variants round their operands"),
                       clEnumValN(DataType::bf16, "bf16", "operands rounded to bf16"),
                       clEnumValN(DataType::f64, "f64", "f64, like everything else"))};
  ListOption<std::string> computeTypes{*this, "compute-types",
                                       llvm::cl::desc("types that decoding can choose, where the target has them"),
                                       llvm::cl::list_init<std::string>(defaultComputeTypes())};
  Option<std::string> cacheType{*this, "cache-type",
                                llvm::cl::desc("type in which decoding keeps keys and values: f32, or a narrower one; "
                                               "by default bf16 where products round their operands"),
                                llvm::cl::init("")};
  Option<std::string> momentType{*this, "moment-type",
                                 llvm::cl::desc("type in which optimizers keep the moments of gradients: f32 or bf16"),
                                 llvm::cl::init("f32")};
  Option<Recomputation> recompute{
      *this, "recompute", llvm::cl::desc("what is recomputed for the gradients"), llvm::cl::init(Recomputation::none),
      llvm::cl::values(clEnumValN(Recomputation::none, "none", "nothing"),
                       clEnumValN(Recomputation::cheap, "cheap", "memory-bound operations"),
                       clEnumValN(Recomputation::most, "most", "everything that lowers peak memory"))};
  ListOption<std::string> disabled{*this, "no-fuse", llvm::cl::desc("fusions to leave out")};
};

// The stages. `xfc compile --emit` prints the module after a stage under the stage's name.
enum class Stage { Fused, Differentiated };

// The fusions that can be turned off, in order.
const std::vector<std::string> &fusions();

// Adds the passes of a stage to a manager of modules.
void addStage(Stage stage, mlir::OpPassManager &manager, const StageOptions &options);

// Registers with xfc-opt the stages, --xfc-fuse-pipeline and --xfc-differentiate-pipeline; all scheduling passes,
// --xfc-schedule="target=x86-64-v3 dtype=f32"; and those that make kernels, --xfc-kernels=target=sm_90a. Without a
// target, kernels have no code.
void registerPipelines();

} // namespace xfc
