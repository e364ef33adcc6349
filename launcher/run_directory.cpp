#include "launcher/run_directory.hpp"

#include "launcher/plan.hpp"
#include "runtime/base/random.hpp"
#include "runtime/base/socket.hpp"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

/// Below /tmp, error files are the user's alone.
constexpr mode_t private_mode = 0700;
constexpr mode_t log_mode = 0755;

}  // namespace

RunDirectory::RunDirectory(const Options& options, std::span<const std::string> environment,
                           std::string_view job)
    : path_(run_directory_name(options, environment, job, random_hex(8))),
      asked_for_(options.log_dir.has_value()) {
  std::error_code problem;  // The attempt to make the last part tells.
  if (asked_for_) std::filesystem::create_directories(*options.log_dir, problem);
  if (::mkdir(path_.c_str(), asked_for_ ? log_mode : private_mode) == 0) return;
  if (asked_for_) {
    throw Error(Errc::refused,
                "--log-dir: cannot make the directory " + path_ + ": " + errno_text(errno));
  }
  path_.clear();
}

void RunDirectory::abandon() const {
  if (!path_.empty() && !asked_for_) ::rmdir(path_.c_str());
}

void RunDirectory::finish(bool worth_keeping) const {
  if (path_.empty() || asked_for_ || worth_keeping) return;
  std::error_code ignored;  // What a worker put there meanwhile is left to the system's cleaning.
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace dlaunch::launcher
