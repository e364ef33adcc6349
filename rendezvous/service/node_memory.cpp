#include "rendezvous/service/node_memory.hpp"

#include "runtime/base/os/pass_descriptor.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/socket.h>

namespace dlaunch::rendezvous {
namespace {

using boost::asio::posix::stream_descriptor;
using namespace std::chrono_literals;

/// How long a lender may take: it is admitted at about the same time as we are, so a slower one
/// stands still.
constexpr auto loan_timeout = 2s;
/// How long a guest, whose agent was admitted earlier than ours, may wait here.
constexpr auto guest_timeout = 5s;
constexpr auto accept_pause = 100ms;
constexpr std::size_t guests_max = memory_parts_max;

/// "dlaunch" and the form of what follows.
constexpr std::uint64_t ask_magic = 0x0168636e75616c64;

}  // namespace

MemoryDoor MemoryDoor::open() {
  MemoryDoor door{"@dlaunch-memory-" + random_hex(24), {}};
  try {
    door.listener = listen_unix(door.name);
    set_nonblocking(door.listener.get(), true);
  } catch (const Error&) {
    return {};
  }
  return door;
}

/// An agent's request to another for the memory of their epoch.
struct NodeMemory::Ask {
  std::uint64_t magic = ask_magic;
  std::uint64_t incarnation = 0;
  std::uint64_t epoch = 0;
  std::int32_t first_rank = 0;  ///< Of the node that asks.
  std::int32_t reserved = 0;
  Mac proof{};  ///< All zeros without a key.

  /// The proof by the epoch's key, valid for this lender alone.
  Mac expected(const Key& key, const std::string& lender) const {
    Bytes said(as_bytes(lender).begin(), as_bytes(lender).end());
    const auto* const fields = reinterpret_cast<const std::byte*>(this);
    said.insert(said.end(), fields, fields + offsetof(Ask, proof));
    return mac_of(key, said);
  }
};

/// An agent that has come to borrow.
struct NodeMemory::Guest {
  Guest(boost::asio::io_context& io, unique_fd fd) : socket(io, fd.release()), timer(io) {}

  stream_descriptor socket;
  boost::asio::steady_timer timer;
  std::optional<Ask> ask;
};

/// A lender that has been asked.
struct NodeMemory::Loan {
  Loan(boost::asio::io_context& io, unique_fd fd) : socket(io, fd.release()), timer(io) {}

