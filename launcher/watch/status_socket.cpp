#include "launcher/watch/status_socket.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/directory.hpp"
#include "runtime/base/os/process_stat.hpp"
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
/// The longest name of a node in a file's name; a longer one becomes its beginning and a hash.
constexpr std::size_t node_name_max = 81;
constexpr std::size_t hash_text_bytes = 17;
/// The most places that are examined when an agent begins, or was killed.
constexpr std::size_t removed_max = 256;
constexpr std::size_t answer_bytes_max = 256u << 20;
/// The time for a client to ask, and to take the answer.
constexpr auto patience = std::chrono::seconds(5);
/// The most clients that may wait for an agent's end.
constexpr std::size_t waiting_max = 64;

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

/// A socket's address has 108 bytes and a job's name may have more, so the folder is named by a
/// descriptor.
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
  // Memory or descriptors ran out, or another agent was faster: the next agent does it.
}

void remove_dead_places() noexcept try { StatusFolder(false).remove_dead(); } catch (const Error&) {
  // There is no such folder, so nothing was left behind.
}

/// A client that asks.
struct StatusSocket::Asker : std::enable_shared_from_this<Asker> {
  explicit Asker(Local::socket connected)
      : socket(std::move(connected)), timer(socket.get_executor()) {}

  void begin(std::function<void()> asked) {
    timer.expires_after(patience);
    timer.async_wait([self = shared_from_this()](auto error) {
      if (!error) self->cut();
    });
    asio::async_read(
        socket, asio::buffer(&question, sizeof question),
        [self = shared_from_this(), asked = std::move(asked)](auto error, std::size_t) {
          if (error) return static_cast<void>(self->timer.cancel());
          asked();
        });
  }
  void say(Bytes answer) {
    said = std::move(answer);
    asio::async_write(socket, asio::buffer(said), [self = shared_from_this()](auto, std::size_t) {
      self->timer.cancel();
      self->cut();
    });
  }
  /// Keeps the connection for an answer that may come at any time. The client sends no more; its
  /// end is noticed.
  void stay() {
    timer.cancel();
    asio::async_read(socket, asio::buffer(&question, sizeof question),
                     [self = shared_from_this()](auto, std::size_t) { self->cut(); });
  }
  void cut() {
    boost::system::error_code ignored;
    socket.close(ignored);
  }

  Local::socket socket;
  asio::steady_timer timer;
  StatusQuestion question{};
  Bytes said;
};

StatusSocket::StatusSocket(asio::io_context& io, const std::string& job, const std::string& node,
                           Answers answers)
    : folder_(true), place_{job, node}, answers_(std::move(answers)), acceptor_(io) {
  folder_.remove_dead();
  acceptor_.assign(Local(), folder_.listen(place_).release());
  accept();
}

StatusSocket::~StatusSocket() { folder_.remove(place_); }

void StatusSocket::accept() {
  acceptor_.async_accept([this](auto error, Local::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) {
      auto asker = std::make_shared<Asker>(std::move(socket));
      asker->begin([this, alive = std::weak_ptr(alive_), weak = std::weak_ptr(asker)] {
        if (!alive.expired()) answer(weak.lock());
      });
    }
    accept();
  });
}

void StatusSocket::answer(const std::shared_ptr<Asker>& asker) {
  switch (asker->question) {
    case StatusQuestion::status:
    case StatusQuestion::flight:
      return answers_.snapshot(asker->question == StatusQuestion::flight
                                   ? AskSnapshot::Detail::flight
                                   : AskSnapshot::Detail::status,
                               [asker](Bytes bytes) { asker->say(std::move(bytes)); });
    case StatusQuestion::entry:
      return asker->say(encode(answers_.launcher.entry()));
    case StatusQuestion::ranks:
      return asker->say(encode(answers_.launcher.ranks()));
    case StatusQuestion::drain:
      return asker->say(encode(answers_.launcher.drain()));
    case StatusQuestion::store_waits:
      return asker->say(encode(answers_.launcher.store_waits()));
    case StatusQuestion::end:
      std::erase_if(waiting_for_end_, [](const auto& one) { return one.expired(); });
      if (waiting_for_end_.size() >= waiting_max) return asker->cut();
      waiting_for_end_.push_back(asker);
      return asker->stay();
  }
  asker->cut();  // A question of a later version.
}

