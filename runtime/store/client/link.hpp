#pragma once

#include "runtime/base/os/home_process.hpp"
#include "runtime/store/client/carrier.hpp"
#include "runtime/store/client/client.hpp"
#include "runtime/store/client/watched.hpp"
#include "runtime/store/session/client_session.hpp"

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include <sys/types.h>

namespace dlaunch::store {

/// The layer below the client's operations: a ClientSession's socket, which only the callers read.
/// The first to wait reads for all (the leader); when it has its answer, another takes over. Any
/// thread may call.
class Link final : public Carrier {
 public:
  Link(unique_fd connected, Client::Options options, Client::OnPush on_push,
       Clock::time_point deadline);
  ~Link() override;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Reply call(wire::Type type, BytesView payload, Clock::time_point deadline,
             const std::string& what) override;
  std::uint64_t subscribe(std::string_view key) override;
  KeyChange next_change(std::uint64_t subscription, Clock::time_point deadline,
                        const std::string& what) override;
  void require_ours() const override;
  const std::string& peer() const override { return options_.peer_name; }
  Clock::duration patience() const override { return options_.timeout; }
  bool outlives_us() const override { return true; }

  void dispatch();
  void tell(wire::Type type, BytesView payload);

  int fd() const { return fd_.load(); }
  const wire::Welcome& welcome() const { return session_.welcome(); }

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Subscription {
    explicit Subscription(std::string_view key) : watched(std::string(key)) {}

    Watched watched;
    std::condition_variable wake;
  };
  struct Push {
    wire::FrameHeader header;
    Bytes payload;
    std::vector<unique_fd> descriptors;
  };

  /// While it lives nobody else reads. Made and destroyed under the lock.
  class Leading {
   public:
    explicit Leading(Link& link);
    ~Leading();

   private:
    Link& link_;
  };

  Lock lock() const;
  template <class Ready>
  bool wait_until(Lock& lock, std::condition_variable& wake, Clock::time_point deadline,
                  Ready ready);
  void lead(Lock& lock, Clock::time_point deadline);
  void hand_over();
  void fail(const Error& error);
  void take_events(Lock& lock);
  void take_watch_reply(Subscription& subscription, const wire::FrameHeader& header,
                        BytesView payload);
  bool send_queued();
  void flush();
  void greet(Lock& lock, Clock::time_point deadline);
  void hear_line(Lock& lock);
  void reconnect(Lock& lock, Clock::time_point deadline);

  const Client::Options options_;
  const Client::OnPush on_push_;
  const HomeProcess home_;
  const pid_t owner_;  ///< Its pid, to be told.
  home_fd socket_;
  unique_fd kick_;  ///< Tells the leader that there is more to send than the socket took.
  std::atomic<int> fd_ = -1;

  mutable std::mutex mutex_;
  ClientSession session_;
  bool welcomed_ = false;  ///< By any connection, so that it is dlaunch that is there.
  std::map<std::uint64_t, Subscription> subscriptions_;
  std::list<std::condition_variable*> followers_;
  bool leading_ = false;
  std::optional<Error> failure_;  ///< The final error: nothing works after it.
};

}  // namespace dlaunch::store
