// Tests exchanges between the GPUs of several processes, with the driver and the NCCL of tests/ptx.
#include "device/cuda/CudaDevice.h"
#include "device/cuda/Nccl.h"
#include "support/Error.h"
#include "variable.h"
#include <array>
#include <cstdio>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace xfc;

namespace {

const char emptyKernel[] = ".version 7.1\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";
const xfc_device_image emptyImage{XFC_ABI_VERSION, 0, "sm_80", emptyKernel, sizeof emptyKernel - 1, nullptr, 0,
                                  nullptr,         0};
const xfc_device_image *const emptyImages[] = {&emptyImage, nullptr};

// Runs the body in `size` processes, each with a device. The first one begins the group. A process of its own has a
// driver of its own, whose errors the next test does not see, and which makes all checks, whatever was loaded before.
using Body = std::function<void(cuda::CudaDevice &, Peers &, int rank)>;
void runRank(int rank, const std::vector<std::array<int, 2>> &pipes, const Body &body) {
  const int size = static_cast<int>(pipes.size());
  const Variable checks("XFC_PTX_CHECK", "1");
  cuda::CudaDevice device(emptyImages);
  std::string group(sizeof(cuda::GroupId), '\0');
  if (rank == 0)
    group = device.newGroup();
  else if (read(pipes[rank][0], group.data(), group.size()) != static_cast<ssize_t>(group.size()))
    throw Error("the first rank has not begun a group");
  for (int other = 1; other < size && rank == 0; ++other)
    if (write(pipes[other][1], group.data(), group.size()) != static_cast<ssize_t>(group.size()))
      throw Error("a pipe is broken");
  body(device, *device.join(group, rank, size), rank);
}
void together(int size, const Body &body) {
  std::vector<std::array<int, 2>> pipes(size);
  for (std::array<int, 2> &ends : pipes)
    ASSERT_EQ(pipe(ends.data()), 0);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < size; ++rank) {
    processes.push_back(fork());
    ASSERT_GE(processes.back(), 0);
    if (processes.back() > 0)
      continue;
    alarm(100); // rather than to hang
    try {
      runRank(rank, pipes, body);
    } catch (const Error &error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
    }
    std::fflush(stdout);
    _exit(testing::Test::HasFailure());
  }
  for (pid_t process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    EXPECT_EQ(status, 0) << "a process has failed";
  }
  for (const std::array<int, 2> &ends : pipes)
    for (int end : ends)
      close(end);
}

std::unique_ptr<DeviceMemory> numbers(Device &device, std::vector<float> values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  std::unique_ptr<DeviceMemory> memory = device.allocate(bytes, "numbers", false);
  device.copyToDevice(memory->data(), values.data(), bytes);
  return memory;
}

std::vector<float> valuesOf(Device &device, const DeviceMemory &memory) {
  std::vector<float> values(memory.bytes() / sizeof(float));
  device.copyToHost(values.data(), memory.data(), memory.bytes());
  return values;
}

