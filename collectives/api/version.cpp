#include <dlaunch/dlaunch.hpp>

namespace dlaunch {

const char* version() noexcept { return DLAUNCH_VERSION; }

}  // namespace dlaunch
