// Ranks over MPI, whose library is loaded at run time: no executable needs it to start.
#include "ranks/Watch.h"
#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <vector>

namespace xfc {
namespace {

// Communicators, types and requests are pointers in the standard ABI and in Open MPI, and int in MPICH. As arguments,
// ints are passed in the lower half of the same register; a request in memory takes the lower half of a Handle.
using Handle = uintptr_t;

// The constants that callers of MPI are compiled with, in each of the three ABIs.
struct Abi {
  std::vector<const char *> files;
  // Constants; if there is a symbol, its address instead.
  Handle world, byte;
  const char *worldSymbol, *byteSymbol;
  Handle ignoredStatus;
  int funneled; // MPI_THREAD_FUNNELED
};

const Abi abis[] = {
    {{"libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi_abi.so"}, 0x101, 0x247, nullptr, nullptr, 0, 1024}, // MPI 5
    {{"libmpi.so.40"}, 0, 0, "ompi_mpi_comm_world", "ompi_mpi_byte", 0, 1},                             // Open MPI
    {{"libmpi.so.12", "libmpich.so.12"}, 0x44000000, 0x4c00010d, nullptr, nullptr, 1, 1},               // MPICH
};

// The values that a launcher passes to the processes it starts.
struct Launch {
  bool any = false, isOpenMpi = false;
  int size = 0; // 0: not given
};

Launch launchOf() {
  Launch launch;
  auto number = [](const char *name) {
    int found = 0; // remains if the launcher gives no number
    if (const char *text = std::getenv(name))
      std::from_chars(text, text + std::strlen(text), found);
    return found;
  };
  if (int size = number("OMPI_COMM_WORLD_SIZE"); size > 0)
    launch = {true, true, size};
  else if (int others = number("PMI_SIZE"); others > 0) // MPICH's Hydra, and Slurm's srun --mpi=pmi2
    launch = {true, false, others};
  else if (std::getenv("PMIX_RANK")) // Slurm's srun --mpi=pmix
    launch = {true, false, 0};
  return launch;
}

class Mpi : public Ranks {
public:
  struct Library;
  Mpi(std::unique_ptr<Library> library, std::unique_ptr<Watch> watch, int rank, int size);
  ~Mpi() override;
  int post(std::span<const Part> sends, std::span<const Part> receives) override;
  bool test(int exchange) override;
  void complete(int exchange) override;
  void leave() override;
  [[noreturn]] void abort() override;

private:
  struct Exchange {
    std::vector<Handle> requests;
    std::vector<int> from; // the rank that a request receives from, or -1 if it sends
    size_t done = 0;       // requests, from the first on
    bool underWay = false;
  };
  void wait(Handle &request, int from);
  std::unique_ptr<Library> library;
  std::vector<Exchange> exchanges; // by number
  std::unique_ptr<Watch> watch;
  bool left = false;
};

struct Mpi::Library {
  void *handle = nullptr;
  std::string file, version; // the version as the library reports it
  Handle world = 0, byte = 0, ignoredStatus = 0;
  int funneled = 0;

  int (*getLibraryVersion)(char *, int *) = nullptr;
  int (*initThread)(int *, char ***, int, int *) = nullptr;
  int (*commRank)(Handle, int *) = nullptr;
  int (*commSize)(Handle, int *) = nullptr;
  int (*isend)(const void *, int, Handle, int, int, Handle, Handle *) = nullptr;
  int (*irecv)(void *, int, Handle, int, int, Handle, Handle *) = nullptr;
  int (*test)(Handle *, int *, Handle) = nullptr;
  int (*finalize)() = nullptr;
  int (*abort)(Handle, int) = nullptr;

