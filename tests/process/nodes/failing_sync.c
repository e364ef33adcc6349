/* Preloaded into a program: its files cannot be synced once there is a file of the name
 * FAILING_SYNC, and not be written at a place once there is one of the name READ_ONLY, as when the
 * kernel has made their file system read-only. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int is_there(const char* variable) {
  const char* const name = getenv(variable);
  return name != NULL && access(name, F_OK) == 0;
}

static int sync_by(long call, int fd) {
  if (!is_there("FAILING_SYNC")) return (int)syscall(call, fd);
  errno = EIO;
  return -1;
}

int fsync(int fd) { return sync_by(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_by(SYS_fdatasync, fd); }

ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t at) {
  if (!is_there("READ_ONLY")) return syscall(SYS_pwrite64, fd, bytes, size, at);
  errno = EROFS;
  return -1;
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
  return pwrite64(fd, bytes, size, at);
}
