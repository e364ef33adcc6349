#include <dlaunch/error.hpp>

namespace dlaunch {
namespace {

class Category : public std::error_category {
 public:
  const char* name() const noexcept override { return "dlaunch"; }
  std::string message(int value) const override { return to_string(static_cast<Errc>(value)); }
};

}  // namespace

const char* to_string(Errc code) noexcept {
  switch (code) {
    case Errc::timeout:
      return "timeout";
    case Errc::peer_lost:
      return "peer lost";
    case Errc::aborted:
      return "aborted";
    case Errc::mismatch:
      return "mismatch";
    case Errc::unreachable:
      return "unreachable";
    case Errc::refused:
      return "refused";
    case Errc::misuse:
      return "misuse";
    case Errc::revoked:
      return "revoked";
    case Errc::unsupported:
      return "unsupported";
    case Errc::version:
      return "version";
    case Errc::internal:
      return "internal";
    case Errc::unauthenticated:
      return "not authenticated";
  }
  return "unknown error";  // A code read off the wire may be newer than this build.
}

const std::error_category& error_category() noexcept {
  static const Category category;
  return category;
}

std::error_code make_error_code(Errc code) noexcept {
  return {static_cast<int>(code), error_category()};
}

// std::system_error appends ": timeout" to its text; what() gives the sentence alone.
Error::Error(Errc code, const std::string& sentence)
    : std::system_error(make_error_code(code), sentence), sentence_(sentence) {}

Error::~Error() = default;

}  // namespace dlaunch
