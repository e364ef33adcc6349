#pragma once

#include <exception>
#include <string>

#include <c10/util/Exception.h>

/// What Python sees of errors: torch's own classes, with one sentence.
namespace dlaunch::torch_backend {

/// A ValueError: the call itself is wrong.
[[noreturn]] void refuse(const std::string& sentence);
/// A NotImplementedError.
[[noreturn]] void refuse_unsupported(const std::string& sentence);
/// A torch.distributed.DistBackendError.
[[noreturn]] void fail(const std::string& sentence);

/// An error of the library's as torch knows it; any other stays what it is.
std::exception_ptr translated(std::exception_ptr error) noexcept;

/// What `call` returns; its errors translated.
template <class Call>
auto with_torch_errors(Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    std::rethrow_exception(translated(std::current_exception()));
  }
}

}  // namespace dlaunch::torch_backend
