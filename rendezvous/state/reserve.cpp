#include "rendezvous/state/reserve.hpp"

#include "runtime/base/os/unique_fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::rendezvous {

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
