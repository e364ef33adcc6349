#include "packaging/python-torch/extension/started.hpp"

#include "packaging/python-torch/extension/errors.hpp"

#include <memory>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy.h>

namespace dlaunch::torch_backend {
namespace {

Failure failure_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    const Errc code = known.errc();
    if (code == Errc::misuse || code == Errc::unsupported) return Failure::none;
    if (code == Errc::timeout) return Failure::timeout;
    return code == Errc::peer_lost || code == Errc::revoked ? Failure::remote : Failure::other;
  } catch (...) {
    return Failure::other;
  }
}

}  // namespace

bool Started::advance(Clock::duration limit) {
  if (is_complete()) return true;
  for (; next_ < works.size(); ++next_) {
    if (!works[next_].wait_for(limit)) return false;
  }
  settle();
  return true;
}

bool Started::look() {
  if (is_complete()) return true;
  while (next_ < works.size() && works[next_].done()) ++next_;
  if (next_ < works.size()) return false;
  settle();
  return true;
}

void Started::finish() {
  if (!is_complete()) settle();
}

void Started::settle() {
  std::exception_ptr first;
  int source = -1;
  for (Work& work : works) {
    try {
      work.wait();
      if (kind == Kind::receive) {
        if (const auto what = work.received()) source = what->source;
      }
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  end(first, source);
}

void Started::on_complete(std::function<void()> then) {
  struct Left {
    std::atomic<std::size_t> count;
    std::mutex mutex;
    std::exception_ptr first;
    std::function<void()> then;
  };
  const auto left = std::make_shared<Left>();
  left->count = works.size();
  left->then = std::move(then);
  for (Work& work : works) {
    // The Started outlives its calls: its group holds it until they are complete.
    work.on_complete([this, left](std::exception_ptr error) {
      if (error) {
        const std::lock_guard lock(left->mutex);
        if (!left->first) left->first = error;
      }
      if (--left->count > 0) return;
      end(left->first);
      std::exchange(left->then, nullptr)();
    });
  }
}

/// Beside autograd, as the call itself writes the others.
void Started::copy_results() noexcept {
  const at::AutoDispatchBelowADInplaceOrView beside_autograd;
  for (const auto& [result, memory] : copies_) result.copy_(memory);
}

void Started::end(std::exception_ptr error, int source) {
  const std::lock_guard lock(mutex_);
  if (is_complete()) return;
  if (error) {
    auto none = Failure::none;
    failure_->compare_exchange_strong(none, failure_of(error));
    error_ = translated(error);
  }
  if (!error) copy_results();
  source_ = source;
  complete_.store(true, std::memory_order_release);
}

}  // namespace dlaunch::torch_backend
