// The labels of a batch as a training program reads them that was compiled with --distillation.
#include "decode/LabelLists.h"

namespace xfc {

int64_t teacherTokens(const Module &module) {
  if (const Program *training = module.find(programs::lossAndGradients))
    for (const Argument &argument : training->arguments)
      if (argument.name == names::labelLists)
        return featuresOf(argument) - 1;
  return 0;
}

void LabelLists::clear(const Module &module) {
  others = static_cast<size_t>(teacherTokens(module));
  isDouble = module.type == DType::F64;
  tokens.clear();
  floatShares.clear();
  doubleShares.clear();
}

void LabelLists::add(int32_t label, const LossShares &shares, Distribution teacher) {
  if (others == 0)
    return;
  if (shares.distillation == 0)
    teacher = {};
  const double ofLabels = teacher.empty() ? 1 : 1 - shares.distillation;
  tokens.push_back(label);
  addShare(ofLabels * shares.smoothing);
  addShare(ofLabels * (1 - shares.smoothing));
  for (size_t k = 0; k < others; ++k) {
    tokens.push_back(k < teacher.size() ? teacher[k].token : -1);
    addShare(k < teacher.size() ? shares.distillation * static_cast<double>(teacher[k].probability) : 0);
  }
}

void LabelLists::addShare(double share) {
  if (isDouble)
    doubleShares.push_back(share);
  else
    floatShares.push_back(static_cast<float>(share));
}

} // namespace xfc
