#include "collectives/transport/shm/loan.hpp"

#include "runtime/base/os/random.hpp"

#include <array>
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

Borrowed borrow_first(const RankBlock& lender, std::uint64_t address,
                      std::span<std::byte> to) noexcept {
  std::uint64_t number = 0;
  const std::array local{iovec{&number, sizeof number}, iovec{to.data(), to.size()}};
  const std::array remote{
      iovec{reinterpret_cast<void*>(lender.lender.address.load()), sizeof number},  // NOLINT
      iovec{reinterpret_cast<void*>(address), to.size()}};  // NOLINT: another process's.
  const pid_t pid = lender.lender.pid.load();
  ssize_t read = 0;
  do {
    read = ::process_vm_readv(pid, local.data(), local.size(), remote.data(), remote.size(), 0);
  } while (read < 0 && errno == EINTR);
  if (read < static_cast<ssize_t>(sizeof number) || number != lender.lender.number.load()) {
    return Borrowed::refused;
  }
  const auto copied = static_cast<std::size_t>(read) - sizeof number;
  return borrow(lender, address + copied, to.subspan(copied)) ? Borrowed::all : Borrowed::lost;
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
