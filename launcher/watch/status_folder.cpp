#include "launcher/watch/status_folder.hpp"

#include "runtime/base/os/directory.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/text_hash.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

constexpr mode_t folder_mode = 0700;
constexpr std::string_view suffix = ".sock";
/// The longest name of a node in a file's name; a longer one becomes its beginning and a hash.
constexpr std::size_t node_name_max = 81;
constexpr std::size_t hash_text_bytes = 17;
/// The most places that are examined when an agent begins, or was killed.
constexpr std::size_t removed_max = 256;

Error no_folder(const std::string& path, const std::string& why) {
  return Error(Errc::refused, path + ": " + why);
}

/// A folder of this user that nobody else can enter.
void check_folder(const std::string& path, bool make) {
  if (make) {
    // A umask may take the owner's rights, too, and nobody could then clear the folder away.
    const bool made = ::mkdir(path.c_str(), folder_mode) == 0;
    if (made ? ::chmod(path.c_str(), folder_mode) != 0 : errno != EEXIST) {
      throw no_folder(path, errno_text(errno));
    }
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) throw no_folder(path, errno_text(errno));
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) {
    throw no_folder(path, "it is not a folder of this user");
  }
  if ((status.st_mode & 077) != 0) throw no_folder(path, "others may enter it (chmod 700)");
}

/// A text that can be a file's name.
std::string file_name(const std::string& node) {
  std::string name = node;
  std::replace(name.begin(), name.end(), '/', '_');
  if (name.size() > node_name_max) {
    char hash[20];
    std::snprintf(hash, sizeof hash, "-%016llx", static_cast<unsigned long long>(text_hash(node)));
    name = name.substr(0, node_name_max - hash_text_bytes) + hash;
  }
  return name + std::string(suffix);
}

