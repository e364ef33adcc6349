#include "collectives/transport/links.hpp"

#include "collectives/transport/shm/rings.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/text_hash.hpp"
#include "runtime/segment/processors.hpp"
#include "runtime/segment/remote_barrier.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include <sys/eventfd.h>

namespace dlaunch::transport {
namespace {

/// Whether a rank is lost. Then all ranks hear of it from their agents, and this one need not look
/// up addresses to tell them: the store may be gone with the lost rank.
bool has_lost_some(const std::vector<PeerLoss>& losses) {
  return std::any_of(losses.begin(), losses.end(), [](const PeerLoss& loss) { return !loss.left; });
}

/// Whether this rank shares its processors. The segment's maker knows of all ranks of the host;
/// where there is none, only those of the node are known.
bool is_among_many(const World& world, Segment* segment) {
  if (segment != nullptr) return segment->oversubscribed();
  return read_processors().oversubscribed_by(world.info().local_size);
}

bool says_that_store_is_away(const Error& error) {
  return error.errc() == Errc::timeout || error.errc() == Errc::unreachable ||
         error.errc() == Errc::peer_lost;
}

}  // namespace

Links::Links(const World& world, const FlightWords& words, const MakeTransport& first)
    : Links(world, words, std::nullopt, first) {}

Links::Links(const World& world, const FlightWords& words, std::uint32_t generation)
    : Links(world, words, generation, nullptr) {}

Links::Links(const World& world, const FlightWords& words, std::optional<std::uint32_t> generation,
             const MakeTransport& first)
    : world_(world),
      rank_(world.rank()),
      size_(world.size()),
      generation_(generation.value_or(0)),
      store_(world.store()),
      membership_(world.membership()),
      on_control_([this](int from, const Header& header, BytesView payload) {
        on_control(from, header, payload);
      }),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      crowded_(is_among_many(world, membership_ ? membership_->segment().get() : nullptr)) {
  if (!wake_) throw Error(Errc::internal, "cannot make an eventfd: " + errno_text(errno));
  wake_watch_ = Poller::Watch(poller_, wake_.get(), woken_, EPOLLIN);
  const WorldInfo& info = world.info();
  std::unique_ptr<TcpTransport> tcp;
  std::shared_ptr<Segment> granted;
  if (size_ > 1) {
    TcpTransport::Setting setting;
    setting.hello.job = text_hash(info.job);
    setting.hello.epoch = info.epoch;
    setting.hello.rank = rank_;
    setting.hello.size = size_;
    setting.store = store_;
    if (membership_) setting.key = membership_->data_key();
    if (membership_ && !generation) setting.listener = membership_->take_listener();
    setting.generation = generation;
    tcp = std::make_unique<TcpTransport>(std::move(setting), surroundings());
    generation_ = tcp->generation();
    if (membership_) granted = membership_->segment();
  }
  if (first) add_transport(first(surroundings()));
  share(granted);
  const int recorded_as = granted ? granted->local_of(rank_) : -1;
  made_calls_.emplace(
      rank_, generation_, segment_,
      std::make_shared<Flight>(recorded_as < 0 ? nullptr : std::move(granted), recorded_as, words));
  tcp_ = tcp.get();
  if (tcp) add_transport(std::move(tcp));
  if (membership_ && membership_->fd() >= 0) {
    membership_watch_ = Poller::Watch(poller_, membership_->fd(), told_, EPOLLIN);
  }
  watched_at_rest_ = poller_.size();
  if (generation_ == 0) {
    announce(*store_, rank_, {info.node_rank, info.local_rank, segment_ ? segment_->id() : 0});
  }
}

void Links::add_transport(std::unique_ptr<Transport> transport) {
  if (transport->is_in_memory()) in_memory_.push_back(transport.get());
  transports_.push_back(std::move(transport));
}

/// Uses a granted segment, unless the rank is alone on its node: then it holds only the flight
/// ring.
void Links::share(const std::shared_ptr<Segment>& granted) {
  if (!granted || granted->size() < 2) return;
  const int local = granted->local_of(rank_);
  if (local < 0) return;
  segment_ = granted;
  const int bell = static_cast<int>(generation_ % Wakeup::bells_max);
  bell_ = std::make_shared<Wakeup>(segment_, local, bell);
  if (bell_->fd() >= 0) bell_watch_ = Poller::Watch(poller_, bell_->fd(), rung_, EPOLLIN);
  const bool has_remote_barriers = allow_remote_barriers();
  if (has_remote_barriers) {
    progress_lock_.allow_bias();
    Flight::favour_one_thread();
  }
  segment_->rank(local).attached =
      has_remote_barriers ? RankBlock::with_remote_barriers : RankBlock::plain;
  for (int other = 0; other < segment_->size(); ++other) bell_->ring_if_asleep(other);
  if (generation_ >= ring_sets) return;
  add_transport(std::make_unique<Rings>(Rings::Setting{segment_, bell_, generation_, local, size_},
                                        surroundings()));
}

// ---- Sending. ----

void Links::post(Outgoing& message) {
  if (message.is_synchronous) message.header.sequence = ++tickets_;
  if (message.to == rank_) {
    inbox_.deliver(rank_, message.header, message.payload);
    if (message.is_synchronous) untaken_.emplace(tickets_, &message);
    message.state = message.is_synchronous ? Outgoing::State::sent : Outgoing::State::done;
    tell_senders();
    return tell_threads();
  }
  SendQueue& queue = out(message.to);
  const bool had_work = queue.has_work();
  queue.post(message);
  if (message.is_synchronous) untaken_.emplace(tickets_, &message);
  try {
    start_sending(queue, had_work);
  } catch (...) {
    if (message.is_synchronous) untaken_.erase(message.header.sequence);
    queue.withdraw(message);  // Its owner does not know that it was queued.
    throw;
  }
}

void Links::post_control(int to, const Header& header, Bytes payload) {
  if (to == rank_) return;
  SendQueue& queue = out(to);
  const bool asks = queue.is_idle() && asks_store(to);
  if (asks && header.kind == Kind::failure && has_lost_some(losses_)) return;
  if (asks && (header.kind == Kind::failure || header.kind == Kind::inquiry)) {
    // A lookup would wait for an absent store. So our own address is looked up first, which a
    // present store has.
    store_->wait(tcp_->own_key(), Clock::now());
  }
  const bool had_work = queue.has_work();
  queue.post_control(header, std::move(payload));
  start_sending(queue, had_work);
}

/// Begins to send. Other threads are told if their messages may have left, too, or if there is more
/// to poll for.
void Links::start_sending(SendQueue& queue, bool had_work) {
  const bool is_first = queue.is_idle();
  if (is_first) choose(queue);
  queue.pump();
  if (queue.has_work() && (is_first || !had_work)) {
    std::erase(busy_, &queue);
    busy_.push_back(&queue);
  }
  if (had_work || queue.has_work()) tell_threads();
}

/// Withdraws a message. If that breaks the queue, other messages in it fail, too.
void Links::withdraw(Outgoing& message) {
  if (message.header.kind == Kind::message) untaken_.erase(message.header.sequence);
  if (message.state == Outgoing::State::sent) {
    message.state = Outgoing::State::failed;
    return;
  }
  out(message.to).withdraw(message);
  tell_threads();
}

/// Opens the queue through the first transport that leads there, once it is known that earlier ones
/// do not. Returns whether it is open.
bool Links::choose(SendQueue& queue) {
  const int to = queue.to();
  bool has_asked = false;
  std::optional<Location> location;
  for (const auto& transport : transports_) {
    auto reach = transport->reach(to, location);
    if (reach == Transport::Reach::unknown && !std::exchange(has_asked, true)) {
      location = find_location(*store_, to);
      reach = transport->reach(to, location);
    }
    if (reach == Transport::Reach::no) continue;
    if (reach == Transport::Reach::unknown) break;
    queue.open(transport->connect(queue));
    return true;
  }
  queue.wait_for_way();
  return false;
}

/// Whether linking that rank takes a word of the store.
bool Links::asks_store(int to) { return !is_near(to); }

bool Links::is_undecided() const {
  return std::any_of(busy_.begin(), busy_.end(), [](const SendQueue* queue) {
    return queue->is_undecided() && queue->has_work();
  });
}

/// Asks the store where ranks are, as far as that is awaited.
bool Links::decide(Clock::time_point now) {
  if (!is_undecided()) {
    pauses_.forget();
    return false;
  }
  if (!pauses_.are_over(now)) return false;
  bool moved = false;
  for (SendQueue* queue : busy_) {
    if (!queue->is_undecided() || !queue->has_work() || !choose(*queue)) continue;
    queue->pump();
    moved = true;
  }
  return moved;
}

bool Links::is_flushed() const {
  return std::none_of(busy_.begin(), busy_.end(),
                      [](const SendQueue* queue) { return queue->has_work(); });
}

bool Links::has_pending() const {
  return inbox_.is_awaited() || inbox_.has_answering() || !tellings_.empty() || !untaken_.empty() ||
         std::any_of(busy_.begin(), busy_.end(),
                     [](const SendQueue* queue) { return queue->has_messages(); });
}

/// Whether data between that rank and this one goes through memory. -1: any rank.
bool Links::is_near(int rank) const {
  if (rank < 0) return !in_memory_.empty() && !has_connections();
  return std::any_of(in_memory_.begin(), in_memory_.end(), [&](const Transport* transport) {
    return transport->reach(rank, std::nullopt) == Transport::Reach::yes;
  });
}

// ---- Receiving. ----

/// Posts a receive, which may let a held source go on.
void Links::post(Receive& receive) {
  inbox_.post(receive);
  tell_senders();
  if (progress_lock_.are_shared() && progress(Clock::now())) tell_threads();
}

bool Links::post_now(Receive& receive) noexcept {
  if (progress_lock_.are_shared()) return false;
  try {
    inbox_.post(receive);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void Links::withdraw(Receive& receive) {
  inbox_.withdraw(receive);
  if (progress_lock_.are_shared() && progress(Clock::now())) tell_threads();
}

void Links::post_apart(Receive& receive, const Inbox::Apart& message) {
  inbox_.take_apart(receive, message);
  tell_senders();
  if (progress_lock_.are_shared() && progress(Clock::now())) tell_threads();
}

void Links::put_back(const Inbox::Apart& message) {
  inbox_.put_back(message);
  tell_senders();
  tell_threads();
}

// ---- Synchronous messages. ----

/// Tells senders that their messages were received. A receive is complete whether or not this has
/// left: it may have to wait behind messages that the sender reads later, when it has been told.
bool Links::tell_some_senders() {
  bool moved = false;
  while (Receive* const receive = inbox_.next_answering()) {
    moved = true;
    const int source = receive->source;
    const std::uint64_t ticket = receive->header.sequence;
    auto telling = std::make_unique<Outgoing>();
    telling->to = source;
    telling->header.kind = Kind::taken;
    telling->header.communicator = receive->header.communicator;
    telling->header.sequence = ticket;
    receive->state = Receive::State::done;
    if (source == rank_) {
      on_taken(rank_, ticket);
      continue;
    }
    tellings_.push_back(std::move(telling));
    try {
      post(*tellings_.back());
    } catch (const Error&) {
      // There is no way to the sender, which learns of that otherwise.
      tellings_.back()->state = Outgoing::State::failed;
    }
  }
  std::erase_if(tellings_, [](const auto& telling) { return !telling->pending(); });
  return moved;
}

/// `ticket` comes from outside.
void Links::on_taken(int from, std::uint64_t ticket) {
  const auto found = untaken_.find(ticket);
  if (found == untaken_.end() || found->second->to != from) return;
  Outgoing& message = *found->second;
  untaken_.erase(found);
  message.is_taken = true;
  if (message.state == Outgoing::State::sent) message.state = Outgoing::State::done;
}

// ---- News. ----

void Links::on_control(int from, const Header& header, BytesView payload) {
  if (header.kind == Kind::taken) return on_taken(from, header.sequence);
  if (!control_.take(from, header, payload)) return;
  const auto answer = answer_to(header);
  if (!answer) return;
  Header status;
  status.kind = Kind::status;
  status.communicator = header.communicator;
  status.sequence = header.sequence;
  status.argument = header.argument;
  Bytes bytes = encode(*answer);
  status.bytes = bytes.size();
  post_control(from, status, std::move(bytes));
}

std::optional<Answer> Links::answer_to(const Header& inquiry) const {
  const auto activity = control_.activity(inquiry.communicator);
  switch (static_cast<Question>(inquiry.argument)) {
    case Question::doing:
      if (!activity) return std::nullopt;
      return activity->doing;
    case Question::made:
      if (auto made = made_calls_->call_made(rank_, inquiry.communicator, inquiry.sequence)) {
        return std::move(*made);
      }
      break;
    case Question::argument:
      if (activity && activity->doing.communicator == inquiry.communicator &&
          activity->doing.call.sequence == inquiry.sequence) {
        return ArgumentWords{activity->argument};
      }
      break;
    case Question::sent:
      return made_calls_->sent_from(rank_, inquiry);
  }
  return NothingKnown{};
}

void Links::inquire(const std::vector<int>& ranks, Inquiry& inquiry) {
  control_.await(inquiry);
  Header header = inquiry.message;
  header.kind = Kind::inquiry;
  header.communicator = inquiry.communicator;
  header.sequence = inquiry.sequence;
  header.argument = static_cast<std::uint64_t>(inquiry.question);
  bool store_answers = true;
  for (const int rank : ranks) {
    // Without the store, ranks without a connection are not asked.
    if (!store_answers && out(rank).is_idle()) continue;
    try {
      post_control(rank, header, {});
    } catch (const Error& error) {
      if (!says_that_store_is_away(error)) throw;
      store_answers = false;
    }
  }
}

const PeerLoss* Links::loss_of(int rank) const {
  const auto found = std::find_if(losses_.begin(), losses_.end(),
                                  [&](const PeerLoss& loss) { return loss.rank == rank; });
  return found == losses_.end() ? nullptr : &*found;
}

const std::string* Links::end_of(int rank) const {
  const ReceivingEnd* end = in(rank);
  if (end == nullptr) return break_of(rank);
  return end->ended() ? &end->reason() : nullptr;
}

/// Whether a rank that ended may have left data. If a held message has come, what is behind it is
/// not known.
bool Links::has_left_something(int rank) const {
  const ReceivingEnd* end = in(rank);
  return end != nullptr && !inbox_.is_stalled(rank) && end->has_left_something();
}

const std::string* Links::break_of(int rank) const {
  const SendQueue* queue = outs_.find(rank);
  return queue != nullptr && queue->is_broken() ? &queue->reason() : nullptr;
}

}  // namespace dlaunch::transport
