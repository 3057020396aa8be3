// Tests the available memory under the limits of control groups.
#include "device/cpu/AvailableMemory.h"
#include "folder.h"
#include "support/FileWriter.h"
#include "support/Files.h"

using namespace xfc;

namespace {

class AvailableMemory : public FolderTest {
protected:
  void put(const std::string &file, const std::string &contents) {
    makeFolder(folder + file.substr(0, file.rfind('/')));
    writeFile(folder + file, contents);
  }
  AvailableMemory() { put("/proc/meminfo", "MemTotal:       9000000 kB\nMemAvailable:    8000000 kB\n"); }
};

} // namespace

TEST_F(AvailableMemory, OfTheMachine) {
  EXPECT_EQ(availableMemory(folder), int64_t(8000000) * 1024);
  put("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(availableMemory(folder), int64_t(8000000) * 1024);
}

TEST_F(AvailableMemory, OfGroupsOfVersionTwo) {
  put("/proc/self/cgroup", "0::/jobs/one\n");
  put("/sys/fs/cgroup/jobs/one/memory.max", "max\n");
  put("/sys/fs/cgroup/jobs/one/memory.current", "700\n");
  EXPECT_EQ(availableMemory(folder), int64_t(8000000) * 1024);
  // The limit of an enclosing group; file pages are reclaimable.
  put("/sys/fs/cgroup/jobs/memory.max", "1000000\n");
  put("/sys/fs/cgroup/jobs/memory.current", "600000\n");
  put("/sys/fs/cgroup/jobs/memory.stat", "anon 400000\nfile 200000\ninactive_file 150000\nactive_file 50000\n");
  EXPECT_EQ(availableMemory(folder), 600000);
  put("/sys/fs/cgroup/jobs/one/memory.max", "500000\n");
  EXPECT_EQ(availableMemory(folder), 499300);
  put("/sys/fs/cgroup/jobs/one/memory.current", "900000\n");
  EXPECT_EQ(availableMemory(folder), 1);
}

// In a container the group's own files lie at the mount point.
TEST_F(AvailableMemory, OfAContainer) {
  put("/proc/self/cgroup", "0::/\n");
  put("/sys/fs/cgroup/memory.max", "2000000\n");
  put("/sys/fs/cgroup/memory.current", "500000\n");
  EXPECT_EQ(availableMemory(folder), 1500000);
}

TEST_F(AvailableMemory, OfGroupsOfVersionOne) {
  put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "3000000\n");
  put("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "1000000\n");
  put("/sys/fs/cgroup/memory/docker/abc/memory.stat", "inactive_file 5\ntotal_inactive_file 100000\n");
  EXPECT_EQ(availableMemory(folder), 2100000);
}
