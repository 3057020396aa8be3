// Sums the gradients of ranks whose devices have memory of their own.
#include "train/DeviceSum.h"
#include "plan/Programs.h"

namespace xfc {

DeviceSum::DeviceSum(Ranks &ranks, Engine &engine, const Sharding &sharding)
    : ranks(ranks), engine(engine), sharding(sharding), element(bytesOf(engine.module().type)) {
  for (const Sharding::Bucket &bucket : sharding.buckets()) {
    places.push_back(share);
    share += sizeOf(bucket.shares[ranks.rank()]);
    if (steps.empty() || steps.back() != bucket.step)
      steps.push_back(bucket.step);
  }
}

void DeviceSum::join() {
  Device &device = engine.device();
  std::string identity, group;
  ranks.together([&] {
    identity = device.identity();
    if (ranks.isFirst())
      group = device.newGroup();
  });
  const std::vector<std::string> all = ranks.gather(identity);
  for (int rank = 1; rank < ranks.size(); ++rank)
    for (int other = 0; other < rank; ++other)
      if (all[rank] == all[other])
        throw CommonError(ranks.nameOf(rank) + " uses the same GPU as " + ranks.nameOf(other) +
                          "; start at most one process for each GPU, or let each process see one of its own "
                          "(CUDA_VISIBLE_DEVICES); from version 2.30, NCCL lets processes share a GPU if "
                          "NCCL_MULTI_RANK_GPU_ENABLE is 1");
  group = ranks.broadcast(group);
  // A rank that fails here ends the others, which wait for it.
  memory = device.allocate((1 + ranks.size()) * share * element, "sums of gradients");
  peers = device.join(group, ranks.rank(), ranks.size());
}

void DeviceSum::begin(int batches, bool first) {
  count = batches;
  isFirst = first;
  sent = 0;
}

void DeviceSum::before(const ProgramRun &run, int64_t step) {
  while (sent < places.size() && sharding.buckets()[sent].step <= step)
    send(sent++, static_cast<char *>(run.address({Place::Kind::Gradients})));
}

// Every rank starts the exchange of each bucket in turn, also one that has no batch in this round.
void DeviceSum::send(size_t bucket, char *gradients) {
  const std::vector<std::vector<Range>> &shares = sharding.buckets()[bucket].shares;
  sends.clear();
  receives.clear();
  for (int rank = 0; rank < ranks.size() && ranks.rank() < count; ++rank)
    if (rank != ranks.rank())
      for (const Range &range : shares[rank])
        sends.push_back({rank, gradients + range.begin * element, range.size() * element});
  for (int rank = 0; rank < count; ++rank) {
    char *to = termOf(rank) + places[bucket] * element;
    for (const Range &range : shares[ranks.rank()]) {
      if (rank != ranks.rank())
        receives.push_back({rank, to, range.size() * element});
      to += range.size() * element;
    }
  }
  peers->start(sends, receives);
}

void DeviceSum::end(void *of) {
  Device &device = engine.device();
  char *const gradients = static_cast<char *>(of);
  while (sent < places.size())
    send(sent++, gradients);
  for (size_t bucket = 0; bucket < places.size() && ranks.rank() < count; ++bucket) {
    char *to = termOf(ranks.rank()) + places[bucket] * element;
    for (const Range &range : sharding.buckets()[bucket].shares[ranks.rank()]) {
      device.copyOnDevice(to, gradients + range.begin * element, range.size() * element);
      to += range.size() * element;
    }
  }
  peers->wait();
  if (isFirst && count == 1)
    device.copyOnDevice(memory->data(), termOf(0), share * element);
  else
    device.run(additionOf(count, isFirst));
}

void DeviceSum::finish(void *of) {
  const char *from = static_cast<const char *>(memory->data());
  for (const Sharding::Bucket &bucket : sharding.buckets())
    for (const Range &range : bucket.shares[ranks.rank()]) {
      engine.device().copyOnDevice(static_cast<char *>(of) + range.begin * element, from, range.size() * element);
      from += range.size() * element;
    }
}

const ProgramRun &DeviceSum::additionOf(int count, bool first) {
  additions.resize(2 * (ranks.size() + size_t{1}));
  std::unique_ptr<Addition> &addition = additions[2 * count + first];
  if (addition)
    return addition->run;
  addition = std::make_unique<Addition>();
  Program &program = addition->program;
  const Module &module = engine.module();
  program.name = "add gradients of ranks";
  program.arguments = {{"sum and terms", Argument::Role::State, module.type, -1, {(1 + ranks.size()) * share}}};
  // The kernel that adds gradients and sums in `accumulate` takes any number of elements.
  Step step = module.find(programs::accumulate)->steps.front();
  step.location = program.name;
  step.elements = share;
  step.flops = {.constant = share};
  step.traffic = {.constant = 3 * share * element};
  const auto place = [&](int64_t number) { return Place{Place::Kind::Argument, 0, number * share * element}; };
  for (int rank = first ? 1 : 0; rank < count; ++rank) { // to the sum so far, or to the first rank's term
    step.buffers = {first && rank == 1 ? place(1) : place(0), place(1 + rank), place(0)};
    program.steps.push_back(step);
  }
  ProgramRun &run = addition->run;
  run.program = &program;
  run.shape = &shape;
  run.arguments = {{memory->data(), 0, true}};
  run.placement = 1; // nothing ever moves
  engine.device().prepare(program);
  return run;
}

void DeviceSum::gather(const BlockOfElements &block) {
  exchangeToGather(sharding, ranks.rank(), ranks.size(), block, sends, receives);
  peers->start(sends, receives);
  peers->wait();
}

void DeviceSum::gather(void *block) { gather({block, element, 1, engine.module().parameterElements}); }
void DeviceSum::gatherParts(void *block, int64_t count) { gather({block, sizeof(double), squarePart, count}); }

} // namespace xfc
