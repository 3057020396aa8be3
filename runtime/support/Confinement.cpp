// Drops the privileges that a process handling untrusted text does not need.
#include "support/Confinement.h"
#include <array>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace xfc {
namespace {

bool allowed = false; // set by main()

// Access rights that Debian's headers do not define yet.
constexpr uint64_t refer = uint64_t(1) << 13, truncate = uint64_t(1) << 14;
constexpr uint64_t inFile = LANDLOCK_ACCESS_FS_WRITE_FILE | truncate;
constexpr uint64_t inFolder = inFile | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE;
constexpr uint64_t restricted = inFolder | refer | LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;

void allow(int rules, const std::filesystem::path &path, uint64_t access) {
  const int file = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (file < 0)
    return; // the writer will report it
  landlock_path_beneath_attr rule{};
  rule.allowed_access = access;
  rule.parent_fd = file;
  syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
  close(file);
}

void confineFiles(const std::vector<std::string> &written) {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1)
    return;
  // The rules never grant `refer`, so a kernel that supports it refuses every move between folders, as intended.
  uint64_t known = restricted;
  if (version < 2)
    known &= ~refer;
  if (version < 3)
    known &= ~truncate;
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = known;
  const int rules = static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0));
  if (rules < 0)
    return;
  for (const std::string &name : written) {
    if (name.empty() || name == "-")
      continue;
    std::error_code error;
    // Resolve links. The name is made absolute first so that it keeps its folder: weakly_canonical returns the bare
    // name of a missing file unchanged.
    const std::filesystem::path path = std::filesystem::weakly_canonical(std::filesystem::absolute(name, error), error);
    if (error)
      continue;
    const bool exists = std::filesystem::exists(path, error), regular = std::filesystem::is_regular_file(path, error);
    if (exists && !regular)
      allow(rules, path, inFile & known);
    else
      allow(rules, path.parent_path(), inFolder & known);
  }
  syscall(SYS_landlock_restrict_self, rules, 0);
  close(rules);
}

#if defined(__x86_64__)
void confineCalls(bool accepts) {
  constexpr unsigned refused[] = {SYS_execve,
                                  SYS_execveat,
                                  SYS_fork,
                                  SYS_vfork,
                                  SYS_ptrace,
                                  SYS_process_vm_readv,
                                  SYS_process_vm_writev,
                                  SYS_socket,
                                  SYS_socketpair,
                                  SYS_connect,
                                  SYS_bind,
                                  SYS_listen,
                                  SYS_accept,
                                  SYS_accept4,
                                  SYS_mount,
                                  SYS_umount2,
                                  SYS_pivot_root,
                                  SYS_chroot,
                                  SYS_setns,
                                  SYS_unshare,
                                  SYS_init_module,
                                  SYS_finit_module,
                                  SYS_delete_module,
                                  SYS_kexec_load,
                                  SYS_bpf,
                                  SYS_perf_event_open,
                                  SYS_userfaultfd,
                                  SYS_io_uring_setup,
                                  SYS_add_key,
                                  SYS_request_key,
                                  SYS_keyctl,
                                  SYS_open_by_handle_at,
                                  SYS_memfd_create,
                                  SYS_pidfd_getfd};
  std::vector<sock_filter> filter;
  auto statement = [&](unsigned code, unsigned value) { filter.push_back({static_cast<uint16_t>(code), 0, 0, value}); };
  // Runs the next statement if the value matches, otherwise skips it.
  auto unless = [&](unsigned code, unsigned value) { filter.push_back({static_cast<uint16_t>(code), 0, 1, value}); };
  const unsigned load = BPF_LD | BPF_W | BPF_ABS, equal = BPF_JMP | BPF_JEQ | BPF_K, result = BPF_RET | BPF_K;
  const unsigned permissionDenied = SECCOMP_RET_ERRNO | EPERM, unknownCall = SECCOMP_RET_ERRNO | ENOSYS;
  statement(load, offsetof(seccomp_data, arch));
  filter.push_back({static_cast<uint16_t>(equal), 1, 0, AUDIT_ARCH_X86_64});
  statement(result, permissionDenied); // system call numbers of another architecture
  statement(load, offsetof(seccomp_data, nr));
  filter.push_back({static_cast<uint16_t>(BPF_JMP | BPF_JGE | BPF_K), 0, 1, 0x40000000}); // system call numbers of x32
  statement(result, permissionDenied);
  for (unsigned call : refused) {
    if (accepts && (call == SYS_accept || call == SYS_accept4))
      continue;
    unless(equal, call);
    statement(result, permissionDenied);
  }
  // Allow threads, but no processes. The arguments of clone3 are in memory, which a filter cannot read: refuse it as
  // unknown, so that callers fall back to clone.
  unless(equal, SYS_clone3);
  statement(result, unknownCall);
  filter.push_back({static_cast<uint16_t>(equal), 0, 3, SYS_clone});
  statement(load, offsetof(seccomp_data, args));
  filter.push_back({static_cast<uint16_t>(BPF_JMP | BPF_JSET | BPF_K), 1, 0, CLONE_THREAD});
  statement(result, permissionDenied);
  statement(result, SECCOMP_RET_ALLOW);
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}
#else
void confineCalls(bool) {}
#endif

} // namespace

void allowConfinement() { allowed = true; }

static void confine(const std::vector<std::string> &written, bool accepts) {
  if (!allowed || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return;
  confineFiles(written);
  confineCalls(accepts);
}

void confine(const std::vector<std::string> &written) { confine(written, /*accepts=*/false); }

void confineServing(const std::string &device) {
  if (device == "cpu")
    confine({}, /*accepts=*/true);
}

void confineOn(const std::string &device, const std::vector<std::string> &written) {
  if (device == "cpu")
    confine(written);
}

} // namespace xfc
