/* Preloaded into a program: its files cannot be synced once there is a file of the name
 * FAILING_SYNC. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(void) {
  const char* const name = getenv("FAILING_SYNC");
  return name != NULL && access(name, F_OK) == 0;
}

static int sync_by(long call, int fd) {
  if (!fails()) return (int)syscall(call, fd);
  errno = EIO;
  return -1;
}

int fsync(int fd) { return sync_by(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_by(SYS_fdatasync, fd); }
