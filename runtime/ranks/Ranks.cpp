// Collective operations of ranks, built from exchanges.
#include "ranks/Ranks.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <unistd.h>

namespace xfc {

static double bytesOf(std::span<const Ranks::Part> sends, std::span<const Ranks::Part> receives) {
  double bytes = 0;
  for (const auto &parts : {sends, receives})
    for (const Ranks::Part &part : parts)
      bytes += static_cast<double>(part.bytes);
  return bytes;
}

void Ranks::exchange(std::span<const Part> sends, std::span<const Part> receives) {
  Span span(count > 1 ? trace : nullptr, "exchange", "exchange");
  span.event.bytes = bytesOf(sends, receives);
  complete(post(sends, receives));
}

int Ranks::start(std::span<const Part> sends, std::span<const Part> receives) {
  const int exchange = post(sends, receives);
  underWay.resize(std::max(underWay.size(), static_cast<size_t>(exchange) + 1));
  underWay[exchange] = {};
  if (trace && count > 1)
    underWay[exchange] = {
        .kind = "exchange", .name = "exchange", .bytes = bytesOf(sends, receives), .begin = trace->now()};
  return exchange;
}

bool Ranks::isComplete(int exchange) {
  if (!test(exchange))
    return false;
  traced(exchange);
  return true;
}

void Ranks::wait(int exchange) {
  complete(exchange);
  traced(exchange);
}

// Intervals of one track must not overlap, as exchanges do.
void Ranks::traced(int exchange) {
  TraceEvent &event = underWay[exchange];
  if (!trace || event.name.empty())
    return;
  event.begin = std::max(event.begin, lastEnd);
  lastEnd = event.end = std::max(event.begin, trace->now());
  trace->add(trace->ranks(), event);
  event = {};
}

std::vector<std::string> Ranks::gather(const std::string &mine) {
  std::vector<std::string> all(count);
  all[place] = mine;
  if (count == 1)
    return all;
  std::vector<Part> sends, receives;
  int64_t size = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(count);
  for (int rank = 0; rank < count; ++rank)
    if (rank != place) {
      sends.push_back({rank, &size, sizeof(size)});
      receives.push_back({rank, &sizes[rank], sizeof(size)});
    }
  exchange(sends, receives);
  sends.clear();
  receives.clear();
  for (int rank = 0; rank < count; ++rank)
    if (rank != place) {
      all[rank].resize(sizes[rank]);
      sends.push_back({rank, const_cast<char *>(mine.data()), size});
      receives.push_back({rank, all[rank].data(), sizes[rank]});
    }
  exchange(sends, receives);
  return all;
}

std::vector<double> Ranks::gatherInTurn(const std::vector<double> &mine, size_t width, size_t total) {
  std::vector<double> all(total * width);
  std::vector<std::vector<double>> theirs(count);
  std::vector<Part> sends, receives;
  for (int rank = 0; rank < count; ++rank) {
    theirs[rank].resize((total + count - 1 - rank) / count * width);
    if (rank != place) {
      sends.push_back({rank, const_cast<double *>(mine.data()), static_cast<int64_t>(mine.size() * sizeof(double))});
      receives.push_back({rank, theirs[rank].data(), static_cast<int64_t>(theirs[rank].size() * sizeof(double))});
    }
  }
  theirs[place] = mine;
  exchange(sends, receives);
  for (size_t i = 0; i < total; ++i)
    std::copy_n(theirs[i % count].begin() + i / count * width, width, all.begin() + i * width);
  return all;
}

int Ranks::largest(int mine) {
  if (count == 1)
    return mine;
  std::vector<int> all(count, mine);
  std::vector<Part> sends, receives;
  for (int rank = 0; rank < count; ++rank)
    if (rank != place) {
      sends.push_back({rank, &mine, sizeof(mine)});
      receives.push_back({rank, &all[rank], sizeof(mine)});
    }
  exchange(sends, receives);
  return *std::max_element(all.begin(), all.end());
}

// Along a binomial tree: in each round, the `reach` ranks that have the data each send it to one more.
void Ranks::broadcast(void *data, int64_t bytes) {
  for (int64_t reach = 1; reach < count; reach *= 2) {
    const Part down{static_cast<int>(place + reach), data, bytes}, up{static_cast<int>(place - reach), data, bytes};
    if (place < reach && place + reach < count)
      exchange({&down, 1}, {});
    else if (place >= reach && place < 2 * reach)
      exchange({}, {&up, 1});
  }
}

std::string Ranks::broadcast(const std::string &text) {
  int64_t size = static_cast<int64_t>(text.size());
  broadcast(&size, sizeof(size));
  std::string all = isFirst() ? text : std::string(size, '\0');
  broadcast(all.data(), size);
  return all;
}

void Ranks::together(const std::function<void()> &work) {
  if (count == 1)
    return work();
  std::string failure;
  try {
    work();
  } catch (const std::exception &error) {
    failure = *error.what() ? error.what() : "an error without a message";
  }
  std::string what;
  std::vector<std::string> failures = gather(failure);
  for (int rank = 0; rank < count; ++rank)
    if (!failures[rank].empty()) {
      const bool common = failures == std::vector<std::string>(count, failures[rank]);
      if (common)
        throw CommonError(failures[rank]);
      what += (what.empty() ? "" : "\nerror: ") + nameOf(rank) + ": " + failures[rank];
    }
  if (!what.empty())
    throw CommonError(what);
}

void Ranks::tellNames() {
  char host[256] = "";
  if (gethostname(host, sizeof(host) - 1) != 0)
    std::strcpy(host, "an unnamed host");
  names = gather("rank " + std::to_string(place) + " (process " + std::to_string(getpid()) + " on " + host + ")");
  const std::vector<std::string> hosts = gather(host);
  before = static_cast<int>(std::count(hosts.begin(), hosts.begin() + place, host));
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof(cores), &cores);
  const std::vector<std::string> places =
      gather(host + std::string(reinterpret_cast<const char *>(&cores), sizeof(cores)));
  sharing = static_cast<int>(std::count(places.begin(), places.end(), places[place]));
}

namespace {
class OneRank : public Ranks {
public:
  OneRank() : Ranks(0, 1) { tellNames(); }
  int post(std::span<const Part>, std::span<const Part>) override { return 0; }
  bool test(int) override { return true; }
  void complete(int) override {}
  [[noreturn]] void abort() override { std::_Exit(1); }
};
} // namespace

std::unique_ptr<Ranks> oneRank() { return std::make_unique<OneRank>(); }

} // namespace xfc
