#include "runtime/world/by_hand/rank_host.hpp"

#include "runtime/base/os/socket.hpp"
#include "runtime/store/server/server.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <fcntl.h>

namespace dlaunch {

namespace asio = boost::asio;
using store::ConnectionId;

/// Members without a lock are touched by the io thread alone.
class RankHost::State final : public store::Host {
 public:
  explicit State(Options options)
      : options_(std::move(options)), roster_(options_.world_size), server_(io_, *this) {
    for (unique_fd& listener : options_.listeners) {
      server_.listen(std::move(listener), {.native = true, .c10d = false});
    }
    thread_ = std::jthread([this] { serve(); });
  }

  ~State() override {
    asio::post(io_, [this] {
      server_.stop();
      keep_running_.reset();
      io_.stop();
    });
    thread_.join();
  }

  std::variant<wire::Welcome, Refusal> admit(ConnectionId who, const wire::Hello& hello) override {
    if (!hello.job.empty() && hello.job != options_.job) {
      return Refusal{Errc::mismatch, "another job's store listens here"};
    }
    if (failure_) return *failure_;
    if (hello.member) {
      if (auto why = roster_.admit(*hello.member)) {
        tell_refusal(*why);
        return Refusal{Errc::refused, *why};
      }
      members_.emplace(who, *hello.member);
      count(+1);
      // Done after WELCOME, which this function's answer becomes.
      asio::post(io_, [this, who, told = refusals_.size()] {
        grant(who);
        for (std::size_t i = 0; i < told && !formed_; ++i) {
          server_.push(who, wire::Type::warning, refusals_[i]);
        }
      });
    }
    return wire::Welcome{.job = options_.job};
  }

  void on_message(ConnectionId who, const wire::FrameHeader& header, BytesView payload) override {
    const auto from = members_.find(who);
    if (from == members_.end()) return;
    if (header.type == wire::Type::ready) formed_ = true;
    if (header.type == wire::Type::abort) {
      if (const auto abort = wire::decode<wire::Abort>(payload)) fail(abort->code, abort->sentence);
    }
    if (header.type != wire::Type::report) return;
    if (auto report = wire::decode<wire::Report>(payload)) {
      const std::lock_guard lock(mutex_);
      claims_.emplace(from->second.rank, std::move(report->claim));
    }
  }

  /// The rank hears it itself; nobody here reads its output.
  void on_other_version(ConnectionId, std::uint32_t) override {}
  void on_closed(ConnectionId who, bool goodbye) override {
    const auto gone = members_.find(who);
    if (gone == members_.end()) return;
    const Member member = gone->second;
    members_.erase(gone);
    count(-1);
    if (goodbye) departed_.insert(member.rank);
    if (const auto told = told_.find(member.rank); told != told_.end()) {
      tell_lost(told->second.first, told->second.second);
    } else if (goodbye) {
      return;
    } else if (!options_.owner_tells_losses) {
      lose({member.rank, member.hostname,
            "its connection closed without a goodbye: it crashed, or was killed"});
    }
  }

  /// The owner learns of a process's end in another way, before or after the connection's end; a
  /// goodbye may still be unread.
  void tell_lost(const PeerLoss& loss, bool failed) {
    if (departed_.contains(loss.rank) && !failed) return;
    const bool connected = std::ranges::any_of(
        members_, [&](const auto& entry) { return entry.second.rank == loss.rank; });
    if (connected) {
      told_.emplace(loss.rank, std::pair(loss, failed));
    } else {
      lose(loss);
    }
  }

  void fail(Errc code, std::string sentence) {
    if (failure_) return;
    if (code == Errc::timeout) {
      blame({.fault = Fault::absent, .ranks = roster_.absent(Claim::ranks_max)});
    }
    if (code == Errc::timeout) sentence += ": " + roster_.attendance();
    failure_ = Refusal{code, sentence};
    const Bytes news = wire::payload_of(wire::Abort{code, sentence});
    const auto members = members_;  // Closing may call back.
    for (const auto& [connection, member] : members) {
      server_.push(connection, wire::Type::abort, news);
      server_.close(connection);
    }
  }

  std::map<int, Claim> claims() {
    const std::lock_guard lock(mutex_);
    return claims_;
  }
  std::optional<Claim> forming_claim() {
    const std::lock_guard lock(mutex_);
    return forming_claim_;
  }

  std::shared_ptr<Segment> segment() {
    const std::lock_guard lock(mutex_);
    return segment_;
  }

  void post(std::function<void()> act) { asio::post(io_, std::move(act)); }
  store::Server& server() { return server_; }

