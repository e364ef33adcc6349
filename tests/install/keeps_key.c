/* Sets a key, and reads it when a file is there: keeps_key FILE */
#include <dlaunch/dlaunch.h>

#include <stdio.h>
#include <string.h>
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
    while (access(argv[1], F_OK) != 0) usleep(50000);
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
