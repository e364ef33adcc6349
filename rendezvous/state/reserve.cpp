#include "rendezvous/state/reserve.hpp"

#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"

#include <dlaunch/error.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::rendezvous {

void Reserve::require_possible(const std::string& state_file) {
  rlimit limit{};
  // RLIM_INFINITY is the most there is.
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= rlim_t{bytes}) return;
  throw Error(Errc::refused,
              "the state file " + name_in_quotes(state_file) +
                  " cannot be kept: files may have no more than " + std::to_string(limit.rlim_cur) +
                  " bytes here (ulimit -f), and its reserve has " + std::to_string(bytes));
}

bool Reserve::take() {
  const unique_fd file(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return false;
  if (::posix_fallocate(file.get(), 0, bytes) == 0) return true;
  // A part of the room would be missed elsewhere.
  give_up();
  return false;
}

void Reserve::give_up() { ::truncate(path_.c_str(), 0); }

}  // namespace dlaunch::rendezvous
