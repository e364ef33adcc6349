#pragma once

#include "runtime/base/os/home_process.hpp"
#include "runtime/store/client/client.hpp"
#include "runtime/world/by_hand/rank_host.hpp"
#include "runtime/world/member/membership.hpp"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace dlaunch {

/// A member's connection to the host of its store: Membership over store::Client. It belongs to the
/// process that made it: a forked child must not talk on the parent's connection, and every call of
/// one throws Error{misuse}.
///
/// Destroyed in the course of events, it says goodbye; destroyed while an exception unwinds, it
/// breaks off, so that the others learn of a loss.
class MemberLink final : public Membership {
 public:
  struct Options {
    wire::Hello hello;
    std::string peer_name;     ///< "the agent", "rank 0's store at h:p".
    Notice notice{};           ///< Shown while its first word is awaited.
    bool is_agent = false;     ///< The other side reads our stdout and stderr.
    Clock::duration linger{};  ///< How long a hosting rank waits for the others' goodbyes.
  };
  /// Says HELLO and waits for WELCOME and the GRANT that follows it. `host`, where this process
  /// hosts the store itself, lives as long as the link.
  MemberLink(unique_fd connected, Options options, std::unique_ptr<RankHost> host,
             Clock::time_point deadline);
  ~MemberLink() override;

  /// The store behind the link. Throws Error{misuse} in a forked child.
  store::Client& client() const;
  /// Numeric address of this process's end of the connection, where it is TCP.
  std::optional<std::string> local_host() const;
  bool is_agent() const noexcept { return options_.is_agent; }
  void tell_ready() noexcept;
  /// The world cannot form: asks the host to tell all members. Returns the host's sentence for
  /// everyone, or `sentence` if it does not answer.
  Error give_up(Errc code, const std::string& sentence);
  /// Reads the messages that have arrived on a broken connection.
  void read_last_words() noexcept;
  /// An abort that has arrived, as the error to throw in place of a broken connection's.
  std::optional<Error> aborted() const;
  /// The first loss told so far, if any.
  std::optional<PeerLoss> first_loss() const;

  int fd() const override;
  std::vector<PeerLoss> losses() override;
  void report(const Error& error, const Claim& claim) noexcept override;
  void inquire(const std::vector<int>& ranks) noexcept override;
  std::optional<std::map<int, SeenDoing>> doing() const override;
  unique_fd take_listener() override;
  std::shared_ptr<Segment> segment() override;
  std::optional<Key> data_key() const override;
  void drain_output(Clock::time_point deadline) override;

  /// The data plane's listener where no agent granted one.
  void keep_listener(unique_fd listener);
  /// Keeps the memory that the ranks of a host share if no agent granted it.
  void keep_segment(std::shared_ptr<Segment> segment);

 private:
  struct News;
  bool is_ours() const noexcept;
  void require_ours() const;
  void map_segment();
  bool wait_for(const std::function<bool()>& done, Clock::time_point deadline);

  const HomeProcess home_;
  const pid_t owner_;  ///< Its pid, to be told.
  Options options_;
  std::shared_ptr<News> news_;
  std::unique_ptr<RankHost> host_;
  std::unique_ptr<store::Client> client_;
};

}  // namespace dlaunch
