#pragma once

#include <memory>

#include <dirent.h>

namespace dlaunch {

/// An open directory, which is closed with its owner.
using Directory = std::unique_ptr<DIR, decltype([](DIR* directory) { ::closedir(directory); })>;

}  // namespace dlaunch
