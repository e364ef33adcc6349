#pragma once

/// The whole C++ interface of libdlaunch.
#include <dlaunch/communicator.hpp>
#include <dlaunch/error.hpp>
#include <dlaunch/gradient_reducer.hpp>
#include <dlaunch/join.hpp>
#include <dlaunch/message.hpp>
#include <dlaunch/notify.hpp>
#include <dlaunch/port.hpp>
#include <dlaunch/process_info.hpp>
#include <dlaunch/reduction.hpp>
#include <dlaunch/spawn.hpp>
#include <dlaunch/store.hpp>
#include <dlaunch/tensor.hpp>
#include <dlaunch/tree.hpp>
#include <dlaunch/work.hpp>
#include <dlaunch/world.hpp>

namespace dlaunch {

/// "0.1.0": the version of the library that is loaded, not of the header. A static string.
DLAUNCH_API const char* version() noexcept;

}  // namespace dlaunch
