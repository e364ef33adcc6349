#pragma once

#include "runtime/base/notice.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/secret/secret.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace dlaunch::store {

/// Speaks the native protocol over one connection; no thread of its own. Any thread may call; a
/// waiting caller reads for all of them (leader and followers). If `reconnect` is given, a broken
/// connection is opened again and unanswered requests are repeated under the same session.
class Client : public Store {
 public:
  struct Options {
    wire::Hello hello;
    Clock::duration timeout = std::chrono::seconds(60);  ///< For calls that take no deadline.
    std::function<unique_fd(Clock::time_point deadline)> reconnect;
    /// The key of hello.job: the connection goes through TLS, and the server has to know it, too.
    std::optional<Key> key;
    Notice notice;                        ///< To whoever waits for the server's first word.
    std::string peer_name = "the store";  ///< For messages: "the agent", "rank 0's store at h:p".
  };
  /// Called for every frame that nobody asked for, by whichever thread reads it, even before the
  /// constructor has returned. It may use the client, and must not throw.
  using OnPush = std::function<void(const wire::FrameHeader&, BytesView, std::vector<unique_fd>)>;

  /// Sends preface and HELLO, waits for WELCOME; throws what the server refused with.
  Client(unique_fd connected, Options options, OnPush on_push, Clock::time_point deadline);
  ~Client() override;  ///< Says goodbye.

  const wire::Welcome& welcome() const;
  /// To poll beside other descriptors; when readable, call `dispatch`.
  int fd() const;
  /// Reads and dispatches what has arrived, without blocking. Throws Errc::peer_lost on EOF.
  void dispatch();
  /// Sends a message without waiting for an answer. Never throws.
  void tell(wire::Type type, BytesView payload) noexcept;

  void set(std::string_view key, BytesView value) override;
  void set_leased(std::string_view key, BytesView value, Clock::duration lease) override;
  std::optional<Bytes> get(std::string_view key) override;
  Bytes wait(std::string_view key, Clock::time_point deadline) override;
  void wait_all(std::span<const std::string> keys, Clock::time_point deadline) override;
  std::int64_t add(std::string_view key, std::int64_t delta) override;
  bool compare_set(std::string_view key, std::optional<BytesView> expected,
                   BytesView desired) override;
  std::size_t append(std::string_view key, BytesView tail) override;
  bool erase(std::string_view key) override;
  std::vector<std::string> list(std::string_view prefix) override;
  std::vector<std::optional<Bytes>> multi_get(std::span<const std::string> keys) override;
  void multi_set(std::span<const std::string> keys, std::span<const Bytes> values) override;
  void push(std::string_view queue, BytesView value) override;
  Bytes pop(std::string_view queue, Clock::time_point deadline) override;
  std::optional<Bytes> try_pop(std::string_view queue) override;
  std::size_t queue_size(std::string_view queue) override;
  KeyChange watch(std::string_view key, Clock::time_point deadline) override;
  void barrier(std::string_view name, int contributor, int count,
               Clock::time_point deadline) override;
  std::vector<Bytes> all_gather(std::string_view name, int contributor, int count, BytesView blob,
                                Clock::time_point deadline) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dlaunch::store
