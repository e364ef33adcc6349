#include "runtime/store/tls/tls.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace dlaunch::store {
namespace {

using Acceptors = std::shared_ptr<const std::vector<std::unique_ptr<TlsAcceptor>>>;

/// A client names its job but not its key, and a handshake takes one key. So a client hello that
/// does not fit the first key is given to an end with the next key; nothing has been answered by
/// then. A stranger gets the same answer as if there were one key.
class AnyKeyChannel final : public ServerChannel {
 public:
  /// Throws std::bad_alloc.
  explicit AnyKeyChannel(Acceptors acceptors) : acceptors_(std::move(acceptors)) { accept(); }

  Fed feed(BytesView in, Bytes& plain, Bytes& out) noexcept override try {
    if (ran_out_) return Fed::broken;
    const std::size_t before = out.size();
    if (may_change()) hello_.insert(hello_.end(), in.begin(), in.end());
    Fed fed = channel_->feed(in, plain, out);
    while (fed == Fed::broken && trouble() == Trouble::unproven && may_change()) {
      out.resize(before);
      ++key_;
      accept();
      fed = channel_->feed(hello_, plain, out);
    }
    if (out.size() > before && !std::exchange(answered_, true)) Bytes().swap(hello_);
    return fed;
  } catch (const std::bad_alloc&) {
    ran_out_ = true;
    return Fed::broken;
  }
  bool seal(BytesView plain, Bytes& out) noexcept override { return channel_->seal(plain, out); }
  bool established() const noexcept override { return channel_->established(); }
  const std::string& identity() const noexcept override { return channel_->identity(); }
  Trouble trouble() const noexcept override {
    return ran_out_ ? Trouble::no_memory : channel_->trouble();
  }
  const std::string& reason() const noexcept override {
    static const std::string out_of_memory = "out of memory";
    return ran_out_ ? out_of_memory : channel_->reason();
  }
  std::size_t key() const noexcept override { return key_; }

 private:
  /// With the key whose turn it is; the present end stays where there is no memory for another.
  void accept() {
    auto next = (*acceptors_)[key_]->accept();
    if (!next) throw std::bad_alloc();
    channel_ = std::move(next);
  }
  bool may_change() const { return !answered_ && key_ + 1 < acceptors_->size(); }

  const Acceptors acceptors_;
  std::unique_ptr<TlsChannel> channel_;
  std::size_t key_ = 0;
  Bytes hello_;  ///< What has arrived, until it is answered.
  bool answered_ = false;
  bool ran_out_ = false;  ///< Of memory.
};

std::unique_ptr<TlsAcceptor> accept_tls(KeyOfJob key_of) {
  const auto find = [key_of = std::move(key_of)](std::string_view job, auto to, std::string& why) {
    using Found = Crypto::Found;
    try {
      try {
        const Key key = key_of(job);
        std::ranges::copy(key.bytes(), to.begin());
        return Found::key;
      } catch (const Error& error) {
        // A key that cannot be derived is not for want of a job.
        if (error.errc() == Errc::internal) return Found::no_memory;
        why = error.what();
        return Found::none;
      }
    } catch (const std::exception&) {
      return Found::no_memory;
    }
  };
  std::string why;
  if (auto acceptor = crypto().make_acceptor(find, why)) return acceptor;
  throw Error(Errc::internal, why);
}

}  // namespace

std::unique_ptr<TlsChannel> connect_tls(const std::string& job, const Key& key) {
  if (job.size() > TlsChannel::job_bytes_max) {
    throw Error(Errc::misuse, "a job id of " + std::to_string(job.size()) + " bytes is too long");
  }
  std::string why;
  if (auto channel = crypto().connect(job, key.bytes(), why)) return channel;
  throw Error(Errc::internal, why);
}

ServerKeys::ServerKeys(const std::vector<KeyOfJob>& keys) {
  std::vector<std::unique_ptr<TlsAcceptor>> acceptors;
  acceptors.reserve(keys.size());
  for (const KeyOfJob& key_of : keys) acceptors.push_back(accept_tls(key_of));
  acceptors_ =
      std::make_shared<const std::vector<std::unique_ptr<TlsAcceptor>>>(std::move(acceptors));
}

std::unique_ptr<ServerChannel> ServerKeys::accept() const {
  return std::make_unique<AnyKeyChannel>(acceptors_);
}

Error error_of(const TlsChannel& channel, const std::string& what) {
  switch (channel.trouble()) {
    case TlsChannel::Trouble::not_tls:
      return Error(Errc::unauthenticated,
                   what +
                       ": it does not speak TLS, so it cannot prove the job's "
                       "secret; was it started with one, and is the port right?");
    case TlsChannel::Trouble::unproven:
      return Error(Errc::unauthenticated, what + ": wrong secret, or no such job there");
    case TlsChannel::Trouble::no_memory:
      return Error(Errc::peer_lost, what + ": memory for TLS ran out here");
    case TlsChannel::Trouble::none:
    case TlsChannel::Trouble::oversized:
    case TlsChannel::Trouble::garbled:
      break;
  }
  return Error(Errc::peer_lost, what +
                                    ": what came over TLS was no answer, or was changed on the "
                                    "way (" +
                                    channel.reason() + ")");
}

}  // namespace dlaunch::store
