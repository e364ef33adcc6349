#include "runtime/store/tls/tls.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::store {
namespace {

using Acceptors = std::shared_ptr<const std::vector<std::unique_ptr<TlsAcceptor>>>;

/// A client names its job but not its key, and a handshake takes one key. So a client hello that
/// does not fit the first key is given to an end with the next key; nothing has been answered by
/// then. A stranger gets the same answer as if there were one key.
class AnyKeyChannel final : public ServerChannel {
 public:
  explicit AnyKeyChannel(Acceptors acceptors)
      : acceptors_(std::move(acceptors)), channel_(acceptors_->front()->accept()) {}

  Fed feed(BytesView in, Bytes& plain, Bytes& out) noexcept override {
    const std::size_t before = out.size();
    if (may_change()) hello_.insert(hello_.end(), in.begin(), in.end());
    Fed fed = channel_->feed(in, plain, out);
    while (fed == Fed::broken && trouble() == Trouble::unproven && may_change()) {
      out.resize(before);
      channel_ = (*acceptors_)[++key_]->accept();
      fed = channel_->feed(hello_, plain, out);
    }
    if (out.size() > before && !std::exchange(answered_, true)) Bytes().swap(hello_);
    return fed;
  }
  bool seal(BytesView plain, Bytes& out) noexcept override { return channel_->seal(plain, out); }
  bool established() const noexcept override { return channel_->established(); }
  const std::string& identity() const noexcept override { return channel_->identity(); }
  Trouble trouble() const noexcept override { return channel_->trouble(); }
  std::string reason() const noexcept override { return channel_->reason(); }
  std::size_t key() const noexcept override { return key_; }

 private:
  bool may_change() const { return !answered_ && key_ + 1 < acceptors_->size(); }

  const Acceptors acceptors_;
  std::unique_ptr<TlsChannel> channel_;
  std::size_t key_ = 0;
  Bytes hello_;  ///< What has arrived, until it is answered.
  bool answered_ = false;
};

std::unique_ptr<TlsAcceptor> accept_tls(KeyOfJob key_of) {
  const auto find = [key_of = std::move(key_of)](std::string_view job, auto to, std::string& why) {
    try {
      const Key key = key_of(job);
      std::ranges::copy(key.bytes(), to.begin());
      return true;
    } catch (const std::exception& error) {
      why = error.what();
      return false;
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
