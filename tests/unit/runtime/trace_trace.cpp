// Tests what is recorded of threads, and the trace file.
#include "trace/Trace.h"
#include "folder.h"
#include "support/Files.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace xfc;

namespace {

using TraceFile = FolderTest;

nlohmann::json parsed(const std::string &events) { return nlohmann::json::parse("[" + events + "]"); }

// The events that have a duration.
std::vector<nlohmann::json> spans(const nlohmann::json &events) {
  std::vector<nlohmann::json> found;
  for (const nlohmann::json &event : events)
    if (event["ph"] == "X")
      found.push_back(event);
  return found;
}

} // namespace

TEST(Trace, NamesOfAnyBytesAreJson) {
  const std::string all = "a \"quoted\"\\\n\t\x01 name of \xc3\xa9, \xff\xfe and </script>", nul("\0", 1);
  Trace trace(1);
  trace.add(0, {.kind = all, .name = all, .program = nul, .place = all, .begin = 1, .end = 2});
  const nlohmann::json events = parsed(trace.json(3, all));
  const std::string shown = "a \"quoted\"\\\n\t\x01 name of \xc3\xa9, \xef\xbf\xbd\xef\xbf\xbd and </script>";
  EXPECT_EQ(events[0]["name"], "process_name");
  EXPECT_EQ(events[0]["args"]["name"], shown);
  ASSERT_EQ(spans(events).size(), 1u);
  const nlohmann::json event = spans(events)[0];
  EXPECT_EQ(event["name"], shown);
  EXPECT_EQ(event["cat"], shown);
  EXPECT_EQ(event["args"]["place"], shown);
  EXPECT_EQ(event["args"]["program"], nul);
  EXPECT_EQ(event["pid"], 3);
}

TEST(Trace, TimesAreMicroseconds) {
  Trace trace(2);
  trace.add(1, {.kind = "kernel",
                .name = "product",
                .number = 7,
                .program = "forward",
                .launch = 5,
                .chunks = 2,
                .allChunks = 8,
                .rows = 0,
                .flops = 12345678901234,
                .bytes = 17,
                .begin = 1002003,
                .end = 3004005});
  trace.add(0, {.kind = "a", .name = "b"});
  const std::string text = trace.json(0, "x", 50);
  EXPECT_NE(text.find("\"ts\":1002.053,\"dur\":2002.002,"), std::string::npos) << text;
  const std::vector<nlohmann::json> found = spans(parsed(text));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]["args"], nlohmann::json::object()); // no details are known
  EXPECT_EQ(found[0]["tid"], 0);
  EXPECT_EQ(found[1]["tid"], 1);
  EXPECT_EQ(found[1]["name"], "product 7");
  const nlohmann::json want = {{"program", "forward"}, {"rows", 0},   {"flops", 12345678901234}, {"bytes", 17},
                               {"launch", 5},          {"chunks", 2}, {"of chunks", 8}};
  EXPECT_EQ(found[1]["args"], want);
}

TEST(Trace, SpansHoldWhatIsInThem) {
  Trace trace(1);
  const int64_t before = trace.now();
  {
    const Span outer(&trace, "step", "outer", 1);
    {
      Span inner(&trace, "data", "inner");
      inner.event.bytes = 4;
    }
    const Span off(nullptr, "step", "nothing");
  }
  const std::vector<TraceEvent> &events = trace.events(0);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "inner");
  EXPECT_LE(before, events[1].begin);
  EXPECT_LE(events[1].begin, events[0].begin);
  EXPECT_LE(events[0].begin, events[0].end);
  EXPECT_LE(events[0].end, events[1].end);
  EXPECT_LE(events[1].end, trace.now());
  // In the file, an enclosing event comes first.
  const std::vector<nlohmann::json> found = spans(parsed(trace.json(0, "x")));
  EXPECT_EQ(found[0]["name"], "outer 1");
  EXPECT_EQ(found[1]["name"], "inner");
}

TEST(Trace, SharesOfALaunchAreOneForEachTrack) {
  Trace trace(2);
  const TraceEvent first{.name = "first", .launch = trace.newLaunches()},
      second{.name = "second", .launch = trace.newLaunches(3)};
  EXPECT_EQ(second.launch, 1);
  EXPECT_EQ(trace.newLaunches(), 4);
  TraceEvent *share = trace.share(0, first);
  ++share->chunks;
  EXPECT_EQ(trace.share(0, first), share);
  EXPECT_NE(trace.share(1, first), share);
  const int64_t begin = share->begin;
  ++trace.share(0, first)->chunks;
  ++trace.share(0, second)->chunks;
  ASSERT_EQ(trace.events(0).size(), 2u);
  EXPECT_EQ(trace.events(0)[0].chunks, 2);
  EXPECT_EQ(trace.events(0)[0].begin, begin);
  EXPECT_EQ(trace.events(0)[1].name, "second");
  EXPECT_LE(begin, trace.events(0)[1].begin);
}

TEST(Trace, WhatHasNoRoomIsCounted) {
  Trace trace(1, 2);
  for (int64_t launch = 0; launch < 5; ++launch)
    for (int chunk = 0; chunk < 3; ++chunk)
      EXPECT_EQ(trace.share(0, {.name = "kernel", .launch = launch}) != nullptr, launch < 2);
  trace.add(0, {});
  EXPECT_EQ(trace.events(0).size(), 2u);
  EXPECT_EQ(trace.leftOut(), 4); // three shares, regardless of their chunks, and the event
  bool said = false;
  for (const nlohmann::json &event : parsed(trace.json(0, "x")))
    said |= event["name"] == "process_labels" &&
            event["args"]["labels"] == "4 events were dropped because the trace buffer is full";
  EXPECT_TRUE(said);
}

TEST_F(TraceFile, HoldsAllProcessesOrIsNotThere) {
  Trace one(1), other(1);
  one.add(0, {.kind = "step", .name = "a"});
  other.add(0, {.kind = "step", .name = "b"});
  other.add(other.gpu(), {.kind = "kernel", .name = "c"});
  writeTrace(in("trace.json"), {one.json(0, "rank 0"), other.json(1, "rank 1")});
  const nlohmann::json file = nlohmann::json::parse(readFile(in("trace.json")));
  const std::vector<nlohmann::json> found = spans(file["traceEvents"]);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0]["pid"], 0);
  EXPECT_EQ(found[2]["pid"], 1);
  std::vector<std::string> threads;
  for (const nlohmann::json &event : file["traceEvents"])
    if (event["name"] == "thread_name")
      threads.push_back(event["args"]["name"]);
  EXPECT_EQ(threads, (std::vector<std::string>{"main thread", "main thread", "GPU"}));
  EXPECT_NE(errorOf([&] { writeTrace(in("none/trace.json"), {}); }).find("none/trace.json"), std::string::npos);
  EXPECT_FALSE(exists(in("none")));
}
