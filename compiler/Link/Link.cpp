// Links objects and the runtime into an executable or a library. lld is called directly with the C library's start
// files, so that the user's machine needs no compiler driver, only lld, libc6-dev, and GCC's start files and static
// libstdc++. Packages of xfc bring all of these: lld inside xfc, and the files beside those of the runtime.
#include "Link.h"
#include "support/FileWriter.h"
#include "support/Files.h"
#include "support/MappedFile.h"
#include "support/TemporaryFolder.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ObjCopy/ConfigManager.h"
#include "llvm/ObjCopy/ObjCopy.h"
#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Object/Binary.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/raw_ostream.h"

namespace xfc {

ContainedLinker containedLinker = nullptr;

namespace {

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

std::string inside(llvm::StringRef folder, llvm::StringRef name) {
  llvm::SmallString<256> result(folder);
  path::append(result, name);
  return result.str().str();
}

// Where systems have the C library.
std::vector<std::string> libraryFolders() {
  const char *own = executableFormat.libraries;
  return {inside("/usr/lib", own), inside("/lib", own), "/usr/lib64", "/lib64", "/usr/lib"};
}

// The first word of lld's command line: the path of the lld that is installed, or just its name if this program
// contains lld.
std::string findLinker() {
  if (containedLinker)
    return "ld.lld";
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

// GCC's folders, the newest version first, after the folder of the runtime, where packages of xfc have its files.
std::vector<std::string> gccFolders(const std::string &runtime) {
  std::vector<std::pair<int, std::string>> versions;
  const std::string processor = llvm::StringRef(executableFormat.libraries).split('-').first.str();
  for (const char *system : {"-linux-gnu", "-redhat-linux", "-pc-linux-gnu"}) {
    std::error_code error;
    for (fs::directory_iterator entry(inside("/usr/lib/gcc", processor + system), error), end; entry != end && !error;
         entry.increment(error)) {
      int version = 0;
      path::filename(entry->path()).split('.').first.getAsInteger(10, version);
      versions.emplace_back(-version, entry->path());
    }
  }
  llvm::sort(versions);
  std::vector<std::string> folders = {runtime};
  for (auto &[version, folder] : versions)
    folders.push_back(folder);
  if (versions.empty())
    folders.emplace_back("/usr/lib/gcc");
  return folders;
}

// The archives are in lib/ beside bin/ in a build tree, and in lib/xfc/ when installed.
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

// Adds the objects to the folder, and their files to `files`. Not synced, as nothing lasts here.
void writeObjects(const std::vector<ObjectFile> &objects, const TemporaryFolder &folder,
                  std::vector<std::string> &files) {
  for (const ObjectFile &object : objects) {
    files.push_back(folder.file(std::to_string(files.size()) + ".o"));
    std::error_code error;
    llvm::raw_fd_ostream stream(files.back(), error);
    if (!error) {
      stream.write(object.data(), object.size());
      stream.close();
      error = stream.error();
      stream.clear_error();
    }
    if (error)
      throw Error("link: cannot write " + files.back() + ": " + error.message());
  }
}

// Runs lld, which is the first of `arguments`. Throws Error with lld's messages if it fails.
void run(const std::vector<std::string> &arguments, const TemporaryFolder &folder) {
  const std::string &linker = arguments.front();
  const auto fail = [&linker](const std::string &reason, llvm::StringRef messages) {
    throw Error("link: " + linker + " failed: " + reason + messages.take_front(2000).rtrim().str());
  };
  if (containedLinker) {
    std::vector<const char *> words;
    words.reserve(arguments.size());
    for (const std::string &argument : arguments)
      words.push_back(argument.c_str());
    std::string messages;
    llvm::raw_string_ostream stream(messages);
    if (!containedLinker(words, stream))
      fail("", messages);
    return;
  }
  const std::string messages = folder.file("messages");
  std::vector<llvm::StringRef> references(arguments.begin(), arguments.end());
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), messages, messages};
  std::string reason;
  int status = llvm::sys::ExecuteAndWait(linker, references, std::nullopt, redirects, 0, 0, &reason);
  if (status == 0)
    return;
  auto log = llvm::MemoryBuffer::getFile(messages);
  fail(reason, log ? (*log)->getBuffer() : "");
}

void append(std::vector<std::string> &arguments, const std::vector<std::string> &more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
}

// The files that every link needs besides the objects.
struct Parts {
  std::string linker = findLinker();
  std::string runtime = findRuntime();
  std::string start;
  std::string gcc;
  Parts() {
    std::vector<std::string> candidates = {runtime};
    append(candidates, libraryFolders());
    start = findFolder(candidates, "Scrt1.o", "libc6-dev");
    candidates = gccFolders(runtime);
    gcc = findFolder(candidates, "crtbeginS.o", "libgcc-12-dev");
    findFolder(candidates, "libstdc++.a", "libstdc++-12-dev");
  }

