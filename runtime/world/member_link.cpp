#include "runtime/world/member_link.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr auto drain_pause_first = std::chrono::microseconds(20);
constexpr auto drain_pause_max = std::chrono::milliseconds(2);
/// How long a member that gives up waits for the host's own words.
constexpr auto last_words_wait = std::chrono::seconds(2);

bool is_pipe(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

bool is_drained(int fd) {
  int left = 0;
  return ::ioctl(fd, FIONREAD, &left) != 0 || left == 0;
}

}  // namespace

/// The messages that the other side has pushed. Shared with the client's callback, which may
/// outlive the link in a forked child.
struct MemberLink::News {
  explicit News(int of_rank) : rank(of_rank) {}

  const int rank;
  std::mutex mutex;
  bool granted = false;
  unique_fd listener;
  unique_fd segment_fd;  ///< Granted but not mapped yet.
  std::shared_ptr<Segment> segment;
  std::optional<Key> data_key;
  std::vector<PeerLoss> losses;
  std::optional<wire::Abort> abort;
  std::optional<std::map<int, SeenDoing>> doing;

  void take(const wire::FrameHeader& header, BytesView payload, std::vector<unique_fd> fds) {
    const std::lock_guard lock(mutex);
    if (header.type == wire::Type::grant) {
      auto grant = wire::decode<wire::Grant>(payload);
      auto fd = fds.begin();
      if (grant && grant->listener && fd != fds.end()) listener = std::move(*fd++);
      if (grant && grant->segment && fd != fds.end()) segment_fd = std::move(*fd++);
      if (grant && grant->data_key.size() == Key::size) {
        data_key.emplace(Key::View(grant->data_key));
        wipe(grant->data_key);
      } else if (grant && !grant->data_key.empty()) {
        abort = wire::Abort{Errc::version,
                            "the key for the data plane that was granted is no key; use the same "
                            "dlaunch everywhere"};
      }
      granted = true;
    } else if (header.type == wire::Type::peer_lost) {
      if (const auto lost = wire::decode<wire::PeerLost>(payload)) {
        losses.push_back({lost->rank, lost->host, text_of(lost->how), lost->how.left()});
      }
    } else if (header.type == wire::Type::abort && !abort) {
      abort = wire::decode<wire::Abort>(payload);
    } else if (header.type == wire::Type::warning) {
      const auto warning = wire::decode<wire::Warning>(payload);
      if (warning) std::fprintf(stderr, "dlaunch: rank %d: %s\n", rank, warning->sentence.c_str());
    } else if (header.type == wire::Type::doing) {
      auto told = wire::decode<wire::Doing>(payload).value_or(wire::Doing{});
      doing.emplace();
      for (auto& seen : told.ranks) doing->insert_or_assign(seen.rank, std::move(seen.doing));
    }
  }
};

MemberLink::MemberLink(unique_fd connected, Options options, std::unique_ptr<RankHost> host,
                       Clock::time_point deadline)
    : owner_(::getpid()),
      options_(std::move(options)),
      news_(std::make_shared<News>(options_.hello.member ? options_.hello.member->rank : -1)),
      host_(std::move(host)) {
  store::Client::Options client_options;
  client_options.hello = options_.hello;
  client_options.peer_name = options_.peer_name;
  client_options.notice = options_.notice;
  client_ = std::make_unique<store::Client>(
      std::move(connected), std::move(client_options),
      [news = news_](const wire::FrameHeader& header, BytesView payload,
                     std::vector<unique_fd> fds) { news->take(header, payload, std::move(fds)); },
      deadline);
  bool granted = false;
  try {
    granted = wait_for([this] { return news_->granted; }, deadline);
  } catch (const Error&) {
    // A host that gives up says why before it closes the connection.
    if (const auto said = aborted()) throw *said;
    throw;
  }
  if (!granted) {
    throw Error(Errc::timeout, options_.peer_name + " welcomed this process but granted it " +
                                   "nothing before the deadline");
  }
  map_segment();
}

/// A rank that cannot map the memory goes on without it.
void MemberLink::map_segment() {
  unique_fd granted;
  {
    const std::lock_guard lock(news_->mutex);
    granted = std::move(news_->segment_fd);
  }
  if (!granted) return;
  std::string why = "the node's shared memory: it was made for other ranks";
  try {
    auto segment = Segment::adopt(std::move(granted));
    if (segment->local_of(options_.hello.member->rank) >= 0)
      return keep_segment(std::move(segment));
  } catch (const Error& error) {
    why = error.what();
  }
  client_->tell(wire::Type::warning,
                wire::payload_of(wire::Warning{why + "; the rank goes on without it, over TCP"}));
}

MemberLink::~MemberLink() {
  if (!is_ours()) {
    // In a forked child: the connection and the host's thread are the parent's, and a goodbye or a
    // join from here would disturb or hang; the descriptors close when the child ends or execs.
    static_cast<void>(client_.release());
    static_cast<void>(host_.release());
    return;
  }
  const bool unwinding = std::uncaught_exceptions() > 0;
  if (unwinding) ::shutdown(client_->fd(), SHUT_RDWR);  // An end without a goodbye is a loss.
  client_.reset();
  if (!host_) return;
  // After an error the others have been told by now. The store stays readable for a moment, since
  // rank 0 may have left the reason there.
  host_->await_departures(deadline_after(unwinding ? last_words_wait : options_.linger));
}

