#include "tests/process/calls/hot_path_c.h"

static dl_world* world;
static dl_comm* comm;

int c_begin(void) {
  return dl_world_from_env(NULL, &world) == DL_OK && dl_comm_create(world, "in C", &comm) == DL_OK;
}

void c_end(void) {
  dl_comm_free(comm);
  dl_world_free(world);
}

enum { WINDOW = 16 };

int c_park_some(int peer) {
  enum { SOME = 2 * WINDOW };
  long out = 1, in = 0;
  int good = 1;
  for (int i = 0; i < SOME; ++i)
    good = dl_send(comm, DL_CONST_VIEW(&out, 1), peer, DL_HERE) == DL_OK && good;
  good = dl_send(comm, DL_CONST_VIEW(&out, 1), peer, &DL_OPTIONS(.tag = 1)) == DL_OK && good;
  good = dl_recv(comm, DL_VIEW(&in, 1), peer, NULL, &DL_OPTIONS(.tag = 1)) == DL_OK && good;
  for (int i = 0; i < SOME; ++i)
    good = dl_recv(comm, DL_VIEW(&in, 1), peer, NULL, DL_HERE) == DL_OK && good;
  return good;
}

int c_messages(int peer) {
  long out = 1, in = 0;
  dl_work *receiving = NULL, *sending = NULL;
  int good = dl_irecv(comm, DL_VIEW(&in, 1), peer, &receiving, DL_HERE) == DL_OK;
  good = dl_isend(comm, DL_CONST_VIEW(&out, 1), peer, &sending, DL_HERE) == DL_OK && good;
  good = dl_work_wait(receiving) == DL_OK && dl_work_wait(sending) == DL_OK && good;
  dl_work_free(receiving);
  dl_work_free(sending);
  return good && in == 1;
}

int c_windows(int peer) {
  long out[WINDOW] = {0}, in[WINDOW];
  dl_work* works[2 * WINDOW] = {NULL};
  int good = 1;
  for (int i = 0; i < WINDOW; ++i) {
    good = dl_irecv(comm, DL_VIEW(in + i, 1), peer, works + i, DL_HERE) == DL_OK && good;
    good = dl_isend(comm, DL_CONST_VIEW(out + i, 1), peer, works + WINDOW + i, DL_HERE) == DL_OK &&
           good;
  }
  good = dl_work_wait_all(works, 2 * WINDOW) == DL_OK && good;
  for (int i = 0; i < 2 * WINDOW; ++i) dl_work_free(works[i]);
  return good;
}

int c_exchanges(int peer) {
  long out = 1, in = 0;
  const dl_transfer both[2] = {dl_make_recv(DL_VIEW(&in, 1), peer, 2),
                               dl_make_send(DL_CONST_VIEW(&out, 1), peer, 2)};
  return dl_batch(comm, both, 2, DL_HERE) == DL_OK && in == 1;
}

int c_started(void) {
  float value = 1;
  dl_work* work = NULL;
  int good = dl_start_all_reduce(comm, DL_VIEW(&value, 1), dl_op(DL_SUM), &work, DL_HERE) == DL_OK;
  good = dl_work_wait(work) == DL_OK && good;
  dl_work_free(work);
  return good && value == 2;
}