  // Arguments for an output that the dynamic linker loads: its memory layout, and the start files that come first.
  std::vector<std::string> beginning(const std::string &output) const {
    return {"-m",
            executableFormat.emulation,
            "--gc-sections",
            "--eh-frame-hdr",
            "--strip-debug",
            "-z",
            "relro",
            "-z",
            "now",
            "-o",
            output,
            inside(start, "crti.o"),
            inside(gcc, "crtbeginS.o")};
  }
  // The runtime's archives, and the search paths for other libraries.
  std::vector<std::string> archives() const {
    std::vector<std::string> result = {"-L" + gcc, "-L" + start, inside("-L/lib", executableFormat.libraries),
                                       "--start-group"};
    for (const char *archive : {"libxfc_runtime.a", "libsentencepiece.a", "libutf8proc.a", "libz.a", "libzstd.a",
                                "libevent_extra.a", "libevent_core.a"})
      if (fs::exists(inside(runtime, archive)))
        result.push_back(inside(runtime, archive));
    result.emplace_back("--end-group");
    return result;
  }
  // libstdc++ and libgcc are linked statically, so that the output runs on any Debian 12 or later and starts faster
  // than with shared ones.
  std::vector<std::string> ending() const {
    return {"-Bstatic",
            "-lstdc++",
            "-Bdynamic",
            "-lm",
            "-Bstatic",
            "-lgcc",
            "-lgcc_eh",
            "-Bdynamic",
            "-lc",
            inside(gcc, "crtendS.o"),
            inside(start, "crtn.o")};
  }
};

std::vector<std::string> writeObjects(const std::vector<std::vector<ObjectFile>> &objects,
                                      const TemporaryFolder &folder) {
  std::vector<std::string> files;
  for (const std::vector<ObjectFile> &group : objects)
    writeObjects(group, folder, files);
  return files;
}

// The interface that a library exports: the functions that its C header declares, and their version.
struct Interface {
  std::string header, version;
  std::vector<std::string> functions;

  explicit Interface(const std::string &file) : header(readFile(file)) {
    llvm::SmallVector<llvm::StringRef> match;
    if (llvm::Regex("#define XFC_API_VERSION ([0-9]+)").match(header, &match))
      version = match[1].str();
    const llvm::Regex declaration("XFC_API [a-z][a-z_0-9 ]*[ *](xfc_[a-z_]+)\\(");
    for (llvm::StringRef rest = header; declaration.match(rest, &match);
         rest = rest.substr(match[0].end() - rest.begin()))
      functions.push_back(match[1].str());
    if (version.empty() || functions.empty())
      throw Error("link: " + file + " is not xfc's library header; build or install xfc completely");
  }
};

[[noreturn]] void failLibrary(llvm::Error error) {
  throw Error("link: cannot make a static library: " + llvm::toString(std::move(error)));
}

// The object with all symbols made local except these functions, so that they do not clash with a program's symbols of
// the same names.
std::string withSymbols(llvm::MemoryBufferRef object, const std::vector<std::string> &functions) {
  auto binary = llvm::object::createBinary(object);
  if (!binary)
    failLibrary(binary.takeError());
  llvm::objcopy::ConfigManager config;
  config.Common.StripUnneeded = true;
  for (const std::string &function : functions)
    if (llvm::Error error = config.Common.SymbolsToKeepGlobal.addMatcher(llvm::objcopy::NameOrPattern::create(
            function, llvm::objcopy::MatchStyle::Literal, [](llvm::Error wrong) { return wrong; })))
      failLibrary(std::move(error));
  llvm::SmallString<0> result;
  llvm::raw_svector_ostream stream(result);
  if (llvm::Error error = llvm::objcopy::executeObjcopyOnBinary(config, **binary, stream))
    failLibrary(std::move(error));
  return result.str().str();
}

// A reproducible archive of one object.
std::string archiveOf(const std::string &object, const std::string &name) {
  llvm::NewArchiveMember member(llvm::MemoryBufferRef(object, name));
  auto archive = llvm::writeArchiveToBuffer(member, llvm::SymtabWritingMode::NormalSymtab, llvm::object::Archive::K_GNU,
                                            /*Deterministic=*/true, /*Thin=*/false);
  if (!archive)
    failLibrary(archive.takeError());
  return (*archive)->getBuffer().str();
}

// The newest version of glibc's interface that a file names: {2, 36} for GLIBC_2.36. {0, 0}: none, or no file.
std::pair<unsigned, unsigned> newestGlibc(const std::string &file) {
  std::pair<unsigned, unsigned> newest;
  if (!fs::is_regular_file(file))
    return newest;
  const llvm::StringRef prefix = "GLIBC_";
  const MappedFile mapped(file);
  llvm::StringRef rest = mapped.contents();
  for (size_t at = rest.find(prefix); at != llvm::StringRef::npos; at = rest.find(prefix)) {
    rest = rest.substr(at + prefix.size());
    std::pair<unsigned, unsigned> version;
    if (llvm::StringRef digits = rest.take_front(16); !digits.consumeInteger(10, version.first) &&
                                                      digits.consume_front(".") &&
                                                      !digits.consumeInteger(10, version.second))
      newest = std::max(newest, version);
  }
  return newest;
}

} // namespace