bool MemberLink::is_ours() const noexcept { return home_.is_here(); }

/// Reads news until `done` (asked under the lock) or the deadline.
bool MemberLink::wait_for(const std::function<bool()>& done, Clock::time_point deadline) {
  for (;;) {
    client_->dispatch();
    {
      const std::lock_guard lock(news_->mutex);
      if (done()) return true;
    }
    pollfd wait{client_->fd(), POLLIN, 0};
    if (::poll(&wait, 1, poll_timeout_ms(deadline)) == 0) return false;
  }
}

void MemberLink::require_ours() const {
  if (is_ours()) return;
  throw Error(Errc::misuse, "this world belongs to the parent process, pid " +
                                std::to_string(owner_) +
                                "; a forked child may not use it and needs a rank of its own");
}

store::Client& MemberLink::client() const {
  require_ours();
  return *client_;
}

std::optional<std::string> MemberLink::local_host() const {
  const Address address = local_address(client().fd());
  if (address.storage.ss_family == AF_UNIX) return std::nullopt;
  return address.host();
}

void MemberLink::tell_ready() noexcept { client_->tell(wire::Type::ready, {}); }

Error MemberLink::give_up(Errc code, const std::string& sentence) {
  client_->tell(wire::Type::abort, wire::payload_of(wire::Abort{code, sentence}));
  try {
    wait_for([this] { return news_->abort.has_value(); }, deadline_after(last_words_wait));
  } catch (const Error&) {
    // The host closes the connection after its last words; without any, ours must do.
  }
  return aborted().value_or(Error(code, sentence));
}

void MemberLink::read_last_words() noexcept {
  try {
    client_->dispatch();
  } catch (const Error&) {
    // The connection is already known to be broken.
  }
}

std::optional<PeerLoss> MemberLink::first_loss() const {
  const std::lock_guard lock(news_->mutex);
  if (news_->losses.empty()) return std::nullopt;
  return news_->losses.front();
}

std::optional<Error> MemberLink::aborted() const {
  const std::lock_guard lock(news_->mutex);
  if (!news_->abort) return std::nullopt;
  return Error(news_->abort->code, news_->abort->sentence);
}

int MemberLink::fd() const { return client().fd(); }

std::vector<PeerLoss> MemberLink::losses() {
  std::optional<Error> broken;
  try {
    client().dispatch();
  } catch (const Error& error) {
    if (!is_ours()) throw;
    broken = error;
  }
  const std::lock_guard lock(news_->mutex);
  if (news_->abort) throw Error(Errc::aborted, news_->abort->sentence);
  if (broken && news_->losses.empty()) throw *broken;
  return news_->losses;
}

void MemberLink::report(const Error& error, const Claim& claim) noexcept {
  if (!is_ours()) return;
  try {
    client_->tell(wire::Type::report,
                  wire::payload_of(wire::Report{error.errc(), claim, error.what()}));
  } catch (const std::bad_alloc&) {
    // If the report cannot be written, the agent's grace just runs its full length.
  }
}

void MemberLink::inquire(const std::vector<int>& ranks) noexcept {
  if (!is_ours()) return;
  try {
    const std::lock_guard lock(news_->mutex);
    news_->doing.reset();
    wire::Inquire question{{ranks.begin(), ranks.end()}};
    question.ranks.resize(std::min(question.ranks.size(), wire::inquired_ranks_max));
    client_->tell(wire::Type::inquire, wire::payload_of(question));
  } catch (const std::bad_alloc&) {
    // If we cannot ask there is no answer.
  }
}

std::optional<std::map<int, SeenDoing>> MemberLink::doing() const {
  const std::lock_guard lock(news_->mutex);
  return news_->doing;
}

unique_fd MemberLink::take_listener() {
  require_ours();
  const std::lock_guard lock(news_->mutex);
  return std::move(news_->listener);
}

std::optional<Key> MemberLink::data_key() const {
  require_ours();
  const std::lock_guard lock(news_->mutex);
  return news_->data_key;
}

void MemberLink::keep_listener(unique_fd listener) {
  const std::lock_guard lock(news_->mutex);
  news_->listener = std::move(listener);
}

std::shared_ptr<Segment> MemberLink::segment() {
  if (!is_ours()) return nullptr;
  const std::lock_guard lock(news_->mutex);
  return news_->segment;
}

void MemberLink::keep_segment(std::shared_ptr<Segment> segment) {
  const std::lock_guard lock(news_->mutex);
  news_->segment = std::move(segment);
}

void MemberLink::drain_output(Clock::time_point deadline) {
  std::fflush(stdout);
  std::fflush(stderr);
  std::cout.flush();
  if (!options_.is_agent) return;
  // The kernel does not report when a pipe has become empty, so this looks, less and less often.
  auto pause = std::chrono::duration_cast<std::chrono::microseconds>(drain_pause_first);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (!is_pipe(fd)) continue;
    while (!is_drained(fd) && Clock::now() < deadline) {
      std::this_thread::sleep_for(pause);
      pause = std::min<std::chrono::microseconds>(pause * 2, drain_pause_max);
    }
  }
}

}  // namespace dlaunch
