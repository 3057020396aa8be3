// The entry of every generated executable.
#include "app/Verbs.h"
#include "engine/Engine.h"
#include "support/CommandLine.h"
#include "support/Confinement.h"
#include <cstdio>
#include <string>

// Global objects allocate memory before main() begins.
[[gnu::constructor(101)]] static void beforeGlobals() { xfc::beginProgram(); }

static int run(int argc, char **argv) {
  const std::string path = argv[0], name = path.substr(path.rfind('/') + 1);
  xfc::CommandLine app("A translator compiled by xfc: trains, translates and scores", name);
  app.setVersion([]() -> std::string {
    const xfc::Engine engine(1);
    return "xfc " XFC_VERSION "; " + engine.module().model + ", multiplies in " + engine.module().compute + ", " +
           engine.device().name();
  });
  app.requireVerb();
  xfc::addVerbs(app, xfc::verbs, argc > 1 ? argv[1] : "");
  return xfc::runCommandLine(app, argc, argv);
}

int main(int argc, char **argv) {
  xfc::allowConfinement();
  return xfc::reportErrors([&] { return run(argc, argv); });
}
