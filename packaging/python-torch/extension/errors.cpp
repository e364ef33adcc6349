#include "packaging/python-torch/extension/errors.hpp"

#include "packaging/python-torch/extension/call_site.hpp"

#include <dlaunch/error.hpp>

#include <cstdint>
#include <string_view>

namespace dlaunch::torch_backend {
namespace {

c10::SourceLocation here(const char* function, const char* file, int line) {
  return {function, file, static_cast<std::uint32_t>(line)};
}

template <class Kind>
std::exception_ptr made(const std::string& sentence) {
  return std::make_exception_ptr(Kind(here(__func__, __FILE__, __LINE__), sentence));
}

/// With the line of the program that makes this call, as the library's sentences have it.
std::string with_place(const std::string& sentence) {
  const CallSite place = place_of_program();
  const std::string_view file = place.file;
  if (file.empty()) return sentence;
  return sentence + " [" + std::string(file.substr(file.rfind('/') + 1)) + ":" +
         std::to_string(place.line) + "]";
}

std::exception_ptr made_of(const Error& error) {
  const std::string sentence = error.what();
  switch (error.errc()) {
    case Errc::misuse:
      return made<c10::ValueError>(sentence);
    case Errc::unsupported:
      return made<c10::NotImplementedError>(sentence);
    case Errc::unreachable:
      return made<c10::DistNetworkError>(sentence);
    case Errc::timeout:
    case Errc::peer_lost:
    case Errc::aborted:
    case Errc::mismatch:
    case Errc::refused:
    case Errc::revoked:
    case Errc::version:
    case Errc::internal:
    case Errc::unauthenticated:
      return made<c10::DistBackendError>(sentence);
  }
  return made<c10::DistBackendError>(sentence);
}

}  // namespace

void refuse(const std::string& sentence) {
  std::rethrow_exception(made<c10::ValueError>(with_place(sentence)));
}

void refuse_unsupported(const std::string& sentence) {
  std::rethrow_exception(made<c10::NotImplementedError>(with_place(sentence)));
}

void fail(const std::string& sentence) {
  std::rethrow_exception(made<c10::DistBackendError>(sentence));
}

std::exception_ptr translated(std::exception_ptr error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return made_of(known);
  } catch (...) {
    return error;
  }
}

}  // namespace dlaunch::torch_backend
