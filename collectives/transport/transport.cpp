#include "collectives/transport/transport.hpp"

#include "collectives/transport/flight_words.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/segment/remote_barrier.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <sys/eventfd.h>
#include <sys/socket.h>

namespace dlaunch::transport {
namespace {

constexpr auto lookup_pause_first = std::chrono::milliseconds(1);
constexpr auto lookup_pause_max = std::chrono::milliseconds(50);

Address address_of(std::string_view text) {
  const auto colon = text.rfind(':');
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  if (colon == std::string_view::npos ||
      std::from_chars(text.data() + colon + 1, end, port).ptr != end) {
    throw Error(Errc::internal, "a rank published '" + std::string(text) +
                                    "' as its address; host:port was expected");
  }
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return resolve(host, port).front();
}

/// Then all ranks hear of it by their agents, and whoever has no connection to them need not ask
/// for an address to tell them: the store may be gone with whom is lost.
bool has_lost_some(const std::vector<PeerLoss>& losses) {
  return std::any_of(losses.begin(), losses.end(), [](const PeerLoss& loss) { return !loss.left; });
}

/// How long we wait for the store's answer where nobody should wait for it for long.
constexpr auto store_patience = std::chrono::milliseconds(500);

/// Throws Error{timeout} where the store does not answer; whether the key is there does not matter.
void require_answer(Store& store, const std::string& key) {
  const auto asked = Clock::now();
  try {
    store.wait(key, asked);
  } catch (const Error& error) {
    const bool was_answered = Clock::now() - asked < store_patience;
    if (error.errc() != Errc::timeout || !was_answered) throw;
  }
}

}  // namespace

Transport::Transport(const World& world) : Transport(world, 0) {}

Transport::Transport(const World& world, std::uint32_t generation)
    : world_(world),
      rank_(world.rank()),
      size_(world.size()),
      job_(text_hash(world.info().job)),
      epoch_(world.info().epoch),
      generation_(generation),
      store_(world.store()),
      membership_(world.membership()),
      key_(membership_ ? membership_->data_key() : std::nullopt),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      on_control_([this](int from, const Header& header, BytesView payload) {
        on_control(from, header, payload);
      }),
      survey_(world.size()),
      spins_(has_processors(world.info().local_size)),
      lookup_pause_(lookup_pause_first) {
  if (!wake_) throw Error(Errc::internal, "cannot make an eventfd: " + errno_text(errno));
  if (size_ > 1) publish();
  std::shared_ptr<Segment> granted;
  if (membership_ && size_ > 1) granted = membership_->segment();
  share(granted);
  const int recorded_as = granted ? granted->local_of(rank_) : -1;
  flight_ = std::make_shared<Flight>(recorded_as < 0 ? nullptr : std::move(granted), recorded_as,
                                     flight_words());
  if (generation_ == 0) {
    announce(*store_, rank_,
             {world.info().node_rank, world.info().local_rank, segment_ ? segment_->id() : 0});
  }
}

/// Alone on its node, a rank has one for its flight ring only.
void Transport::share(const std::shared_ptr<Segment>& granted) {
  if (!granted || granted->size() < 2) return;
  const int local = granted->local_of(rank_);
  if (local < 0) return;
  segment_ = granted;
  const int bell = static_cast<int>(generation_ % Wakeup::bells_max);
  bell_ = std::make_shared<Wakeup>(segment_, local, bell);
  segment_->rank(local).attached =
      allow_remote_barriers() ? RankBlock::with_remote_barriers : RankBlock::plain;
  for (int other = 0; other < segment_->size(); ++other) bell_->ring_if_asleep(other);
  if (generation_ < ring_sets) {
    rings_.emplace(segment_, bell_, generation_, local, size_);
  }
}

/// The agent's listener was made known by World::init. A listener of our own is made known here;
/// the first free key tells how many meshes this rank made from the world before.
void Transport::publish() {
  if (membership_ && (generation_ & derived) == 0) listener_ = membership_->take_listener();
  if (!listener_) {
    listener_ = listen_tcp(resolve(own_host(), 0).front());
    const std::string address = local_address(listener_.get()).to_string();
    if ((generation_ & derived) != 0) {
      store_->set(key_of(rank_), as_bytes(address));
    } else {
      while (!store_->compare_set(key_of(rank_), std::nullopt, as_bytes(address))) ++generation_;
    }
  }
  set_nonblocking(listener_.get(), true);
}

/// The host at which others reach this rank: its first mesh, or World::init, has made it known.
std::string Transport::own_host() {
  const auto first = store_->get("mesh/" + std::to_string(rank_));
  return first ? address_of(as_text(*first)).host() : "127.0.0.1";
}

std::string Transport::key_of(int rank) const {
  const std::string key = "mesh/" + std::to_string(rank);
  return generation_ == 0 ? key : key + "/" + std::to_string(generation_);
}

Hello Transport::hello() const {
  Hello hello;
  hello.job = job_;
  hello.epoch = epoch_;
  hello.mesh = generation_;
  hello.rank = rank_;
  hello.size = size_;
  hello.proves = key_ ? 1 : 0;
  return hello;
}

// ---- Sending. ----

void Transport::post(Outgoing& message) {
  if (message.to == rank_) {
    inbox_.deliver(rank_, message.header, message.payload);
    message.state = Outgoing::State::done;
    return tell_threads();
  }
  OutChannel& channel = out(message.to);
  const bool had_work = channel.has_work();
  channel.post(message);
  start_sending(message.to, had_work);
}

void Transport::post_control(int to, const Header& header, Bytes payload) {
  if (to == rank_) return;
  OutChannel& channel = out(to);
  const bool asks_store =
      channel.state() == OutChannel::State::idle && !(rings_ && rings_->reaches(to));
  if (asks_store && header.kind == Kind::failure && has_lost_some(losses_)) return;
  if (asks_store && (header.kind == Kind::failure || header.kind == Kind::inquiry)) {
    require_answer(*store_, key_of(to));
  }
  const bool had_work = channel.has_work();
  channel.post_control(header, std::move(payload));
  start_sending(to, had_work);
}

/// Others are told if messages of theirs may have left, too, or if there is more to poll for.
void Transport::start_sending(int to, bool had_work) {
  OutChannel& channel = out(to);
  if (channel.state() == OutChannel::State::idle) look_up(to);
  channel.pump();
  if (had_work || channel.has_work()) tell_threads();
}

/// A channel that breaks of it takes the messages of others with it.
void Transport::withdraw(Outgoing& message) {
  out(message.to).withdraw(message);
  tell_threads();
}

void Transport::look_up(int to) {
  OutChannel& channel = out(to);
  if (rings_ && rings_->reaches(to)) {
    channel.open(rings_->writer_to(to));
    return ring_outs_.push_back(&channel);
  }
  // A rank of this node that has come and has not mapped this segment never will.
  if (rings_ && rings_->may_reach(to)) {
    const auto location = find_location(*store_, to);
    if (!location || location->segment == segment_->id()) return channel.wait_for_address();
  }
  const auto address = store_->get(key_of(to));
  if (!address) return channel.wait_for_address();
  channel.connect(address_of(as_text(*address)), hello(), to, key());
  has_connections_ = true;
}

bool Transport::looks_up() const {
  return std::any_of(outs_.begin(), outs_.end(), [](const auto& entry) {
    const OutChannel& channel = *entry.kept;
    return channel.state() == OutChannel::State::looking_up && channel.has_work();
  });
}

/// Asks the store for what is awaited, at growing intervals.
bool Transport::look_up_pending(Clock::time_point now) {
  if (!surveying_ && !looks_up()) {
    lookup_pause_ = lookup_pause_first;
    return false;
  }
  if (now < next_lookup_) return false;
  next_lookup_ = now + lookup_pause_;
  lookup_pause_ = std::min<Clock::duration>(lookup_pause_ * 2, lookup_pause_max);
  const bool moved = connect_pending();
  surveying_ = surveying_ && survey_.ask(*store_) == nullptr;
  return moved;
}

bool Transport::connect_pending() {
  bool moved = false;
  for (const auto& [to, channel] : outs_) {
    if (channel->state() != OutChannel::State::looking_up || !channel->has_work()) continue;
    look_up(to);
    if (channel->state() == OutChannel::State::looking_up) continue;
    channel->pump();
    moved = true;
  }
  return moved;
}

const Topology* Transport::topology() {
  if (!surveying_ && survey_.topology() == nullptr) {
    surveying_ = survey_.ask(*store_) == nullptr;
  }
  return survey_.topology();
}

bool Transport::is_flushed() const {
  return std::none_of(outs_.begin(), outs_.end(),
                      [](const auto& entry) { return entry.kept->has_work(); });
}

// ---- Receiving. ----

/// It may have made room for a source that was held.
void Transport::post(Receive& receive) {
  inbox_.post(receive);
  if (progress_lock_.are_shared() && pump_unpolled()) tell_threads();
}

void Transport::withdraw(Receive& receive) {
  inbox_.withdraw(receive);
  if (progress_lock_.are_shared() && pump_unpolled()) tell_threads();
}

/// Whether there is room for one more. A slow newcomer makes room; otherwise the new one waits.
bool Transport::may_accept(Clock::time_point now) {
  if (now < accept_again_) return false;
  while (newcomers_.size() >= newcomers_max) {
    if (now - newcomers_.front().since < newcomer_slow) return false;
    newcomers_.pop_front();
    ++strangers_;
  }
  return true;
}

/// Without a key nothing is to be proved, and a sender may say its Hello when it comes to it.
void Transport::drop_slow_newcomers() {
  const auto now = Clock::now();
  while (key_ && !newcomers_.empty() && now - newcomers_.front().since >= proof_timeout) {
    if (!greet(newcomers_.front())) ++strangers_;
    newcomers_.pop_front();
  }
}

void Transport::accept_all() {
  const auto now = Clock::now();
  while (may_accept(now)) {
    unique_fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      const int error = errno;
      const std::string why = "it cannot accept connections: " + errno_text(error);
      if (!is_shortage(error)) throw Error(Errc::unreachable, why);
      shortage_ = why;
      accept_again_ = now + shortage_pause;
      return;
    }
    shortage_.clear();
    newcomers_.push_back(
        {std::move(fd), Acceptance(hello(), key(), key_ ? fresh_nonce() : Nonce{}), now});
    if (greet(newcomers_.back())) newcomers_.pop_back();
  }
}

