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

int c_park_some(int peer) {
  enum { SOME = 8 };
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

int c_started(void) {
  float value = 1;
  dl_work* work = NULL;
  int good = dl_start_all_reduce(comm, DL_VIEW(&value, 1), dl_op(DL_SUM), &work, DL_HERE) == DL_OK;
  good = dl_work_wait(work) == DL_OK && good;
  dl_work_free(work);
  return good && value == 2;
}