  bool await_departures(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [this] { return present_ == 0; });
  }

 private:
  /// If memory is too short to serve, the world ends and not the process.
  void serve() {
    for (;;) {
      try {
        io_.run();
        return;
      } catch (const std::exception& failure) {
        try {
          fail(Errc::internal, std::string("the store of rank 0 failed: ") + failure.what());
        } catch (const std::exception&) {
          server_.stop();  // The connected members see that it is gone.
        }
      }
    }
  }

  void grant(ConnectionId to) {
    if (const auto plan = std::exchange(options_.segment, std::nullopt)) {
      try {
        auto made = Segment::create(*plan);
        const std::lock_guard lock(mutex_);
        segment_ = std::move(made);
      } catch (const Error&) {
        // The members do without, over TCP: nobody here has a way to tell the user.
      }
    }
    wire::Grant message;
    std::vector<unique_fd> fds;
    if (segment_) fds.emplace_back(::fcntl(segment_->fd(), F_DUPFD_CLOEXEC, 0));
    if (!fds.empty() && !fds.front()) fds.clear();
    message.segment = !fds.empty();
    server_.push(to, wire::Type::grant, wire::payload_of(message), std::move(fds));
  }

  /// Ranks that were accepted, now or later, may wait for just that one.
  void tell_refusal(const std::string& why) {
    if (refusals_.size() == refusals_max) return;
    refusals_.push_back(wire::payload_of(wire::Warning{"a process was turned away: " + why}));
    for (const auto& [connection, member] : members_) {
      server_.push(connection, wire::Type::warning, refusals_.back());
    }
  }

  void lose(const PeerLoss& loss) {
    if (failure_) return;
    if (!formed_) {
      blame({.fault = Fault::lost, .ranks = {loss.rank}});
      fail(Errc::peer_lost, "rank " + std::to_string(loss.rank) + " on " + loss.host +
                                " was lost while the world was forming: " + loss.cause);
      return;
    }
    const Departure how =
        loss.left ? Departure{.kind = Departure::Kind::left} : Departure::because(loss.cause);
    const Bytes news = wire::payload_of(wire::PeerLost{loss.rank, loss.host, how});
    for (const auto& [connection, member] : members_) {
      server_.push(connection, wire::Type::peer_lost, news);
    }
  }

  void blame(Claim claim) {
    const std::lock_guard lock(mutex_);
    if (!forming_claim_) forming_claim_ = std::move(claim);
  }

  void count(int change) {
    {
      const std::lock_guard lock(mutex_);
      present_ += change;
    }
    changed_.notify_all();
  }

  Options options_;
  Roster roster_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> keep_running_{io_.get_executor()};
  store::Server server_;
  std::map<ConnectionId, Member> members_;
  bool formed_ = false;     ///< A rank was ready, so all had come: it had passed their barrier.
  std::set<int> departed_;  ///< Ranks that said goodbye.
  /// Losses told by the owner while the rank was connected.
  std::map<int, std::pair<PeerLoss, bool>> told_;
  static constexpr std::size_t refusals_max = 16;
  std::vector<Bytes> refusals_;
  std::optional<Refusal> failure_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int present_ = 0;
  std::map<int, Claim> claims_;  ///< By rank.
  std::optional<Claim> forming_claim_;
  std::shared_ptr<Segment> segment_;  ///< Written by the io thread alone.

  std::jthread thread_;
};

RankHost::RankHost(Options options) : state_(std::make_unique<State>(std::move(options))) {}
RankHost::~RankHost() = default;

unique_fd RankHost::connect() {
  auto [mine, theirs] = socket_pair();
  adopt(std::move(theirs));
  return std::move(mine);
}

void RankHost::adopt(unique_fd connected) {
  // std::function copies, so the descriptor travels in a shared pointer.
  auto shared = std::make_shared<unique_fd>(std::move(connected));
  state_->post([state = state_.get(), shared] { state->server().adopt(std::move(*shared)); });
}

void RankHost::tell_lost(const PeerLoss& loss, bool failed) {
  state_->post([state = state_.get(), loss, failed] { state->tell_lost(loss, failed); });
}

void RankHost::fail(Errc code, const std::string& sentence) {
  state_->post([state = state_.get(), code, sentence] { state->fail(code, sentence); });
}

std::map<int, Claim> RankHost::claims() { return state_->claims(); }
std::optional<Claim> RankHost::forming_claim() { return state_->forming_claim(); }
std::shared_ptr<Segment> RankHost::segment() { return state_->segment(); }

bool RankHost::await_departures(Clock::time_point deadline) {
  return state_->await_departures(deadline);
}

}  // namespace dlaunch