std::string messageOf(const std::function<void()> &run) {
  try {
    run();
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

} // namespace

// Each process sends two parts of different sizes to each of the others, larger than a socket takes at once, several
// times; the sum of what came is right, and what the device is given after wait() sees it. Each exchange is traced.
TEST(CudaPeers, EveryPartArrives) {
  constexpr int64_t size = 3, first = 70001, second = 3, part = first + second;
  together(size, [&](cuda::CudaDevice &device, Peers &peers, int rank) {
    Trace trace(1);
    device.traceTo(&trace);
    std::vector<float> mine(part * size);
    for (int turn = 0; turn < 3; ++turn) {
      for (int64_t i = 0; i < part * size; ++i)
        mine[i] = static_cast<float>(1000000 * rank + 7 * turn + i % 1000);
      const auto from = numbers(device, mine), to = numbers(device, std::vector<float>(part * size)),
                 copy = numbers(device, std::vector<float>(part * size));
      std::vector<Peers::Part> sends, receives;
      for (int other = 0; other < size; ++other)
        if (other != rank)
          for (auto [at, count] : {std::pair(int64_t(0), first), {first, second}}) {
            sends.push_back({other, static_cast<float *>(from->data()) + other * part + at, count * 4});
            receives.push_back({other, static_cast<float *>(to->data()) + other * part + at, count * 4});
          }
      peers.start(sends, receives);
      peers.wait();
      device.copyOnDevice(copy->data(), to->data(), part * size * 4);
      const std::vector<float> got = valuesOf(device, *copy);
      for (int64_t i = 0; i < part * size; ++i) {
        const int64_t other = i / part, at = rank * part + i % part; // its place at the sender
        ASSERT_EQ(got[i], other == rank ? 0 : static_cast<float>(1000000 * other + 7 * turn + at % 1000)) << i;
      }
    }
    device.traceTo(nullptr);
    const std::vector<TraceEvent> &exchanges = trace.events(trace.ranks());
    ASSERT_EQ(exchanges.size(), 3U);
    for (size_t turn = 0; turn < 3; ++turn) {
      EXPECT_EQ(exchanges[turn].bytes, 2 * (size - 1) * part * 4);
      EXPECT_LE(turn == 0 ? 0 : exchanges[turn - 1].end, exchanges[turn].begin);
      EXPECT_LE(exchanges[turn].begin, exchanges[turn].end);
    }
  });
}

// The driver finds work that is given after start() and touches what is exchanged.
TEST(CudaPeers, AMissingWaitIsFound) {
  for (bool waits : {true, false})
    together(2, [&](cuda::CudaDevice &device, Peers &peers, int rank) {
      const auto memory = numbers(device, {1, 2}), zeros = numbers(device, {0, 0});
      const Peers::Part send{1 - rank, memory->data(), 8}, receive{1 - rank, zeros->data(), 8};
      if (rank == 0)
        peers.start({&send, 1}, {});
      else
        peers.start({}, {&receive, 1});
      if (waits)
        peers.wait();
      const std::string said = messageOf([&] {
        if (rank == 1) { // which loses the other one if that fails
          peers.wait();
          return void(valuesOf(device, *zeros));
        }
        device.copyOnDevice(memory->data(), zeros->data(), 8);
        valuesOf(device, *memory);
        peers.wait();
        valuesOf(device, *memory);
      });
      EXPECT_EQ(said.empty(), waits) << said;
    });
}

TEST(CudaPeers, ALostProcessIsSaid) {
  together(3, [&](cuda::CudaDevice &device, Peers &peers, int rank) {
    if (rank == 1)
      return; // leaves the group
    const auto memory = numbers(device, {1, 2});
    const Peers::Part receive{1, memory->data(), 8};
    peers.start({}, {&receive, 1});
    peers.wait();
    const std::string said = messageOf([&] { valuesOf(device, *memory); });
    EXPECT_NE(said.find("remote process exited"), std::string::npos) << said;
    EXPECT_NE(said.find("start again with --resume"), std::string::npos) << said;
  });
}

TEST(CudaPeers, PartsOfUnequalSizesAreFound) {
  together(2, [&](cuda::CudaDevice &device, Peers &peers, int rank) {
    const auto memory = numbers(device, {1, 2});
    const Peers::Part send{1, memory->data(), 4}, receive{0, memory->data(), 8};
    if (rank == 0)
      return peers.start({&send, 1}, {});
    peers.start({}, {&receive, 1});
    peers.wait();
    const std::string said = messageOf([&] { valuesOf(device, *memory); });
    EXPECT_NE(said.find("invalid usage"), std::string::npos) << said;
  });
}

TEST(CudaPeers, ASendOutsideOfAGroupIsFound) {
  const cuda::CudaDevice device(emptyImages);
  const cuda::Nccl nccl;
  int version = 0;
  nccl.getVersion(&version);
  EXPECT_GE(version, 2700);
  cuda::GroupId group;
  nccl.getUniqueId(&group);
  cuda::Communicator communicator = nullptr;
  nccl.joinRank(&communicator, 1, group, 0);
  const std::string said = messageOf([&] { nccl.send(nullptr, 4, cuda::Nccl::bytes, 0, communicator, nullptr); });
  EXPECT_NE(said.find("ncclSend: invalid usage; NCCL_DEBUG=INFO"), std::string::npos) << said;
  nccl.destroy(communicator);
}
