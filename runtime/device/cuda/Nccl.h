// NCCL: the functions we call, looked up in libnccl.so.2 when GPUs of several processes are to exchange memory. Types
// and constants are declared here, so that building needs no header or library of NCCL.
//
// Only sends and receives are used. NCCL's reductions choose an order of their own, by the number and the connections
// of the GPUs, so that their sums differ from those of one process.
#pragma once

#include "device/cuda/Driver.h"
#include <string>

namespace xfc::cuda {

using Communicator = struct CommunicatorObject *; // ncclComm_t

// ncclUniqueId: passed by value.
struct GroupId {
  char bytes[128] = {};
};

class Nccl {
  void *library; // opened before the functions are looked up

public:
  using Result = int;                                   // ncclResult_t; 0 is success
  static constexpr Result notFound = 3, inProgress = 7; // ncclInternalError, ncclInProgress
  static constexpr int bytes = 1;                       // ncclUint8

  // Throws Error if there is no library, or one from before 2.7, which cannot send.
  Nccl();
  Nccl(const Nccl &) = delete;

  template <typename... P> using F = LibraryFunction<Nccl, P...>;
  F<int *> getVersion{*this, "ncclGetVersion"};
  F<GroupId *> getUniqueId{*this, "ncclGetUniqueId"};
  F<Communicator *, int, GroupId, int> joinRank{*this, "ncclCommInitRank"}; // the number of ranks; the id; this rank
  F<> beginGroup{*this, "ncclGroupStart"}, endGroup{*this, "ncclGroupEnd"};
  // The memory, how many of them, their type, the other rank.
  F<const void *, size_t, int, int, Communicator, Stream> send{*this, "ncclSend"};
  F<void *, size_t, int, int, Communicator, Stream> receive{*this, "ncclRecv"};
  F<Communicator, Result *> getAsyncError{*this, "ncclCommGetAsyncError"};
  F<Communicator> abort{*this, "ncclCommAbort"}, destroy{*this, "ncclCommDestroy"};

  std::string describe(Result result) const; // in NCCL's words

  // For LibraryFunction.
  void *find(const char *name) const;
  [[noreturn]] void fail(const char *function, Result result) const;
  [[noreturn]] void lacks(const char *function) const;
};

} // namespace xfc::cuda