  // Null if there is no such file. The library is loaded, but not initialized.
  static std::unique_ptr<Library> open(const Abi &abi, const std::string &file) {
    void *handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle)
      return nullptr;
    auto library = std::make_unique<Library>();
    library->handle = handle;
    library->file = file;
    library->world = abi.worldSymbol ? reinterpret_cast<Handle>(dlsym(handle, abi.worldSymbol)) : abi.world;
    library->byte = abi.byteSymbol ? reinterpret_cast<Handle>(dlsym(handle, abi.byteSymbol)) : abi.byte;
    library->ignoredStatus = abi.ignoredStatus;
    library->funneled = abi.funneled;
    bool complete = library->world && library->byte;
    auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      complete &= function != nullptr;
    };
    find(library->getLibraryVersion, "MPI_Get_library_version");
    find(library->initThread, "MPI_Init_thread");
    find(library->commRank, "MPI_Comm_rank");
    find(library->commSize, "MPI_Comm_size");
    find(library->isend, "MPI_Isend");
    find(library->irecv, "MPI_Irecv");
    find(library->test, "MPI_Test");
    find(library->finalize, "MPI_Finalize");
    find(library->abort, "MPI_Abort");
    if (!complete)
      return nullptr;
    char text[1 << 13] = ""; // the longest version text in any of the ABIs
    int length = 0;
    library->getLibraryVersion(text, &length);
    library->version = std::string(text, strcspn(text, "\n,"));
    return library;
  }
  bool isOpenMpi() const { return version.starts_with("Open MPI"); }
  // A library that was initialized stays loaded: it has registered handlers for the end of the process.
  bool begun = false;
  ~Library() {
    if (handle && !begun)
      dlclose(handle);
  }
};

// The ABI that a library file implements, according to its symbols.
const Abi &abiOf(const std::string &file) {
  void *handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    throw Error("--mpi " + file + ": " + dlerror());
  const bool standard = dlsym(handle, "MPI_Abi_get_version") && file.find("mpi_abi") != std::string::npos;
  const bool openMpi = dlsym(handle, "ompi_mpi_comm_world");
  dlclose(handle);
  return abis[standard ? 0 : openMpi ? 1 : 2];
}

// The library of the MPI implementation that the launcher belongs to, as far as that is known.
std::unique_ptr<Mpi::Library> findLibrary(const std::string &file, const Launch &launch) {
  if (!file.empty()) {
    if (auto library = Mpi::Library::open(abiOf(file), file))
      return library;
    throw Error("--mpi " + file + ": not an MPI library, or one with an unknown ABI");
  }
  std::unique_ptr<Mpi::Library> other;
  std::string tried;
  for (const Abi &abi : abis)
    for (const char *name : abi.files) {
      tried += (tried.empty() ? "" : ", ") + std::string(name);
      std::unique_ptr<Mpi::Library> library = Mpi::Library::open(abi, name);
      if (library && (library->isOpenMpi() == launch.isOpenMpi || (!launch.isOpenMpi && launch.size == 0)))
        return library;
      if (library && !other)
        other = std::move(library);
    }
  if (other) // srun --mpi=pmi2 starts processes of either one; the number of ranks will show if it is right
    return other;
  throw Error("this process was started by an MPI launcher, but no MPI library was found (" + tried +
              "); install the launcher's (on Debian openmpi-bin or mpich), name it with --mpi FILE, or train in one "
              "process with --mpi none");
}

Mpi::Mpi(std::unique_ptr<Library> begun, std::unique_ptr<Watch> watching, int rank, int size)
    : Ranks(rank, size), library(std::move(begun)), watch(std::move(watching)) {
  tellNames();
  watch->begin(*this);
}

Mpi::~Mpi() { leave(); }

void Mpi::leave() {
  if (left)
    return;
  left = true;
  watch->stop();
  library->finalize();
}

// Spins at first, then yields the core: there may be more processes than cores.
void Mpi::wait(Handle &request, int from) {
  using Clock = std::chrono::steady_clock;
  using namespace std::chrono_literals;
  const Clock::time_point began = Clock::now();
  Clock::time_point told = began;
  for (int64_t tries = 0;; ++tries) {
    int done = 0;
    library->test(&request, &done, library->ignoredStatus); // an error ends all ranks, with MPI's own message
    if (done)
      return;
    if (tries >= 200)
      std::this_thread::sleep_for(50us);
    if (const Clock::time_point now = Clock::now(); isFirst() && from >= 0 && now - told > 60s) {
      std::fprintf(stderr, "waiting for %s for %lld s\n", nameOf(from).c_str(),
                   static_cast<long long>(std::chrono::duration_cast<std::chrono::seconds>(now - began).count()));
      told = now;
    }
  }
}

