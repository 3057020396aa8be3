// The verbs of xfc, listed once for main() and for what tests all of them.
#pragma once

#include "CompileCommand.h"
#include "DemoCommand.h"
#include "ExportCommand.h"
#include "ImportCommand.h"
#include "InspectCommand.h"
#include "ModelsCommand.h"
#include "VocabCommand.h"
#include "support/Verb.h"

namespace xfc {

// In the order in which --help lists them.
inline constexpr Verb compilerVerbs[] = {
    {"compile", addCompile}, {"import", addImport}, {"export", addExport}, {"vocab", addVocab},
    {"inspect", addInspect}, {"models", addModels}, {"phases", addPhases}, {"demo", addDemo},
};

} // namespace xfc
