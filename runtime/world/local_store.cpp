#include "runtime/world/local_store.hpp"

#include "runtime/base/phrases.hpp"
#include "runtime/store/client/carrier.hpp"
#include "runtime/store/client/watched.hpp"
#include "runtime/store/native/native_spaces.hpp"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace dlaunch {
namespace {

constexpr std::uint64_t own_client = 1;

/// Lets the one client in, and keeps the answers for it.
struct OneClient final : store::Host, store::Outbox {
  std::variant<wire::Welcome, Refusal> admit(store::ConnectionId, const wire::Hello&) override {
    return wire::Welcome{};
  }
  void on_other_version(store::ConnectionId, std::uint32_t) override {}
  void on_message(store::ConnectionId, const wire::FrameHeader&, BytesView) override {}
  void on_closed(store::ConnectionId, bool) override {}

  Bytes& buffer() override { return answers; }
  Bytes& ahead() override { return answers; }
  void share(std::shared_ptr<const Bytes> block) override {
    answers.insert(answers.end(), block->begin(), block->end());
  }
  void close() override {}
  bool congested() const override { return false; }
  void fail() noexcept override {}

  Bytes answers;
};

/// A session of the native protocol, called under a lock. A caller whose deadline passes makes the
/// session answer everything that is due.
class InProcess final : public store::Carrier {
 public:
  InProcess() {
    Bytes greeting;
    wire::encode_preface(greeting);
    wire::encode_frame(greeting, {}, wire::Hello{});
    session_->feed(greeting, Clock::now());
    client_.answers.clear();
  }

  Reply call(wire::Type type, BytesView payload, Clock::time_point, const std::string&) override {
    std::unique_lock lock(mutex_);
    std::optional<Reply> reply;
    const std::uint64_t request = ++last_request_;
    calls_.emplace(request, &reply);
    ask(request, type, payload);
    wait_until(lock, Clock::time_point::max(), [&] { return reply.has_value(); });
    return *std::move(reply);
  }

  std::uint64_t subscribe(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    const std::uint64_t request = ++last_request_;
    watches_.emplace(request, store::Watched(std::string(key)));
    ask(request, wire::Watch::type, wire::payload_of(wire::Watch{key}));
    return request;
  }
  KeyChange next_change(std::uint64_t subscription, Clock::time_point deadline,
                        const std::string& what) override {
    std::unique_lock lock(mutex_);
    store::Watched& watched = watches_.at(subscription);
    const auto start = Clock::now();
    if (!wait_until(lock, deadline, [&] { return watched.has_news(); })) {
      throw Error(Errc::timeout, what + ": no change within " + seconds_text(Clock::now() - start));
    }
    return watched.take();
  }

  void require_ours() const override {}
  const std::string& peer() const override { return name_; }
  Clock::duration patience() const override { return Clock::duration::max(); }
  bool outlives_us() const override { return false; }

 private:
  void ask(std::uint64_t request, wire::Type type, BytesView payload) {
    Bytes frame;
    wire::encode_frame(frame, {0, type, 0, request, 0}, payload);
    session_->feed(frame, Clock::now());
    take_answers();
  }

  void take_answers() {
    if (client_.answers.empty()) return;
    const Bytes answers = std::exchange(client_.answers, {});
    for (BytesView rest = answers; !rest.empty();) {
      const wire::FrameHeader header = wire::decode_header(rest);
      take(header, rest.subspan(wire::header_bytes, header.length));
      rest = rest.subspan(wire::header_bytes + header.length);
    }
    answered_.notify_all();
  }
  void take(const wire::FrameHeader& header, BytesView payload) {
    if (const auto call = calls_.find(header.request); call != calls_.end()) {
      *call->second = Reply{header, Bytes(payload.begin(), payload.end())};
      calls_.erase(call);
      return;
    }
    const auto watch = watches_.find(header.request);
    const auto change = wire::decode<wire::Changed>(payload);
    if (watch == watches_.end() || !change) return;
    std::optional<Bytes> value;
    if (change->value) value.emplace(change->value->begin(), change->value->end());
    watch->second.changed({change->kind, std::string(change->key), std::move(value)});
  }

  /// False when the deadline has passed and `ready` is still false.
  template <class Ready>
  bool wait_until(std::unique_lock<std::mutex>& lock, Clock::time_point deadline, Ready ready) {
    while (!ready()) {
      const auto now = Clock::now();
      if (now >= deadline) return false;
      const auto due = spaces_.next_deadline().value_or(deadline);
      if (due <= now) {
        spaces_.tick(now);
        take_answers();
      } else if (const auto next = std::min(due, deadline); next == Clock::time_point::max()) {
        answered_.wait(lock);
      } else {
        answered_.wait_until(lock, next);
      }
    }
    return true;
  }

  const std::string name_ = "the store of this process";
  std::mutex mutex_;
  std::condition_variable answered_;
  OneClient client_;
  store::NativeSpaces spaces_{client_, {}};
  const std::unique_ptr<store::Session> session_ = spaces_.open(own_client, client_);
  std::uint64_t last_request_ = 0;
  std::map<std::uint64_t, std::optional<Reply>*> calls_;  ///< Not yet answered, by request.
  std::map<std::uint64_t, store::Watched> watches_;       ///< By request.
};

}  // namespace

LocalStore::LocalStore() : JobStore(std::make_unique<InProcess>()) {}

}  // namespace dlaunch
