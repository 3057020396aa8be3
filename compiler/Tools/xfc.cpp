// The compiler's command line.
#include "Verbs.h"
#include "support/CommandLine.h"

// LLVM has many global objects.
[[gnu::constructor(101)]] static void beforeGlobals() { xfc::beginProgram(); }

static int run(int argc, char **argv) {
  xfc::CommandLine app("Compiles encoder-decoder Transformers from JSON into executables that train and translate",
                       "xfc");
  app.setVersion([] { return std::string("xfc " XFC_VERSION); });
  app.requireVerb();
  xfc::addVerbs(app, xfc::compilerVerbs, argc > 1 ? argv[1] : "");
  return xfc::runCommandLine(app, argc, argv);
}

int main(int argc, char **argv) {
  return xfc::reportErrors([&] { return run(argc, argv); });
}