/// This process ends next, so the farewells are written now.
void StatusSocket::tell_end(const JobFarewell& farewell) {
  const Bytes bytes = encode(farewell);
  for (const auto& one : std::exchange(waiting_for_end_, {})) {
    const auto asker = one.lock();
    if (!asker || !asker->socket.is_open()) continue;
    ::send(asker->socket.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

namespace {

std::string name_of(const StatusFolder::Place& place) {
  return "node " + place.node + " of job " + place.job;
}

void send_question(const unique_fd& fd, const StatusFolder::Place& place, StatusQuestion question) {
  if (::send(fd.get(), &question, sizeof question, MSG_NOSIGNAL) != sizeof question) {
    throw Error(Errc::unreachable, "cannot ask " + name_of(place) + ": " + errno_text(errno));
  }
}

Bytes read_answer(const unique_fd& fd, const StatusFolder::Place& place) {
  const auto deadline = Clock::now() + patience;
  Bytes answer;
  std::array<std::byte, 65536> block;
  while (answer.size() < answer_bytes_max) {
    pollfd wait{fd.get(), POLLIN, 0};
    if (::poll(&wait, 1, poll_timeout_ms(deadline)) == 0) {
      throw Error(Errc::timeout, name_of(place) + " does not answer within " +
                                     duration_text(patience) + ": its agent is stopped, or busy");
    }
    const auto size = ::recv(fd.get(), block.data(), block.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    answer.insert(answer.end(), block.data(), block.data() + size);
  }
  // An agent that ends meanwhile says nothing.
  if (answer.empty()) throw Error(Errc::unreachable, name_of(place) + " does not answer");
  return answer;
}

Error cannot_be_read(const StatusFolder::Place& place) {
  return Error(Errc::version, "what " + name_of(place) +
                                  " says cannot be read: it has ended meanwhile, or is of another "
                                  "version of dlaunch");
}

/// The process that listens at the other end; 0 where it is in a pid namespace that we do not see.
pid_t listener_of(const unique_fd& fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

}  // namespace

JobSnapshot ask_agent(const StatusFolder& folder, const StatusFolder::Place& place,
                      AskSnapshot::Detail detail) {
  const unique_fd fd = folder.connect(place);
  send_question(
      fd, place,
      detail == AskSnapshot::Detail::flight ? StatusQuestion::flight : StatusQuestion::status);
  auto job = decode_snapshot(read_answer(fd, place));
  if (!job) throw cannot_be_read(place);
  return std::move(*job);
}

FoundJob ask_entry(const StatusFolder& folder, const StatusFolder::Place& place) {
  const unique_fd fd = folder.connect(place);
  send_question(fd, place, StatusQuestion::entry);
  auto entry = decode_entry(read_answer(fd, place));
  if (!entry) throw cannot_be_read(place);
  FoundJob found{.entry = std::move(*entry), .agent = listener_of(fd)};
  if (const auto stat = found.agent > 0 ? process_stat(found.agent) : std::nullopt) {
    found.front = stat->parent;
  }
  return found;
}

JobRanks ask_ranks(const StatusFolder& folder, const StatusFolder::Place& place) {
  const unique_fd fd = folder.connect(place);
  send_question(fd, place, StatusQuestion::ranks);
  auto ranks = decode_ranks(read_answer(fd, place));
  if (!ranks) throw cannot_be_read(place);
  return std::move(*ranks);
}

JobStoreWaits ask_store_waits(const StatusFolder& folder, const StatusFolder::Place& place) {
  const unique_fd fd = folder.connect(place);
  send_question(fd, place, StatusQuestion::store_waits);
  auto waits = decode_store_waits(read_answer(fd, place));
  if (!waits) throw cannot_be_read(place);
  return std::move(*waits);
}

JobDrained ask_to_drain(const StatusFolder& folder, const StatusFolder::Place& place) {
  const unique_fd fd = folder.connect(place);
  send_question(fd, place, StatusQuestion::drain);
  const auto drained = decode_drained(read_answer(fd, place));
  if (!drained) throw cannot_be_read(place);
  return *drained;
}

unique_fd ask_for_end(const StatusFolder& folder, const StatusFolder::Place& place) {
  unique_fd fd = folder.connect(place);
  send_question(fd, place, StatusQuestion::end);
  return fd;
}

}  // namespace dlaunch::launcher
