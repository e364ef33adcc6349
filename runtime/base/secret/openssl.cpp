#include "runtime/base/secret/openssl.hpp"

#include <dlaunch/error.hpp>

#include <array>

#include <dlfcn.h>
#include <openssl/opensslv.h>

namespace dlaunch::openssl {
namespace {

std::string loader_text() {
  const char* text = ::dlerror();
  return text == nullptr ? "no reason given" : text;
}

}  // namespace

Library::Library(const std::string& name)
    : file_("lib" + name + ".so." + std::to_string(OPENSSL_SHLIB_VERSION)),
      handle_(::dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  throw Error(Errc::unsupported,
              "a secret needs OpenSSL " + std::to_string(OPENSSL_SHLIB_VERSION) +
                  " (package libssl3), which cannot be loaded: " + loader_text());
}

Symbol Library::operator[](const char* function) const {
  void* address = ::dlsym(handle_, function);
  if (address == nullptr) {
    throw Error(Errc::unsupported, file_ + " is no OpenSSL that can be used: " + loader_text());
  }
  return Symbol(address);
}

const Crypto& crypto() {
  static const Crypto loaded;
  return loaded;
}

std::string complaint() {
  const unsigned long code = crypto().ERR_peek_error();
  if (code == 0) return "no reason given";
  std::array<char, 256> text{};
  crypto().ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

}  // namespace dlaunch::openssl
