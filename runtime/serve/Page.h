// The page with which one tries a server in a browser.
#pragma once

namespace xfc {

extern const char *const tryingPage; // HTML, complete in itself

} // namespace xfc
