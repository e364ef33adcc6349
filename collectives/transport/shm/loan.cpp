#include "collectives/transport/shm/loan.hpp"

#include "runtime/base/os/random.hpp"

#include <cerrno>

#include <sys/uio.h>
#include <unistd.h>

namespace dlaunch::transport {
namespace {

/// A number that a reader finds in this process and in no other.
std::uint64_t& own_number() {
  static std::uint64_t number = random_number();
  return number;
}

}  // namespace

void offer_loans(RankBlock& lender) {
  std::uint64_t& number = own_number();
  lender.lender.number.store(number);
  lender.lender.address.store(reinterpret_cast<std::uintptr_t>(&number));
  lender.lender.pid.store(::getpid());
}

bool may_borrow(const RankBlock& lender) noexcept {
  std::uint64_t number = 0;
  return borrow(lender, lender.lender.address.load(),
                std::as_writable_bytes(std::span(&number, 1))) &&
         number == lender.lender.number.load();
}

bool borrow(const RankBlock& lender, std::uint64_t address, std::span<std::byte> to) noexcept {
  while (!to.empty()) {
    const iovec local{to.data(), to.size()};
    const iovec remote{reinterpret_cast<void*>(address), to.size()};  // NOLINT: another process's.
    const auto read = ::process_vm_readv(lender.lender.pid.load(), &local, 1, &remote, 1, 0);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return false;
    to = to.subspan(static_cast<std::size_t>(read));
    address += static_cast<std::uint64_t>(read);
  }
  return true;
}

}  // namespace dlaunch::transport
