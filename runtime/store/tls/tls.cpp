#include "runtime/store/tls/tls.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::store {

std::unique_ptr<TlsChannel> connect_tls(const std::string& job, const Key& key) {
  if (job.size() > TlsChannel::job_bytes_max) {
    throw Error(Errc::misuse, "a job id of " + std::to_string(job.size()) + " bytes is too long");
  }
  std::string why;
  if (auto channel = crypto().connect(job, key.bytes(), why)) return channel;
  throw Error(Errc::internal, why);
}

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
