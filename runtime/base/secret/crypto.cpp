#include "runtime/base/secret/crypto.hpp"

#include "runtime/base/os/own_library.hpp"

namespace dlaunch {
namespace {

Crypto& load() {
  std::string why;
  auto* const entry =
      reinterpret_cast<CryptoEntry*>(own_library("libdlaunch_tls.so.0", "dlaunch_crypto", why));
  Crypto* const found = entry != nullptr ? entry(DLAUNCH_VERSION, &why) : nullptr;
  if (found != nullptr) return *found;
  throw Error(Errc::unsupported, "a secret needs OpenSSL 3 (package libssl3), and " + why);
}

}  // namespace

Crypto& crypto() {
  static Crypto& loaded = load();
  return loaded;
}

}  // namespace dlaunch
