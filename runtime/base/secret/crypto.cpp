#include "runtime/base/secret/crypto.hpp"

#include "runtime/base/os/own_library.hpp"

#ifdef DLAUNCH_STATIC
extern "C" dlaunch::Crypto* dlaunch_crypto(const char* version, std::string* why);
#endif

namespace dlaunch {
namespace {

Crypto& load() {
  std::string why;
#ifdef DLAUNCH_STATIC
  CryptoEntry* const entry = dlaunch_crypto;  // The program can load nothing, and holds it.
#else
  auto* const entry =
      reinterpret_cast<CryptoEntry*>(own_library("libdlaunch_tls.so.0", "dlaunch_crypto", why));
#endif
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
