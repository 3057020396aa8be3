// Shows what each pass does to a program as one HTML page.
#pragma once

#include "Pipeline/PassHistory.h"
#include <string>

namespace xfc {

// For each pass, the functions that it changed, before and after side by side, with the changed lines marked and long
// runs of equal ones left out; then the whole program after each stage. The page can be searched, and loads nothing.
std::string irPage(const std::string &title, const PassHistory &history);

} // namespace xfc
