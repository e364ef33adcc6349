/* Sets a key, makes a named pipe, and reads the key when that is opened: keeps_key PIPE */
#include <dlaunch/dlaunch.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char** argv) {
  dl_world* world = NULL;
  dl_store* store = NULL;
  dl_bytes found = {0};
  if (argc != 2) return 64;
  dl_status status = dl_world_from_env(NULL, &world);
  if (status == DL_OK) status = dl_world_store(world, &store);
  if (status == DL_OK) status = dl_store_set(store, "kept", "4711", 4);
  if (status == DL_OK) {
    puts("set");
    fflush(stdout);
    alarm(600);
    mkfifo(argv[1], 0600);
    close(open(argv[1], O_RDONLY));
    status = dl_store_get(store, "kept", &found);
  }
  if (status != DL_OK) {
    fprintf(stderr, "keeps_key: %s\n", dl_last_message(NULL));
    return 1;
  }
  if (found.size != 4 || memcmp(found.data, "4711", 4) != 0) {
    fprintf(stderr, "keeps_key: the key is not what it was\n");
    return 1;
  }
  puts("kept 4711");
  dl_bytes_free(&found);
  dl_store_free(store);
  dl_world_free(world);
  return 0;
}
