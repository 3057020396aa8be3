// Executes PTX text on the host, to verify generated GPU code without a GPU: a module, device memory, launches. Written
// from NVIDIA's "Parallel Thread Execution ISA", independently of the compiler that generates the text.
//
// Numbers. f32 and f64 arithmetic is IEEE with the rounding and flushing that the instruction names. The .approx
// functions are computed in f64 and rounded once. mma and wgmma compute each element in f64, adding to c the products
// by ascending k, and round once: a GPU's sums differ from these in their last bits.
// Order. Blocks run in ascending order (with Options::threads > 1 concurrently, unless the kernel has atomics on global
// memory), and a warp runs until it has to wait. No result depends on the number of threads. The blocks of a cluster,
// and all of a cooperative launch, take turns: in ascending order, or in a random one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace xfc::ptx {

// Text that cannot be decoded, or a wrong call: "line 12: unknown modifier .foo of add".
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Dimensions {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t(x) * y * z; }
};

// An error made by a thread. what() describes all of it in one line.
struct Fault : Error {
  Fault(std::string kernel, int line, Dimensions block, Dimensions thread, std::string reason);
  std::string kernel;
  int line; // of the PTX text, from 1
  Dimensions block, thread;
  std::string reason;
};

struct Options {
  int threads = 1;     // host threads among which the blocks of a launch are distributed
  bool checks = false; // find races, reads of uninitialized shared memory, and missing fences between proxies; bounds,
                       // lifetime, alignment and wgmma's rules are always checked
  size_t memory = size_t(8) << 30; // bytes of device memory
  uint32_t order = 0; // seeds the random order in which blocks that run together take turns; 0: in ascending order
};

struct Counters {
  uint64_t lanes = 0;                         // instructions x active lanes
  std::map<std::string, uint64_t> executed;   // by instruction as written ("ld.global.f32"), once per warp
  uint64_t globalRead = 0, globalWritten = 0; // bytes
  uint64_t sharedRead = 0, sharedWritten = 0;
};

struct Program;  // one module, decoded
struct Function; // one entry
class Memory;

class Interpreter {
public:
  explicit Interpreter(Options options = {});
  ~Interpreter();

  // Device memory. Addresses are not host addresses, and allocations lie at least 64 GiB apart, so that no overrun hits
  // a neighbor. Each function throws Error for bytes that are not allocated.
  uint64_t allocate(size_t bytes);
  void free(uint64_t address);
  void write(uint64_t to, const void *from, size_t bytes);
  void read(void *to, uint64_t from, size_t bytes) const;
  void copy(uint64_t to, uint64_t from, size_t bytes);
  void fill(uint64_t to, uint8_t value, size_t bytes);
  size_t memoryUsed() const;

  // Reads a module and allocates its variables. Every instruction is decoded, so unknown ones throw Error now.
  const Program &load(const std::string &text);
  void unload(const Program &);

  struct Entry {
    const Function *function = nullptr;
    size_t parameterBytes = 0, staticShared = 0;
    Dimensions required{0, 0, 0};                      // .reqntid; 0: any
    uint32_t maximum = 1024;                           // threads per block: .maxntid or .reqntid
    Dimensions cluster;                                // .reqnctapercluster, else 1
    std::vector<std::pair<size_t, size_t>> parameters; // offset and bytes of each
  };
  std::vector<std::string> entries(const Program &) const;
  Entry entry(const Program &, const std::string &name) const;       // throws Error if there is none
  uint64_t variable(const Program &, const std::string &name) const; // the address of a .global or .const

  // Runs a launch to completion. `parameters` has entry.parameterBytes bytes, each parameter at its natural offset. The
  // blocks of a cooperative launch may wait for each other.
  void launch(const Entry &entry, Dimensions grid, Dimensions block, size_t dynamicShared, const void *parameters,
              Dimensions cluster = {}, bool cooperative = false);

  // The device memory that the last launch accessed, if checks are on.
  struct Accessed {
    uint64_t address;
    size_t bytes;
    bool written;
  };
  const std::vector<Accessed> &accessed() const { return ranges; }

  const Counters &counters() const { return counts; }
  void resetCounters() { counts = {}; }

private:
  Options options;
  std::unique_ptr<Memory> memory;
  std::vector<std::unique_ptr<Program>> programs;
  Counters counts;
  std::vector<Accessed> ranges;
};

} // namespace xfc::ptx
