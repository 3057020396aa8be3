// Drops the privileges that a process handling untrusted text does not need.
#pragma once

#include <string>
#include <vector>

namespace xfc {

// To be called by a main() whose process runs a single command. Without it confine() does nothing, because an
// application that calls the commands from its own process goes on to do other work there.
void allowConfinement();

// From here on this thread, and every thread it starts, can start no program or process, open no socket, trace no
// process, and neither write, create nor remove files outside the folders of `written` (for devices and pipes: can
// write only to those themselves). "-" and "" stand for no file. Reading is not restricted. Landlock restricts files,
// seccomp restricts system calls; a kernel that lacks one of them still applies the other. Call this before starting
// threads.
void confine(const std::vector<std::string> &written);
// The same for a process that computes on this device ("cpu" or "cuda"). With a GPU, whose driver starts programs and
// creates files of its own, it does nothing.
void confineOn(const std::string &device, const std::vector<std::string> &written);
// The same for a server, which writes no files, and may accept connections to the sockets that it has opened before.
void confineServing(const std::string &device);

} // namespace xfc
