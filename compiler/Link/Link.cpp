// Objects and the runtime into one executable, by lld, which is called with the C library's start files directly:
// no compiler driver is needed on the user's machine, only lld, libc6-dev and libstdc++'s archive.
#include "Link.h"
#include "support/Files.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include <tuple>

namespace xfc {
namespace {

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

std::string inside(llvm::StringRef folder, llvm::StringRef name) {
  llvm::SmallString<256> result(folder);
  path::append(result, name);
  return result.str().str();
}

std::string findLinker() {
  const llvm::StringRef debian = "/usr/lib/llvm-22/bin";
  for (const char *name : {"ld.lld-22", "ld.lld"})
    for (llvm::ArrayRef<llvm::StringRef> folders :
         {llvm::ArrayRef<llvm::StringRef>(), llvm::ArrayRef<llvm::StringRef>(debian)})
      if (auto found = llvm::sys::findProgramByName(name, folders))
        return *found;
  throw Error("link: ld.lld was not found on PATH or in " + debian.str() +
              "; install it (Debian: apt-get install lld-22)");
}

// The folder among `folders` that holds `file`.
std::string findFolder(llvm::ArrayRef<std::string> folders, llvm::StringRef file, llvm::StringRef package) {
  for (const std::string &folder : folders)
    if (fs::exists(inside(folder, file)))
      return folder;
  throw Error("link: " + file.str() + " was not found in " + llvm::join(folders, ", ") +
              "; install it (Debian: apt-get install " + package.str() + ")");
}

// GCC's folders, the newest version first.
std::vector<std::string> gccFolders() {
  std::vector<std::pair<int, std::string>> versions;
  for (const char *base :
       {"/usr/lib/gcc/x86_64-linux-gnu", "/usr/lib/gcc/x86_64-redhat-linux", "/usr/lib/gcc/x86_64-pc-linux-gnu"}) {
    std::error_code error;
    for (fs::directory_iterator entry(base, error), end; entry != end && !error; entry.increment(error)) {
      int version = 0;
      path::filename(entry->path()).split('.').first.getAsInteger(10, version);
      versions.emplace_back(-version, entry->path());
    }
  }
  llvm::sort(versions);
  std::vector<std::string> folders;
  folders.reserve(versions.size());
  for (auto &[version, folder] : versions)
    folders.push_back(folder);
  if (folders.empty())
    folders.push_back("/usr/lib/gcc");
  return folders;
}

// The archives lie in lib/ beside bin/ in a build, in lib/xfc/ when installed.
std::string findRuntime() {
  std::string self = fs::getMainExecutable(nullptr, nullptr);
  llvm::StringRef bin = path::parent_path(self);
  std::vector<std::string> folders = {inside(path::parent_path(bin), "lib/xfc"), inside(path::parent_path(bin), "lib")};
  for (const std::string &folder : folders)
    if (fs::exists(inside(folder, "libxfc_runtime.a")))
      return folder;
  throw Error("link: libxfc_runtime.a was not found in " + llvm::join(folders, " or ") +
              "; build or install xfc completely");
}

// A file that goes away with its object.
struct TemporaryFile {
  llvm::SmallString<256> name;
  int descriptor = -1;
  explicit TemporaryFile(llvm::StringRef suffix) {
    if (auto error = fs::createTemporaryFile("xfc", suffix, descriptor, name))
      throw Error("link: cannot create a temporary file: " + error.message());
  }
  TemporaryFile(TemporaryFile &&other) noexcept : name(std::move(other.name)), descriptor(other.descriptor) {
    other.name.clear();
  }
  ~TemporaryFile() {
    if (!name.empty())
      std::ignore = fs::remove(name); // nothing is left to say where it fails
  }
};

void writeObjects(const std::vector<ObjectFile> &objects, std::vector<TemporaryFile> &files) {
  for (const ObjectFile &object : objects) {
    TemporaryFile file("o");
    llvm::raw_fd_ostream stream(file.descriptor, /*shouldClose=*/true);
    stream.write(object.data(), object.size());
    stream.close();
    if (stream.has_error()) {
      std::string reason = stream.error().message();
      stream.clear_error();
      throw Error("link: cannot write " + file.name.str().str() + ": " + reason);
    }
    files.push_back(std::move(file));
  }
}

// lld with `arguments`, which make `whole`; then `whole` under its name.
void link(const std::string &linker, const std::vector<std::string> &arguments, const TemporaryFile &whole,
          const std::string &output, bool executable) {
  TemporaryFile messages("log");
  std::vector<llvm::StringRef> references(arguments.begin(), arguments.end());
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), messages.name.str(), messages.name.str()};
  std::string reason;
  int status = llvm::sys::ExecuteAndWait(linker, references, std::nullopt, redirects, 0, 0, &reason);
  if (status != 0) {
    if (auto log = llvm::MemoryBuffer::getFile(messages.name))
      reason += (*log)->getBuffer().take_front(2000).rtrim().str();
    throw Error("link: " + linker + " failed: " + reason);
  }
  writeFile(output, readFile(whole.name.str().str()), executable);
}

} // namespace