/// Reads who it is, and its proof; true when it is no newcomer any more.
bool Transport::greet(Newcomer& newcomer) {
  std::array<std::byte, sizeof(Hello)> part;
  for (;;) {
    const auto n =
        ::recv(newcomer.fd.get(), part.data(), newcomer.acceptance.wanted(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    Bytes answer;
    const auto verdict = n <= 0 ? Acceptance::Verdict::refused
                                : newcomer.acceptance.feed(
                                      BytesView(part).first(static_cast<std::size_t>(n)), answer);
    // The first answer on a connection fits into the socket.
    const bool sent = answer.empty() ||
                      ::send(newcomer.fd.get(), answer.data(), answer.size(),
                             MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(answer.size());
    if (verdict == Acceptance::Verdict::more && sent) continue;
    const bool admitted = verdict == Acceptance::Verdict::admitted &&
                          admit(newcomer.acceptance.rank(), std::move(newcomer.fd));
    if (!admitted) ++strangers_;
    return true;
  }
}

/// A second connection of a rank is just closed, as a stranger's is.
bool Transport::admit(int from, unique_fd fd) {
  if (ins_.find(from) != nullptr || (rings_ && rings_->from(from) != nullptr)) return false;
  has_connections_ = true;
  ins_.get(from, std::move(fd), from).pump(inbox_, on_control_);
  return true;
}

/// What poll(2) does not tell of: sources that were held, and rings.
bool Transport::pump_unpolled() {
  bool moved = rings_ && pump_rings();
  for (const auto& [from, channel] : ins_) {
    if (channel->held() && !channel->ended()) {
      moved = channel->pump(inbox_, on_control_) || moved;
    }
  }
  return moved;
}

}  // namespace dlaunch::transport
