#include "launcher/machine/interpreter.hpp"

#include "launcher/request/variables.hpp"

#include <filesystem>
#include <system_error>

#include <unistd.h>

namespace dlaunch::launcher {
namespace {

namespace fs = std::filesystem;

std::string python_of(const fs::path& prefix) {
  const fs::path python = prefix / "bin" / "python3";
  return ::access(python.c_str(), X_OK) == 0 ? python.string() : std::string();
}

/// Whether the folder has Python's mark of a virtual environment, or conda's.
bool is_environment(const fs::path& prefix) {
  std::error_code ignored;
  return fs::exists(prefix / "pyvenv.cfg", ignored) ||
         fs::is_directory(prefix / "conda-meta", ignored);
}

/// PREFIX of PREFIX/bin/dlaunch in an environment, or of PREFIX/lib/python3.x/site-packages/...,
/// where a wheel puts it; in the latter case the Python need not be an environment's.
fs::path prefix_of(const fs::path& launcher) {
  for (fs::path at = launcher.parent_path(); at.has_relative_path(); at = at.parent_path()) {
    if (at.filename() == "bin" && is_environment(at.parent_path())) return at.parent_path();
    if (at.filename() == "site-packages") return at.parent_path().parent_path().parent_path();
  }
  return {};
}

}  // namespace

std::string environment_python(std::span<const std::string> environment,
                               const std::string& launcher) {
  const fs::path prefix = prefix_of(launcher);
  if (!prefix.empty()) {
    if (std::string python = python_of(prefix); !python.empty()) return python;
  }
  const auto active = lookup(environment, "VIRTUAL_ENV");
  return active && !active->empty() ? python_of(*active) : std::string();
}

std::string launcher_path() {
  std::error_code error;
  const auto path = fs::read_symlink("/proc/self/exe", error);
  return error ? std::string() : path.string();
}

}  // namespace dlaunch::launcher
