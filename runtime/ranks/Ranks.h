// The processes that train one model together.
#pragma once

#include "support/Error.h"
#include "trace/Trace.h"
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace xfc {

// An error that every rank knows of: all of them throw it at the same place, so that each can end by itself.
struct CommonError : Error {
  using Error::Error;
};

// One of `size` processes. All of them make the same calls of exchange() and of what is built on it, in the same order.
class Ranks {
public:
  virtual ~Ranks() = default;
  int rank() const { return place; }
  int size() const { return count; }
  bool isFirst() const { return place == 0; } // which writes files and talks to people

  // Memory that another rank gets, or fills.
  struct Part {
    int rank;
    void *data;
    int64_t bytes;
  };
  // Sends and receives all of these, none of them from or to itself, and returns when that is done. What one rank sends
  // to another arrives in the order of its parts. Does not return where a rank is lost: all of them end.
  void exchange(std::span<const Part> sends, std::span<const Part> receives);
  // While a trace is set, it is told of every exchange.
  void traceTo(Trace *trace) { this->trace = trace; }
  // Ends being one of them, which all of them do, each in its time.
  virtual void leave() {}
  // Ends all ranks at once, with status 1. The caller has said why.
  [[noreturn]] virtual void abort() = 0;

  // What each rank says, by its number.
  std::vector<std::string> gather(const std::string &mine);
  // `total` things of `width` numbers each, of which thing i is of rank i modulo their number: each rank gives its own,
  // and all get all of them in order.
  std::vector<double> gatherInTurn(const std::vector<double> &mine, size_t width, size_t total);
  // The largest of what each rank says.
  int largest(int mine);
  // The first rank's bytes, of which all know how many there are.
  void broadcast(void *data, int64_t bytes);
  std::string broadcast(const std::string &text); // of any size; the first rank's
  // Does a part of the work that needs no other rank. Where some fail, all throw CommonError, with what each of them
  // had to say.
  void together(const std::function<void()> &work);
  // Ranks that run on the same cores as this one, itself included.
  int sharers() const { return sharing; }
  // "rank 1 (process 4711 on host)"
  const std::string &nameOf(int rank) const { return names[rank]; }

protected:
  Ranks(int rank, int size) : place(rank), count(size), names(size) {}
  void tellNames(); // to each other; once
  // What exchange() promises.
  virtual void swap(std::span<const Part> sends, std::span<const Part> receives) = 0;

private:
  int place, count, sharing = 1;
  std::vector<std::string> names;
  Trace *trace = nullptr;
};

// A process by itself.
std::unique_ptr<Ranks> oneRank();
// The ranks that mpirun, or another launcher of MPI, has started this process with; by itself where there was none.
// `library` names MPI's file ("" finds it; "none" takes the process by itself). Throws Error where MPI is not there, or
// is another one than the launcher's.
std::unique_ptr<Ranks> joinRanks(const std::string &library);

} // namespace xfc
