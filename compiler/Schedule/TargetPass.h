// What the scheduling passes that ask a target have in common.
#pragma once

#include "Target/Target.h"

namespace xfc {

// A pass, of which `Base` is what mlir-tblgen generates, with a target, by default none. The target must outlive it.
template <typename Base> class TargetPass : public Base {
public:
  TargetPass() = default;
  explicit TargetPass(const Target &target) : target(&target) {}
  void getDependentDialects(mlir::DialectRegistry &registry) const override {
    Base::getDependentDialects(registry);
    target->addDialects(registry);
  }

private:
  NoTarget none;

protected:
  const Target *target = &none;
};

} // namespace xfc
