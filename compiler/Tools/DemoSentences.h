// English sentences and their French translations, from a small grammar: text for a demonstration without a network.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace xfc {

// This many different pairs, the same for each call.
std::vector<std::pair<std::string, std::string>> demoSentences(size_t count);

} // namespace xfc
