#include "launcher/process/run_directory.hpp"

#include "launcher/plan/plan.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

namespace fs = std::filesystem;

/// Below /tmp, error files are the user's alone.
constexpr mode_t private_mode = 0700;
constexpr mode_t log_mode = 0755;
/// Attempts, and ranks below them.
constexpr int run_depth_max = 2;
constexpr const char* notify_name = "/notify";

std::string cannot_make(const std::string& path, int error) {
  return "cannot make the directory " + path + ": " + errno_text(error);
}

/// Removes empty folders, the directory itself last; files stay.
void remove_empty(const fs::path& directory, int depth) {
  std::error_code ignored;
  for (fs::directory_iterator at(directory, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    std::error_code other;
    if (depth < run_depth_max && !at->is_symlink(other) && at->is_directory(other)) {
      remove_empty(at->path(), depth + 1);
    }
  }
  ::rmdir(directory.c_str());
}

}  // namespace

RunDirectory::RunDirectory(const JobSpec& spec, std::span<const std::string> environment)
    : prefix_(run_directory_prefix(spec, environment)), kept_(spec.log_dir.has_value()) {
  if (kept_) {
    // Made now, and not when the other nodes wait for this one.
    std::error_code problem;
    fs::create_directories(*spec.log_dir, problem);
    const bool usable = !problem && ::access(spec.log_dir->c_str(), W_OK | X_OK) == 0;
    const int error = problem ? problem.value() : errno;
    if (!usable) throw Error(Errc::refused, "--log-dir: " + cannot_make(*spec.log_dir, error));
    return;
  }
  // Shared memory: if one of the two processes is killed, the other tidies up.
  void* page =
      ::mmap(nullptr, sizeof(Made), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  made_ = std::shared_ptr<Made>(static_cast<Made*>(page),
                                [](Made* made) { ::munmap(made, sizeof *made); });
}

std::optional<std::string> RunDirectory::make(std::string_view job) {
  if (std::exchange(tried_, true)) return problem_;
  path_ = run_directory_name(prefix_, job, random_hex(8));
  const bool made = ::mkdir(path_.c_str(), kept_ ? log_mode : private_mode) == 0;
  // A umask may take the owner's rights, too. That of logs is the user's own wish.
  if (!made || (!kept_ && ::chmod(path_.c_str(), private_mode) != 0)) {
    problem_ = (kept_ ? "--log-dir: " : "") + cannot_make(path_, errno);
    path_.clear();
  } else if (made_ && path_.size() < made_->path.size()) {
    std::copy(path_.begin(), path_.end(), made_->path.begin());
  }
  return problem_;
}

std::string RunDirectory::notify_pipe() const { return path_.empty() ? "" : path_ + notify_name; }

void RunDirectory::abandon() const {
  if (!made_ || made_->path.front() == '\0') return;
  const std::string path = made_->path.data();
  ::unlink((path + notify_name).c_str());
  remove_empty(path, 0);
}

void RunDirectory::finish(bool worth_keeping) const {
  if (path_.empty() || kept_) return;
  if (worth_keeping) return remove_empty(path_, 0);
  std::error_code ignored;  // Files put there meanwhile are left to the system's cleaning.
  fs::remove_all(path_, ignored);
}

}  // namespace dlaunch::launcher
