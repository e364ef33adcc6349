#include "rendezvous/service/node_memory.hpp"

#include "runtime/base/os/pass_descriptor.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <cerrno>
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
  epoch_.loan.reset();
  epoch_.waiting.clear();
}

void NodeMemory::begin(MemoryPlan plan) {
  epoch_ = {.plan = std::move(plan)};
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
    if (epoch_.segment) send_descriptor(guest->socket.native_handle(), epoch_.segment->fd());
  }
  drop(guest);  // A guest that gets nothing sees the connection end.
}

/// The guest's epoch has not begun here.
bool NodeMemory::is_early(const Ask& ask) const {
  return !epoch_.plan || ask.incarnation != epoch_.plan->incarnation ||
         ask.epoch > epoch_.plan->own.epoch;
}

bool NodeMemory::may_have(const Ask& ask) const {
  const auto& [parts, lender] = epoch_.plan->common;
  const bool is_part = std::ranges::any_of(
      parts, [&](const auto& part) { return part.first_rank == ask.first_rank; });
  if (ask.epoch != epoch_.plan->own.epoch || !lender.empty() || !is_part) return false;
  return !epoch_.plan->key || same_mac(ask.expected(*epoch_.plan->key, name_), ask.proof);
}

void NodeMemory::drop(const std::shared_ptr<Guest>& guest) {
  std::erase(guests_, std::shared_ptr<Guest>(guest));
}

// ---- Having ----

void NodeMemory::when_known(std::function<void()> then) {
  if (epoch_.known) return then();
  epoch_.waiting.push_back(std::move(then));
  if (epoch_.waiting.size() > 1) return;
  if (!epoch_.plan->common.lender.empty()) return borrow();
  make(true);
  tell_known();
}

void NodeMemory::make(bool for_all) {
  if (epoch_.segment || std::exchange(epoch_.known, true)) return;
  SegmentPlan plan = epoch_.plan->own;
  if (for_all && !epoch_.plan->common.parts.empty()) {
    plan.world_ranks.clear();
    for (const auto& [first, workers] : epoch_.plan->common.parts) {
      for (int i = 0; i < workers; ++i) plan.world_ranks.push_back(first + i);
    }
  }
  try {
    epoch_.segment = Segment::create(plan);
  } catch (const Error& error) {
    warn_(error.what(), false);
  }
}

void NodeMemory::borrow() {
  const std::string& lender = epoch_.plan->common.lender;
  Ask ask;
  ask.incarnation = epoch_.plan->incarnation;
  ask.epoch = epoch_.plan->own.epoch;
  ask.first_rank = epoch_.plan->own.world_ranks.front();
  if (epoch_.plan->key) ask.proof = ask.expected(*epoch_.plan->key, lender);
  try {
    unique_fd socket = connect_unix(lender, Clock::now());
    if (!is_of_same_user(socket.get())) return do_without("another user's process lends it");
    if (::send(socket.get(), &ask, sizeof ask, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        static_cast<ssize_t>(sizeof ask)) {
      return do_without("asking for it: " + errno_text(errno));
    }
    epoch_.loan = std::make_shared<Loan>(io_, std::move(socket));
  } catch (const Error& error) {
    return do_without(error.what());
  }
  epoch_.loan->timer.expires_after(loan_timeout);
  epoch_.loan->timer.async_wait([this, weak = std::weak_ptr(epoch_.loan)](const auto& error) {
    if (weak.lock() && !error) do_without("the agent that makes it does not answer");
  });
  epoch_.loan->socket.async_wait(stream_descriptor::wait_read,
                                 [this, weak = std::weak_ptr(epoch_.loan)](const auto& error) {
                                   if (weak.lock() && !error) take_loan();
                                 });
}

void NodeMemory::take_loan() {
  unique_fd fd = receive_descriptor(epoch_.loan->socket.native_handle());
  if (!fd) return do_without("the agent that makes it has not lent it");
  try {
    auto segment = Segment::adopt(std::move(fd));
    const auto& ranks = epoch_.plan->own.world_ranks;
    const bool is_ours =
        segment->job() == epoch_.plan->own.job && segment->epoch() == epoch_.plan->own.epoch &&
        std::ranges::all_of(ranks, [&](const int rank) { return segment->local_of(rank) >= 0; });
    if (!is_ours) return do_without("it was made for other ranks");
    epoch_.segment = std::move(segment);
  } catch (const Error& error) {
    return do_without(error.what());
  }
  epoch_.known = true;
  tell_known();
}

/// Goes on without common memory: the node has its own, and TCP to the other nodes of its host.
void NodeMemory::do_without(const std::string& why) {
  warn_("the memory of this host's nodes: " + why, true);
  make(false);
  tell_known();
}

void NodeMemory::tell_known() {
  epoch_.loan.reset();
  for (const auto& then : std::exchange(epoch_.waiting, {})) then();
}

}  // namespace dlaunch::rendezvous
