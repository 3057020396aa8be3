// mlir-opt for the xfc dialect: runs single passes, whole stages, and MLIR's own cleanup passes.
#include "Dialect/XFC.h"
#include "Pipeline/Stages.h"
#include "Pipeline/Targets.h"
#include "Plan/PlanDialect.h"
#include "Schedule/Passes.h"
#include "Transforms/Passes.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<xfc::XFCDialect, xfc::PlanDialect, mlir::func::FuncDialect>();
  xfc::addCodeDialects(registry);
  xfc::registerTransformsPasses();
  xfc::registerPipelines();
  xfc::registerSchedulePasses();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  mlir::registerPrintOpStatsPass();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "xfc-opt", registry));
}
