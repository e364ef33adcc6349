#include "launcher/process/own_cgroup.hpp"

#include "runtime/base/os/directory.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

constexpr std::string_view name_begin = "dlaunch-";
/// How many names are tried. Epochs of one launcher have different names; a process of another pid
/// namespace may have the same number, and so the same name.
constexpr int names_max = 64;
/// Programs make cgroups of their own in ours: containers, another launcher.
constexpr int cgroup_depth_max = 16;

std::string whole(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// /proc writes a blank as \040.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const auto digits = text.substr(std::min(i + 1, text.size()), 3);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
    const bool escape = text[i] == '\\' && digits.size() == 3 && read.ec == std::errc{};
    out += escape ? static_cast<char>(value) : text[i];
    if (escape) i += 3;
  }
  return out;
}

unique_fd open_directory(int at, const char* name) {
  return unique_fd(::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

template <class Visit>
void for_each_directory(int fd, Visit visit) {
  const Directory directory(::fdopendir(::fcntl(fd, F_DUPFD_CLOEXEC, 0)));
  if (!directory) return;
  ::rewinddir(directory.get());
  while (const dirent* entry = ::readdir(directory.get())) {
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') visit(entry->d_name);
  }
}

/// Removes the cgroups below; the kernel keeps those in which a process lives.
void remove_below(int fd, int depth) {
  if (depth == 0) return;
  for_each_directory(fd, [&](const char* name) {
    if (const auto below = open_directory(fd, name)) remove_below(below.get(), depth - 1);
    ::unlinkat(fd, name, AT_REMOVEDIR);
  });
}

void remove_stale(int parent) {
  for_each_directory(parent, [&](const char* name) {
    if (!std::string_view(name).starts_with(name_begin)) return;
    const auto directory = open_directory(parent, name);
    struct stat status {};
    if (!directory || ::fstat(directory.get(), &status) != 0 || status.st_uid != ::geteuid()) {
      return;
    }
    // A live launcher holds the lock.
    if (::flock(directory.get(), LOCK_EX | LOCK_NB) == 0) ::unlinkat(parent, name, AT_REMOVEDIR);
  });
}

/// Whether processes may be put into it; false for a removed cgroup, too.
bool takes_processes(int directory) {
  return ::faccessat(directory, "cgroup.procs", W_OK, AT_EACCESS) == 0;
}

}  // namespace

std::optional<std::string> cgroup_directory(std::string_view proc_self_cgroup,
                                            std::string_view mountinfo) {
  std::string group;
  std::istringstream groups{std::string(proc_self_cgroup)};
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::/")) group = line.substr(3);
  }
  // The cgroup lies outside of our namespace.
  if (group.empty() || group.starts_with("/..")) return std::nullopt;
  std::istringstream mounts{std::string(mountinfo)};
  for (std::string line; std::getline(mounts, line);) {
    const auto dash = line.find(" - cgroup2 ");
    if (dash == std::string::npos) continue;
    std::istringstream fields(line);
    std::string number, parent, device, root, point;
    fields >> number >> parent >> device >> root >> point;
    root = unescaped(root);
    if (root == "/") root.clear();
    // A mount shows what lies below its root.
    const bool below =
        group.starts_with(root) && (group.size() == root.size() || group[root.size()] == '/');
    if (!below) continue;
    std::string rest = group.substr(root.size());
    return unescaped(point) + (rest == "/" ? "" : rest);
  }
  return std::nullopt;
}

std::optional<std::string> own_cgroup_directory() {
  return cgroup_directory(whole("/proc/self/cgroup"), whole("/proc/self/mountinfo"));
}

std::unique_ptr<OwnCgroup> OwnCgroup::make(boost::asio::io_context& io, const std::string& parent,
                                           std::function<void()> emptied) {
  const auto above = open_directory(AT_FDCWD, parent.c_str());
  // To move a process between two cgroups takes the right to write to their common ancestor.
  if (!above || !takes_processes(above.get())) return nullptr;
  remove_stale(above.get());
  for (int i = 0; i < names_max; ++i) {
    const std::string name =
        std::string(name_begin) + std::to_string(::getpid()) + "-" + std::to_string(i);
    if (::mkdirat(above.get(), name.c_str(), 0755) != 0) {
      if (errno == EEXIST) continue;
      return nullptr;
    }
    auto directory = open_directory(above.get(), name.c_str());
    if (!directory || ::flock(directory.get(), LOCK_EX | LOCK_NB) != 0) continue;
    // Before we locked it, another launcher may have removed it as stale.
    if (!takes_processes(directory.get())) continue;
    unique_fd events(::openat(directory.get(), "cgroup.events", O_RDONLY | O_CLOEXEC));
    if (!events || ::faccessat(directory.get(), "cgroup.kill", W_OK, AT_EACCESS) != 0) {
      ::unlinkat(above.get(), name.c_str(), AT_REMOVEDIR);
      return nullptr;
    }
    return std::unique_ptr<OwnCgroup>(new OwnCgroup(io, parent + "/" + name, std::move(directory),
                                                    std::move(events), std::move(emptied)));
  }
  return nullptr;
}

OwnCgroup::OwnCgroup(boost::asio::io_context& io, std::string path, unique_fd directory,
                     unique_fd events, std::function<void()> emptied)
    : path_(std::move(path)),
      directory_(std::move(directory)),
      events_(io, events.get()),
      emptied_(std::move(emptied)) {
  (void)events.release();  // It is the stream descriptor's now.
}

OwnCgroup::~OwnCgroup() {
  remove_below(directory_.get(), cgroup_depth_max);
  ::rmdir(path_.c_str());
}

void OwnCgroup::kill() {
  const unique_fd file(::openat(directory_.get(), "cgroup.kill", O_WRONLY | O_CLOEXEC));
  if (!file) return;
  // Processes that this does not reach are found by their parents.
  [[maybe_unused]] const auto written = ::write(file.get(), "1", 1);
}

void OwnCgroup::await_end() {
  using boost::asio::posix::stream_descriptor;
  if (std::exchange(awaited_, true)) return;
  // The kernel tells of each change of the file.
  events_.async_wait(stream_descriptor::wait_error,
                     [this, alive = std::weak_ptr<bool>(alive_)](auto error) {
                       if (alive.expired()) return;
                       awaited_ = false;
                       if (!is_populated()) return emptied_();
                       if (!error) await_end();
                     });
  // It may have changed before that.
  if (!is_populated()) events_.cancel();
}

bool OwnCgroup::is_populated() const {
  return whole(path_ + "/cgroup.events").find("populated 1") != std::string::npos;
}

std::vector<pid_t> OwnCgroup::processes() const {
  std::vector<pid_t> found;
  std::ifstream file(path_ + "/cgroup.procs");
  for (pid_t pid = 0; file >> pid;) found.push_back(pid);
  return found;
}

}  // namespace dlaunch::launcher