  stream_descriptor socket;
  boost::asio::steady_timer timer;
};

NodeMemory::NodeMemory(boost::asio::io_context& io, MemoryDoor door, Warn warn)
    : io_(io), name_(std::move(door.name)), warn_(std::move(warn)), door_(io), pause_(io) {
  if (!door.listener) return;
  door_.assign(door.listener.release());
  accept();
}

NodeMemory::~NodeMemory() { stop(); }

void NodeMemory::stop() {
  boost::system::error_code ignored;  // Nothing more can be done about it.
  door_.close(ignored);
  pause_.cancel();
  guests_.clear();
  loan_.reset();
  waiting_.clear();
}

void NodeMemory::begin(MemoryPlan plan) {
  plan_ = std::move(plan);
  segment_.reset();
  known_ = false;
  loan_.reset();
  waiting_.clear();
  for (const auto& guest : std::vector(guests_)) {
    if (guest->ask) serve(guest);
  }
}

// ---- Lending ----

void NodeMemory::accept() {
  door_.async_wait(
      stream_descriptor::wait_read, [this, alive = std::weak_ptr(alive_)](const auto& error) {
        if (error || alive.expired() || !door_.is_open()) return;
        unique_fd come(
            ::accept4(door_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!come && is_shortage(errno)) {
          pause_.expires_after(accept_pause);
          return pause_.async_wait([this, alive](const auto& stopped) {
            if (!stopped && !alive.expired() && door_.is_open()) accept();
          });
        }
        if (come && is_of_same_user(come.get()) && guests_.size() < guests_max) {
          receive(std::move(come));
        }
        accept();
      });
}

void NodeMemory::receive(unique_fd come) {
  const auto guest = guests_.emplace_back(std::make_shared<Guest>(io_, std::move(come)));
  guest->timer.expires_after(guest_timeout);
  guest->timer.async_wait([this, weak = std::weak_ptr(guest)](const auto& error) {
    const auto late = weak.lock();
    if (late && !error) drop(late);
  });
  guest->socket.async_wait(stream_descriptor::wait_read,
                           [this, weak = std::weak_ptr(guest)](const auto& error) {
                             const auto heard = weak.lock();
                             if (heard && !error) hear(heard);
                           });
}

void NodeMemory::hear(const std::shared_ptr<Guest>& guest) {
  Ask ask;
  const auto got = ::recv(guest->socket.native_handle(), &ask, sizeof ask, MSG_DONTWAIT);
  if (got != static_cast<ssize_t>(sizeof ask) || ask.magic != ask_magic) return drop(guest);
  guest->ask = ask;
  serve(guest);
}

void NodeMemory::serve(const std::shared_ptr<Guest>& guest) {
  if (is_early(*guest->ask)) return;
  if (may_have(*guest->ask)) {
    make(true);
    if (segment_) send_descriptor(guest->socket.native_handle(), segment_->fd());
  }
  drop(guest);  // A guest that gets nothing sees the connection end.
}

/// The guest's epoch has not begun here.
bool NodeMemory::is_early(const Ask& ask) const {
  return !plan_ || ask.incarnation != plan_->incarnation || ask.epoch > plan_->own.epoch;
}

bool NodeMemory::may_have(const Ask& ask) const {
  const auto& [parts, lender] = plan_->common;
  const bool is_part = std::ranges::any_of(
      parts, [&](const auto& part) { return part.first_rank == ask.first_rank; });
  if (ask.epoch != plan_->own.epoch || !lender.empty() || !is_part) return false;
  return !plan_->key || same_mac(ask.expected(*plan_->key, name_), ask.proof);
}

void NodeMemory::drop(const std::shared_ptr<Guest>& guest) {
  std::erase(guests_, std::shared_ptr<Guest>(guest));
}

// ---- Having ----

void NodeMemory::when_known(std::function<void()> then) {
  if (known_) return then();
  waiting_.push_back(std::move(then));
  if (waiting_.size() > 1) return;
  if (!plan_->common.lender.empty()) return borrow();
  make(true);
  tell_known();
}

void NodeMemory::make(bool for_all) {
  if (segment_ || std::exchange(known_, true)) return;
  SegmentPlan plan = plan_->own;
  if (for_all && !plan_->common.parts.empty()) {
    plan.world_ranks.clear();
    for (const auto& [first, workers] : plan_->common.parts) {
      for (int i = 0; i < workers; ++i) plan.world_ranks.push_back(first + i);
    }
  }
  try {
    segment_ = Segment::create(plan);
  } catch (const Error& error) {
    warn_(error.what(), false);
  }
}

void NodeMemory::borrow() {
  const std::string& lender = plan_->common.lender;
  Ask ask;
  ask.incarnation = plan_->incarnation;
  ask.epoch = plan_->own.epoch;
  ask.first_rank = plan_->own.world_ranks.front();
  if (plan_->key) ask.proof = ask.expected(*plan_->key, lender);
  try {
    unique_fd socket = connect_unix(lender, Clock::now());
    if (!is_of_same_user(socket.get())) return do_without("another user's process lends it");
    if (::send(socket.get(), &ask, sizeof ask, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        static_cast<ssize_t>(sizeof ask)) {
      return do_without("asking for it: " + errno_text(errno));
    }
    loan_ = std::make_shared<Loan>(io_, std::move(socket));
  } catch (const Error& error) {
    return do_without(error.what());
  }
  loan_->timer.expires_after(loan_timeout);
  loan_->timer.async_wait([this, weak = std::weak_ptr(loan_)](const auto& error) {
    if (weak.lock() && !error) do_without("the agent that makes it does not answer");
  });
  loan_->socket.async_wait(stream_descriptor::wait_read,
                           [this, weak = std::weak_ptr(loan_)](const auto& error) {
                             if (weak.lock() && !error) take_loan();
                           });
}

void NodeMemory::take_loan() {
  unique_fd fd = receive_descriptor(loan_->socket.native_handle());
  if (!fd) return do_without("the agent that makes it has not lent it");
  try {
    auto segment = Segment::adopt(std::move(fd));
    const auto& ranks = plan_->own.world_ranks;
    const bool is_ours =
        segment->job() == plan_->own.job && segment->epoch() == plan_->own.epoch &&
        std::ranges::all_of(ranks, [&](const int rank) { return segment->local_of(rank) >= 0; });
    if (!is_ours) return do_without("it was made for other ranks");
    segment_ = std::move(segment);
  } catch (const Error& error) {
    return do_without(error.what());
  }
  known_ = true;
  tell_known();
}

/// Goes on without common memory: the node has its own, and TCP to the other nodes of its host.
void NodeMemory::do_without(const std::string& why) {
  warn_("the memory of this host's nodes: " + why, true);
  make(false);
  tell_known();
}

void NodeMemory::tell_known() {
  loan_.reset();
  for (const auto& then : std::exchange(waiting_, {})) then();
}

}  // namespace dlaunch::rendezvous
