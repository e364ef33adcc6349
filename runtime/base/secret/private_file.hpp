#pragma once

#include "runtime/base/os/unique_fd.hpp"

#include <dlaunch/error.hpp>

#include <string>
#include <string_view>

namespace dlaunch {

/// "cannot read the secret from FILE: why", with Errc::misuse; `what` is "the secret".
Error unreadable_secret(std::string_view what, const std::string& where, const std::string& why);

/// Opens a regular file that belongs to this user or root, and to which nobody else has access.
/// Throws the error above.
unique_fd open_private_file(std::string_view what, const std::string& path);

}  // namespace dlaunch
