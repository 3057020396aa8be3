// A function of a library that is loaded at run time: NVIDIA's driver, or NCCL.
#pragma once

namespace xfc::cuda {

// A call that fails throws Error with the function, the library's words for the error, and what to do. A Library has:
//   using Result = int;                                  what its functions return; 0 is success
//   static constexpr Result notFound;                    the result of a function that it lacks
//   void *find(const char *name) const;                  null if it lacks the function
//   void fail(const char *function, Result) const;       throws
//   void lacks(const char *function) const;              throws
template <typename Library, typename... Parameters> class LibraryFunction {
public:
  // `older`: the function's name in libraries that lack `name`.
  LibraryFunction(const Library &library, const char *name, const char *older = nullptr)
      : library(library), name(name) {
    void *found = library.find(name);
    if (!found && older)
      found = library.find(older);
    pointer = reinterpret_cast<int (*)(Parameters...)>(found);
  }
  void operator()(Parameters... parameters) const {
    if (!pointer)
      library.lacks(name);
    if (const int code = result(parameters...))
      library.fail(name, code);
  }
  // Returns the result instead of throwing, for calls whose failure is an answer or cannot be handled.
  int result(Parameters... parameters) const noexcept { return pointer ? pointer(parameters...) : Library::notFound; }
  explicit operator bool() const { return pointer != nullptr; } // whether the library has it

private:
  const Library &library;
  const char *name;
  int (*pointer)(Parameters...) = nullptr;
};

} // namespace xfc::cuda
