// What the driver of tests/ptx reads from its environment.
#pragma once

#include <cstdlib>
#include <dlfcn.h>
#include <string>

namespace xfc {

// The driver reads its environment when it is loaded, and the runtime never unloads it.
inline void unloadDriver() {
  for (void *library; (library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));) {
    dlclose(library);
    dlclose(library);
  }
}

// Sets an environment variable of the driver for the lifetime of the object.
struct Variable {
  const char *name;
  Variable(const char *name, const std::string &value) : name(name) {
    unloadDriver();
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    unsetenv(name);
    unloadDriver();
  }
};

} // namespace xfc
