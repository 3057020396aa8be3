// A process that takes up text from anywhere gives up what that needs not.
#pragma once

#include <string>
#include <vector>

namespace xfc {

// To be said by a main() whose whole process does the work of one command. Without it confine() does nothing: who calls
// the commands from a process of his own goes on to do other things there.
void allowConfinement();

// From here on this thread, and every thread and program it starts, can start no program and no process, open no
// socket, trace nobody, and neither write nor make nor remove files outside of the folders of `written` (devices and
// pipes: but those themselves). "-" and "" stand for no file. Reading stays as it was. Files are confined by Landlock,
// calls by seccomp; a kernel without one of them confines by the other. Call it before there are threads.
void confine(const std::vector<std::string> &written);

} // namespace xfc
