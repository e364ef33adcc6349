#include "launcher/watch/status_socket.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text_hash.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <utility>

#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

namespace asio = boost::asio;
using Local = asio::local::stream_protocol;

constexpr mode_t folder_mode = 0700;
constexpr std::string_view suffix = ".sock";
/// A node's longer name goes by its beginning and a hash, which together are not longer.
constexpr std::size_t node_name_max = 81;
constexpr std::size_t hash_text_bytes = 17;
/// Places that are looked at when an agent begins, or was killed.
constexpr std::size_t removed_max = 256;
constexpr std::size_t answer_bytes_max = 256u << 20;
/// For a question, and for the answer to be taken.
constexpr auto patience = std::chrono::seconds(5);

using Directory = std::unique_ptr<DIR, decltype([](DIR* d) { ::closedir(d); })>;

Error no_folder(const std::string& path, const std::string& why) {
  return Error(Errc::refused, path + ": " + why);
}

/// A folder of this user that nobody else can enter.
void check_folder(const std::string& path, bool make) {
  if (make && ::mkdir(path.c_str(), folder_mode) != 0 && errno != EEXIST) {
    throw no_folder(path, errno_text(errno));
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

/// A socket's address has 108 bytes, a job's name may have more: the folder goes by descriptor.
struct ShortAddress {
  ShortAddress(const std::string& folder, const std::string& file)
      : directory(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    if (!directory) throw no_folder(folder, errno_text(errno));
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory.get(),
                  file.c_str());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  unique_fd directory;
  sockaddr_un address{};
};

/// One who asks.
struct Asker : std::enable_shared_from_this<Asker> {
  explicit Asker(Local::socket connected)
      : socket(std::move(connected)), timer(socket.get_executor()) {}

  void begin(const StatusSocket::Answer& answer) {
    timer.expires_after(patience);
    timer.async_wait([self = shared_from_this()](auto error) {
      if (!error) self->cut();
    });
    asio::async_read(socket, asio::buffer(&question, sizeof question),
                     [self = shared_from_this(), answer](auto error, std::size_t) {
                       if (error) return static_cast<void>(self->timer.cancel());
                       const auto detail = self->question == AskSnapshot::Detail::flight
                                               ? AskSnapshot::Detail::flight
                                               : AskSnapshot::Detail::status;
                       answer(detail, [self](Bytes bytes) { self->say(std::move(bytes)); });
                     });
  }
  void say(Bytes answer) {
    said = std::move(answer);
    asio::async_write(socket, asio::buffer(said), [self = shared_from_this()](auto, std::size_t) {
      self->timer.cancel();
      self->cut();
    });
  }
  void cut() {
    boost::system::error_code ignored;
    socket.close(ignored);
  }

  Local::socket socket;
  asio::steady_timer timer;
  AskSnapshot::Detail question{};
  Bytes said;
};

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
    if (error == ECONNREFUSED) remove(place);
    throw Error(Errc::unreachable, "node " + place.node + " of job " + place.job +
                                       " does not answer: " + errno_text(error));
  }
  return fd;
}

unique_fd StatusFolder::listen(const Place& place) const {
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

unique_fd StatusFolder::listen_once(const Place& place) const {
  const std::string folder = path_ + "/" + place.job;
  const std::string file = file_name(place.node);
  check_folder(folder, true);
  // Under another name until somebody listens: before, it looks like one that was left behind.
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
  return fd;
}

void StatusFolder::remove(const Place& place) const noexcept {
  const std::string folder = path_ + "/" + place.job;
  ::unlink((folder + "/" + file_name(place.node)).c_str());
  ::rmdir(folder.c_str());  // Succeeds if it was the last one.
}

void StatusFolder::remove_dead() const noexcept try {
  auto all = places();
  if (all.size() > removed_max) all.resize(removed_max);
  for (const auto& place : all) {
    const ShortAddress address(path_ + "/" + place.job, file_name(place.node));
    const unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const bool answers = ::connect(fd.get(), address.get(), sizeof address.address) == 0;
    if (!answers && errno == ECONNREFUSED) remove(place);
  }
} catch (const std::exception&) {
  // Out of memory or descriptors, or somebody else was faster: the next one does it.
}

void remove_dead_places() noexcept try { StatusFolder(false).remove_dead(); } catch (const Error&) {
  // There is none, so nothing was left.
}

StatusSocket::StatusSocket(asio::io_context& io, const std::string& job, const std::string& node,
                           Answer answer)
    : folder_(true), place_{job, node}, answer_(std::move(answer)), acceptor_(io) {
  folder_.remove_dead();
  acceptor_.assign(Local(), folder_.listen(place_).release());
  accept();
}

StatusSocket::~StatusSocket() { folder_.remove(place_); }

void StatusSocket::accept() {
  acceptor_.async_accept([this](auto error, Local::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) std::make_shared<Asker>(std::move(socket))->begin(answer_);
    accept();
  });
}

JobSnapshot ask_agent(const StatusFolder& folder, const StatusFolder::Place& place,
                      AskSnapshot::Detail detail) {
  const unique_fd fd = folder.connect(place);
  if (::send(fd.get(), &detail, sizeof detail, MSG_NOSIGNAL) != sizeof detail) {
    throw Error(Errc::unreachable, "cannot ask node " + place.node + ": " + errno_text(errno));
  }
  const std::string name = "node " + place.node + " of job " + place.job;
  const auto deadline = Clock::now() + patience;
  Bytes answer;
  std::array<std::byte, 65536> block;
  while (answer.size() < answer_bytes_max) {
    pollfd wait{fd.get(), POLLIN, 0};
    if (::poll(&wait, 1, poll_timeout_ms(deadline)) == 0) {
      throw Error(Errc::timeout, name + " does not answer within " + duration_text(patience) +
                                     ": its agent is stopped, or busy");
    }
    const auto size = ::recv(fd.get(), block.data(), block.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    answer.insert(answer.end(), block.data(), block.data() + size);
  }
  // An agent that ends meanwhile says nothing.
  if (answer.empty()) throw Error(Errc::unreachable, name + " does not answer");
  auto job = decode_snapshot(answer);
  if (!job) {
    throw Error(Errc::version, "what " + name +
                                   " says cannot be read: it has ended meanwhile, or is of another "
                                   "version of dlaunch");
  }
  return std::move(*job);
}

}  // namespace dlaunch::launcher
