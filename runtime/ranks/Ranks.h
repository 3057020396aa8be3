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

// An error that all ranks throw at the same place, so that each of them can end in the ordinary way.
struct CommonError : Error {
  using Error::Error;
};

// One of `size` processes. All of them call exchange(), and the functions built on it, in the same order. Of any two of
// them, one starts to send in the order in which the other one starts to receive.
class Ranks {
public:
  virtual ~Ranks() = default;
  int rank() const { return place; }
  int size() const { return count; }
  bool isFirst() const { return place == 0; } // the one that writes files and prints messages

  // Memory to send to another rank, or to receive from it.
  struct Part {
    int rank;
    void *data;
    int64_t bytes;
  };
  // Sends and receives all of these parts, none of them to or from this rank, and returns when that is complete. Parts
  // sent to the same rank arrive in order. Does not return if a rank is lost: all ranks end.
  void exchange(std::span<const Part> sends, std::span<const Part> receives);

  // Starts such an exchange, which goes on while the caller computes, and returns its number. Until it is complete, the
  // parts that are sent must not change, and those that are received must not be touched. Messages move on only while
  // some exchange is waited for or asked whether it is complete, so a caller that computes should ask now and then.
  int start(std::span<const Part> sends, std::span<const Part> receives);
  // Whether the exchange is complete. If so, or after waiting for it, its number must not be used any more.
  bool isComplete(int exchange);
  void wait(int exchange);

  // Records every exchange in this trace, until it is set to null: those that a caller waits for from the start on the
  // main thread's track, and the others on the ranks' track, each from when it starts, or the one before it ends, until
  // it is found to be complete.
  void traceTo(Trace *trace) { this->trace = trace; }
  // Leaves the group, which every rank does, each at its own time.
  virtual void leave() {}
  // Ends all ranks at once, with status 1. The caller has already printed the reason.
  [[noreturn]] virtual void abort() = 0;

  // Gathers the text of each rank, indexed by rank.
  std::vector<std::string> gather(const std::string &mine);
  // `total` items of `width` numbers each, of which item i belongs to rank i modulo the number of ranks: each rank
  // passes its own items, and every rank gets all of them in order.
  std::vector<double> gatherInTurn(const std::vector<double> &mine, size_t width, size_t total);
  // The maximum of `mine` over all ranks.
  int largest(int mine);
  // Broadcasts the first rank's bytes; every rank knows how many there are.
  void broadcast(void *data, int64_t bytes);
  std::string broadcast(const std::string &text); // the first rank's text, of any size
  // Runs work that needs no other rank. If it fails on some ranks, all ranks throw CommonError with the messages of
  // those that failed.
  void together(const std::function<void()> &work);
  // The number of ranks that run on the same cores as this one, itself included.
  int sharers() const { return sharing; }
  // The number of lower ranks on this machine.
  int onHost() const { return before; }
  // "rank 1 (process 4711 on host)"
  const std::string &nameOf(int rank) const { return names[rank]; }

protected:
  Ranks(int rank, int size) : place(rank), count(size), names(size) {}
  void tellNames(); // exchanges names with the other ranks; called once
  // These implement the functions above. The numbers are small, and used again once their exchanges are complete.
  virtual int post(std::span<const Part> sends, std::span<const Part> receives) = 0;
  virtual bool test(int exchange) = 0;
  virtual void complete(int exchange) = 0;

private:
  void traced(int exchange); // records that it is complete

  int place, count, sharing = 1, before = 0;
  std::vector<std::string> names;
  Trace *trace = nullptr;
  std::vector<TraceEvent> underWay; // by the number of the exchange; those with an empty name are not recorded
  int64_t lastEnd = 0;              // of the exchanges on the ranks' track
};

// A single process.
std::unique_ptr<Ranks> oneRank();
// The ranks that mpirun, or another MPI launcher, started together with this process; a single process if there was no
// launcher. `library` names MPI's library file ("" searches for it; "none" ignores the launcher). Throws Error if no
// MPI library is found, or it is not the launcher's.
std::unique_ptr<Ranks> joinRanks(const std::string &library);

} // namespace xfc