int Mpi::post(std::span<const Part> sends, std::span<const Part> receives) {
  constexpr int64_t most = int64_t(1) << 30; // bytes per message, whose count is an int
  auto exchange = std::ranges::find(exchanges, false, &Exchange::underWay);
  if (exchange == exchanges.end())
    exchange = exchanges.emplace(exchange);
  exchange->underWay = true;
  exchange->requests.clear();
  exchange->from.clear();
  exchange->done = 0;
  auto postPart = [&](const Part &part, bool isReceive) {
    for (int64_t at = 0; at < part.bytes; at += most) {
      char *data = static_cast<char *>(part.data) + at;
      const int bytes = static_cast<int>(std::min(most, part.bytes - at));
      Handle &request = exchange->requests.emplace_back(0);
      exchange->from.push_back(isReceive ? part.rank : -1);
      if (isReceive)
        library->irecv(data, bytes, library->byte, part.rank, 0, library->world, &request);
      else
        library->isend(data, bytes, library->byte, part.rank, 0, library->world, &request);
    }
  };
  for (const Part &part : receives)
    postPart(part, true);
  for (const Part &part : sends)
    postPart(part, false);
  return static_cast<int>(exchange - exchanges.begin());
}

bool Mpi::test(int number) {
  Exchange &exchange = exchanges[number];
  for (; exchange.done < exchange.requests.size(); ++exchange.done) {
    int done = 0;
    library->test(&exchange.requests[exchange.done], &done, library->ignoredStatus);
    if (!done)
      return false;
  }
  exchange.underWay = false;
  return true;
}

void Mpi::complete(int number) {
  Exchange &exchange = exchanges[number];
  for (; exchange.done < exchange.requests.size(); ++exchange.done)
    wait(exchange.requests[exchange.done], exchange.from[exchange.done]);
  exchange.underWay = false;
}

void Mpi::abort() {
  watch->stop(); // the launcher may end others before this one
  std::fflush(nullptr);
  library->abort(library->world, 1);
  std::_Exit(1);
}

constexpr const char *alone = "none"; // in place of a library

// MPI_Init waits for all processes that the launcher has started, and says nothing.
void tellWaiting(const std::stop_token &stop) {
  using namespace std::chrono_literals;
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  if (!stopped.wait_for(lock, stop, 10s, [&] { return stop.stop_requested(); }))
    std::fprintf(stderr,
                 "process %d has waited for 10 s for others that the launcher has started to join it over MPI; if some "
                 "were given --mpi %s, they never do: give it to all processes, or to none\n",
                 static_cast<int>(getpid()), alone);
}

} // namespace

std::unique_ptr<Ranks> joinRanks(const std::string &file) {
  const Launch launch = launchOf();
  if (!launch.any || launch.size == 1 || file == alone)
    return oneRank();
  auto watch = std::make_unique<Watch>();
  std::unique_ptr<Mpi::Library> library = findLibrary(file, launch);
  dlopen(library->file.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD); // its plugins look up its symbols globally
  library->begun = true;
  int provided = 0, rank = 0, size = 0;
  {
    const std::jthread teller(tellWaiting);
    library->initThread(nullptr, nullptr, library->funneled, &provided); // only this thread calls MPI
  }
  library->commRank(library->world, &rank);
  library->commSize(library->world, &size);
  if (launch.size > 0 && size != launch.size) {
    const std::string version = library->version, name = library->file;
    library->finalize();
    throw Error("the launcher has started " + std::to_string(launch.size) + " processes, but " + name + " (" + version +
                ") sees " + std::to_string(size) + ": it is not the launcher's MPI; name that with --mpi FILE");
  }
  if (size == 1) {
    library->finalize();
    return oneRank();
  }
  return std::make_unique<Mpi>(std::move(library), std::move(watch), rank, size);
}

} // namespace xfc
