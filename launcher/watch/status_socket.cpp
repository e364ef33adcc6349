#include "launcher/watch/status_socket.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/process_stat.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <poll.h>
#include <sys/socket.h>

namespace dlaunch::launcher {
namespace {

namespace asio = boost::asio;
using Local = asio::local::stream_protocol;

constexpr std::size_t answer_bytes_max = 256u << 20;
/// The time for a client to ask, and to take the answer.
constexpr auto patience = std::chrono::seconds(5);
/// The most clients that may wait for an agent's end.
constexpr std::size_t waiting_max = 64;

}  // namespace

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
    : folder_(true), answers_(std::move(answers)), acceptor_(io) {
  folder_.remove_dead();
  taken_ = folder_.listen({job, node});
  acceptor_.assign(Local(), taken_.listener.release());
  accept();
}

StatusSocket::~StatusSocket() { folder_.give_back(taken_); }

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

/// People and scripts that stop a job at the same moment mean one stop. A second signal of theirs
/// would kill the workers, and a third the agent.
bool StatusSocket::is_recent(const std::optional<Clock::time_point>& asked) {
  constexpr auto count_as_one = std::chrono::seconds(1);
  return asked && Clock::now() - *asked < count_as_one;
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
      drain_asked_ = Clock::now();
      return asker->say(encode(answers_.launcher.drain()));
    case StatusQuestion::stop: {
      const bool just_asked = is_recent(stop_asked_) || is_recent(drain_asked_);
      if (!just_asked) stop_asked_ = Clock::now();
      return asker->say(encode(JobStopAsked{just_asked}));
    }
    case StatusQuestion::stop_asked:
      return asker->say(encode(JobStopAsked{is_recent(stop_asked_)}));
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

bool ask_to_stop(const StatusFolder& folder, const StatusFolder::Place& place,
                 StatusQuestion question) try {
  const unique_fd fd = folder.connect(place);
  send_question(fd, place, question);
  const auto asked = decode_stop_asked(read_answer(fd, place));
  return asked && asked->just_asked;
} catch (const Error&) {
  return false;
}

unique_fd ask_for_end(const StatusFolder& folder, const StatusFolder::Place& place) {
  unique_fd fd = folder.connect(place);
  send_question(fd, place, StatusQuestion::end);
  return fd;
}

}  // namespace dlaunch::launcher