void linkObject(const std::vector<ObjectFile> &objects, const std::string &output) {
  if (objects.size() == 1)
    return writeFile(output, {objects[0].data(), objects[0].size()});
  std::string linker = findLinker();
  std::vector<TemporaryFile> files;
  writeObjects(objects, files);
  TemporaryFile whole("o");
  std::vector<std::string> arguments = {linker, "-r", "-m", "elf_x86_64", "-o", whole.name.str().str()};
  for (const TemporaryFile &file : files)
    arguments.push_back(file.name.str().str());
  link(linker, arguments, whole, output, /*executable=*/false);
}

void linkExecutable(const std::vector<std::vector<ObjectFile>> &objects, const std::string &output) {
  std::string linker = findLinker();
  std::string runtime = findRuntime();
  std::string start = findFolder({"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"}, "Scrt1.o", "libc6-dev");
  std::vector<std::string> gccCandidates = gccFolders();
  std::string gcc = findFolder(gccCandidates, "crtbeginS.o", "libgcc-12-dev");
  findFolder(gccCandidates, "libstdc++.a", "libstdc++-12-dev");

  std::vector<TemporaryFile> files;
  for (const std::vector<ObjectFile> &group : objects)
    writeObjects(group, files);
  TemporaryFile whole("exe");
  std::vector<std::string> arguments = {linker,
                                        "-pie",
                                        "-m",
                                        "elf_x86_64",
                                        "--gc-sections",
                                        "--eh-frame-hdr",
                                        "--strip-debug",
                                        "-z",
                                        "relro",
                                        "-z",
                                        "now",
                                        "-dynamic-linker",
                                        "/lib64/ld-linux-x86-64.so.2",
                                        "-o",
                                        whole.name.str().str(),
                                        inside(start, "Scrt1.o"),
                                        inside(start, "crti.o"),
                                        inside(gcc, "crtbeginS.o")};
  for (const TemporaryFile &file : files)
    arguments.push_back(file.name.str().str());
  arguments.insert(arguments.end(), {"-L" + gcc, "-L" + start, "-L/lib/x86_64-linux-gnu", "--start-group"});
  std::error_code error;
  for (const char *archive : {"libxfc_runtime.a", "libsentencepiece.a", "libutf8proc.a", "libz.a", "libzstd.a"})
    if (fs::exists(inside(runtime, archive)))
      arguments.push_back(inside(runtime, archive));
  // libstdc++ and libgcc go in whole: a file that starts on any Debian 12 or later, and sooner than with them shared.
  arguments.insert(arguments.end(),
                   {"--end-group", "-Bstatic", "-lstdc++", "-Bdynamic", "-lm", "-Bstatic", "-lgcc", "-lgcc_eh",
                    "-Bdynamic", "-lc", inside(gcc, "crtendS.o"), inside(start, "crtn.o")});

  link(linker, arguments, whole, output, /*executable=*/true);
}

} // namespace xfc
