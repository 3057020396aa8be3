// Makes lld a part of the program that is linked with this file.
#include "Link/Link.h"
#include "lld/Common/Driver.h"
#include "llvm/Support/CrashRecoveryContext.h"

LLD_HAS_DRIVER(elf)

namespace xfc {

// lld leaves by exit() after some errors, unless a recovery context is there, from which it returns.
static bool link(llvm::ArrayRef<const char *> arguments, llvm::raw_ostream &messages) {
  llvm::CrashRecoveryContext::Enable();
  const lld::Result result = lld::lldMain(arguments, messages, messages, {{lld::Gnu, lld::elf::link}});
  llvm::CrashRecoveryContext::Disable();
  return result.retCode == 0;
}

static const bool contained = (containedLinker = link, true);

} // namespace xfc