std::string whyNotHere(const std::string &file) {
  // Any other xfc links with this machine's own C library.
  if (!containedLinker)
    return "";
  const auto needed = newestGlibc(file);
  std::pair<unsigned, unsigned> found;
  for (const std::string &folder : libraryFolders())
    found = std::max(found, newestGlibc(inside(folder, "libc.so.6")));
  if (found >= needed)
    return "";
  const auto shown = [](std::pair<unsigned, unsigned> version) {
    return "glibc " + std::to_string(version.first) + "." + std::to_string(version.second);
  };
  return file + " needs " + shown(needed) + ", and this machine has " + (found.first ? shown(found) : "none") +
         ": use it on Debian 12, Ubuntu 24.04, Fedora 37 or later";
}

void linkObject(const std::vector<ObjectFile> &objects, const std::string &output) {
  if (objects.size() == 1)
    return writeFile(output, {objects[0].data(), objects[0].size()});
  const TemporaryFolder folder("link");
  const std::string whole = folder.file("whole");
  std::vector<std::string> arguments = {findLinker(), "-r", "-m", executableFormat.emulation, "-o", whole};
  append(arguments, writeObjects({objects}, folder));
  run(arguments, folder);
  writeFile(output, MappedFile(whole).contents());
}

void linkExecutable(const std::vector<std::vector<ObjectFile>> &objects, const std::string &output) {
  const Parts parts;
  const TemporaryFolder folder("link");
  const std::string whole = folder.file("whole");
  std::vector<std::string> arguments = {parts.linker, "-pie", "-dynamic-linker", executableFormat.loader,
                                        inside(parts.start, "Scrt1.o")};
  append(arguments, parts.beginning(whole));
  append(arguments, writeObjects(objects, folder));
  append(arguments, parts.archives());
  append(arguments, parts.ending());
  run(arguments, folder);
  writeFile(output, MappedFile(whole).contents(), /*executable=*/true);
}

std::vector<std::string> linkLibrary(const std::vector<std::vector<ObjectFile>> &objects, const std::string &output) {
  const Parts parts;
  const TemporaryFolder temporary("link");
  const std::vector<std::string> files = writeObjects(objects, temporary);
  const std::string folder = path::parent_path(output).str(), name = "lib" + path::filename(output).str();
  const std::vector<std::string> written = {inside(folder, name + ".so"), inside(folder, name + ".a"),
                                            inside(folder, "xfc.h")};
  const Interface interface(inside(parts.runtime, "xfc.h"));
  if (path::filename(output) == ".") // the path ends with a slash
    throw Error(output + ": a library needs a name, for example " + output + "model to get " + output + "libmodel.so");
  const std::vector<std::string> calls = {"--whole-archive", inside(parts.runtime, "libxfc_capi.a"),
                                          "--no-whole-archive"};

  // The functions have a symbol version, so that the dynamic linker rejects a program that was linked against another
  // version. The tables of generated code are for programs that use the model as a draft (DeviceFactory.h).
  const std::string shared = temporary.file("shared"), script = temporary.file("script"),
                    whole = temporary.file("whole");
  writeFile(script, "XFC_" + interface.version + " { global: " + llvm::join(interface.functions, "; ") +
                        "; xfc_images; xfc_device_images; local: *; };\n");
  std::vector<std::string> arguments = {parts.linker, "-shared",          "-z",  "defs", "-soname",
                                        name + ".so", "--version-script", script};
  append(arguments, parts.beginning(shared));
  append(arguments, calls);
  append(arguments, files);
  append(arguments, parts.archives());
  append(arguments, parts.ending());
  run(arguments, temporary);

  // The static library is a single object. Its COMDAT groups become plain sections, so that a link cannot replace their
  // definitions by those of other objects. Sections stay separate, so that a program's link can drop the unused ones.
  arguments = {parts.linker,    "-r", "-m", executableFormat.emulation, "--force-group-allocation",
               "--strip-debug", "-o", whole};
  append(arguments, calls);
  append(arguments, files);
  append(arguments, parts.archives());
  append(arguments, {"-u", "__cxa_pure_virtual", "-Bstatic", "-lstdc++", "-lgcc", "-lgcc_eh"});
  run(arguments, temporary);

  FileWriter sharedLibrary(written[0], /*executable=*/true), staticLibrary(written[1]), header(written[2]);
  sharedLibrary.write(MappedFile(shared).contents());
  const std::string object(MappedFile(whole).contents());
  staticLibrary.write(archiveOf(withSymbols({object, name}, interface.functions), name + ".o"));
  header.write(interface.header);
  FileWriter *const together[] = {&sharedLibrary, &staticLibrary, &header};
  FileWriter::commitTogether(together);
  return written;
}

} // namespace xfc