std::vector<std::string> entries(const std::string& path) {
  std::vector<std::string> names;
  const Directory directory(::opendir(path.c_str()));
  while (const dirent* entry = directory ? ::readdir(directory.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (!name.starts_with('.')) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// A socket's address has 108 bytes and a job's name may have more; a folder of a longer path is
/// named by a descriptor.
struct ShortAddress {
  ShortAddress(const std::string& folder, const std::string& file)
      : directory(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    if (!directory) throw no_folder(folder, errno_text(errno));
    address.sun_family = AF_UNIX;
    std::string path = folder + "/" + file;
    if (path.size() >= sizeof address.sun_path) {
      const std::string descriptor = "/proc/self/fd/" + std::to_string(directory.get());
      if (::access(descriptor.c_str(), F_OK) != 0) {
        throw no_folder(path,
                        "this path is too long for a socket's address, and no /proc is "
                        "mounted, by which it could be shorter");
      }
      path = descriptor + "/" + file;
    }
    path.copy(address.sun_path, sizeof address.sun_path - 1);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  unique_fd directory;
  sockaddr_un address{};
};

/// Held while places are taken and removed, so that nobody removes or replaces a place that has
/// just become another agent's.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path)
      : folder_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    // A holder needs less than a millisecond; one that is stopped meanwhile is not waited for.
    constexpr int tries_max = 200;
    for (int tries = 0; folder_ && tries < tries_max; ++tries) {
      if (::flock(folder_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
      ::poll(nullptr, 0, 1);
    }
  }

 private:
  unique_fd folder_;
};

/// Whether an agent has been killed and has left this socket behind.
bool is_left_behind(const std::string& folder, const std::string& file) {
  const ShortAddress address(folder, file);
  const unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return fd && ::connect(fd.get(), address.get(), sizeof address.address) != 0 &&
         errno == ECONNREFUSED;
}

std::optional<struct stat> status_of(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? std::optional(status) : std::nullopt;
}

}  // namespace

StatusFolder::StatusFolder(bool make) {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string why;
  if (runtime != nullptr && *runtime == '/') {
    path_ = std::string(runtime) + "/dlaunch";
    try {
      check_folder(path_, make);
      return;
    } catch (const Error& error) {
      why = std::string(error.what()) + "; ";
    }
  }
  path_ = "/tmp/dlaunch-" + std::to_string(::geteuid());
  try {
    check_folder(path_, make);
  } catch (const Error& error) {
    throw Error(Errc::refused, why + error.what());
  }
}

std::vector<StatusFolder::Place> StatusFolder::places() const {
  std::vector<Place> found;
  for (const auto& job : entries(path_)) {
    for (const auto& file : entries(path_ + "/" + job)) {
      if (!file.ends_with(suffix)) continue;
      found.push_back({job, file.substr(0, file.size() - suffix.size())});
    }
  }
  return found;
}

unique_fd StatusFolder::connect(const Place& place) const {
  const ShortAddress address(path_ + "/" + place.job, file_name(place.node));
  unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || ::connect(fd.get(), address.get(), sizeof address.address) != 0) {
    const int error = errno;
    // Its agent was killed.
    if (error == ECONNREFUSED) remove_if_dead(place);
    throw Error(Errc::unreachable, "node " + place.node + " of job " + place.job +
                                       " does not answer: " + errno_text(error));
  }
  return fd;
}

StatusFolder::Taken StatusFolder::listen(const Place& place) const {
  // An agent that leaves the job's folder empty removes it, at any time.
  constexpr int attempts_max = 3;
  for (int attempt = 1;; ++attempt) {
    try {
      return listen_once(place);
    } catch (const Error&) {
      if (attempt == attempts_max) throw;
    }
  }
}

StatusFolder::Taken StatusFolder::listen_once(const Place& place) const {
  const FolderLock lock(path_);
  const std::string folder = path_ + "/" + place.job;
  check_folder(folder, true);
  Taken taken{.place = place, .listener = {}, .inode = 0};
  // Two jobs of one node may have the same name; each can be found.
  std::string file = file_name(place.node);
  if (status_of(folder + "/" + file) && !is_left_behind(folder, file)) {
    taken.place.node += "#" + random_hex(6);
    file = file_name(taken.place.node);
  }
  // The socket has another name until it listens: before that, it looks like one left behind.
  // Agents in containers may share the folder, and their process number.
  const std::string unborn = "." + random_hex(8);
  const ShortAddress address(folder, unborn);
  unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::bind(fd.get(), address.get(), sizeof address.address) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0 ||
      ::rename((folder + "/" + unborn).c_str(), (folder + "/" + file).c_str()) != 0) {
    const int error = errno;
    ::unlink((folder + "/" + unborn).c_str());
    throw no_folder(folder + "/" + file, errno_text(error));
  }
  if (const auto status = status_of(folder + "/" + file)) taken.inode = status->st_ino;
  taken.listener = std::move(fd);
  return taken;
}

void StatusFolder::give_back(const Taken& taken) const noexcept try {
  const FolderLock lock(path_);
  const auto status = status_of(path_ + "/" + taken.place.job + "/" + file_name(taken.place.node));
  if (status && status->st_ino == taken.inode) remove(taken.place);
} catch (const std::exception&) {
  // No memory is left; the next agent removes it.
}

void StatusFolder::remove(const Place& place) const {
  const std::string folder = path_ + "/" + place.job;
  ::unlink((folder + "/" + file_name(place.node)).c_str());
  ::rmdir(folder.c_str());  // Succeeds if it was the last one.
}

void StatusFolder::remove_if_dead(const Place& place) const {
  const FolderLock lock(path_);
  if (is_left_behind(path_ + "/" + place.job, file_name(place.node))) remove(place);
}

void StatusFolder::remove_dead() const noexcept try {
  auto all = places();
  if (all.size() > removed_max) all.resize(removed_max);
  for (const auto& place : all) remove_if_dead(place);
} catch (const std::exception&) {
  // Memory or descriptors ran out, or another agent was faster: the next agent does it.
}

void remove_dead_places() noexcept try { StatusFolder(false).remove_dead(); } catch (const Error&) {
  // There is no such folder, so nothing was left behind.
}

}  // namespace dlaunch::launcher
