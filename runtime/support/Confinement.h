// A process that takes up text from anywhere gives up what that needs not.
#pragma once

#include <string>
#include <vector>

namespace xfc {

// From here on this thread, and every thread and program it starts, can start no program and no process, open no
// socket, trace nobody, and neither write nor make nor remove files outside of the folders of `written` (devices and
// pipes: but those themselves). "-" and "" stand for no file. Reading stays as it was. Files are confined by Landlock,
// calls by seccomp; a kernel without one of them confines by the other. Call it before there are threads.
void confine(const std::vector<std::string> &written);

} // namespace xfc
