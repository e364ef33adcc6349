#pragma once

#include <dlaunch/c/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dl_spawn_options {
  size_t struct_size; /* sizeof(dl_spawn_options). */
  /* After the first failure: how long the others have to notice it by themselves and say what it
   * cost them (0: 500 ms), then, after SIGTERM, to end before SIGKILL (0: 5 s). Negative: none. */
  int64_t failure_grace_ms;
  int64_t shutdown_timeout_ms;
} dl_spawn_options;

/* The first failure of a spawned worker that was not the consequence of another's; or the rank that
 * made another call than the others. */
typedef struct dl_spawn_failure {
  int32_t rank;      /* -1 where no worker failed. */
  int32_t exit_code; /* -1 if a signal ended it. */
  int32_t signal;    /* 0 if it exited. */
} dl_spawn_failure;

/* A worker's program; what it returns is its exit code. */
typedef int (*dl_program)(int rank, void* argument);

/* Starts `count` copies of this process by fork(2), runs program(rank, argument) in each, and
 * returns when all have ended. The workers are a world of their own, which they join by
 * dl_world_init("dlaunch://", ...).
 *
 * When a worker exits with another code than 0 or is killed, the others are told, then ended, and
 * the call fails; `failure`, which may be null, says who (it is written on failure too). No worker
 * outlives the call or this process.
 *
 * DL_MISMATCH where ranks named different roots in a call from which all of them returned, so that
 * their data is wrong, and none has heard of it: found when all have ended; the rank that differs
 * from most is in `failure`.
 *
 * A forked process has the calling thread alone: call it before threads are started. Workers end
 * without running atexit functions. DL_MISUSE for a count out of 1..1024. */
DL_API dl_status dl_spawn(int count, dl_program program, void* argument,
                          const dl_spawn_options* options, dl_spawn_failure* failure);

/* A TCP port that is bound once and kept: nothing is probed, let go and bound again, so nobody can
 * take it in between. For one thread at a time. */
typedef struct dl_listener dl_listener;

/* Binds and listens on `host` (a name or an address; null: 127.0.0.1), port 0..65535; 0 lets the
 * kernel choose. DL_MISUSE for another port, DL_REFUSED when it is busy (and by whom, where /proc
 * lets us see it), DL_UNREACHABLE when `host` is no address of this machine. */
DL_API dl_status dl_listener_open(int port, const char* host, dl_listener** listener);
/* A free port, already bound and listening on loopback: a number alone could be taken by another
 * process before it is used. */
DL_API dl_status dl_find_free_port(dl_listener** listener);
/* Closes what it still holds. Null is fine. */
DL_API void dl_listener_free(dl_listener* listener);
DL_API int dl_listener_port(const dl_listener* listener); /* -1 for null. */
/* The listening socket, close-on-exec; -1 after dl_listener_release.
 * In C: -1 for null. */
DL_API int dl_listener_fd(const dl_listener* listener);
/* Hands the socket over: the caller closes it.
 * In C: -1 for null, and the second time. */
DL_API int dl_listener_release(dl_listener* listener);

/* *is_free becomes 1 if this process could bind the port now, on every address of the machine. A
 * socket that is bound and does not listen, one for IPv6 alone, one on 127.0.0.5 alone, and
 * connections that are still in TIME_WAIT all make it busy; so does a privileged port without the
 * privilege. The answer may be wrong a moment later: to have a port, bind it (dl_listener). Port 0
 * stands for any and is free. DL_MISUSE out of 0..65535. */
DL_API dl_status dl_is_free_port(int port, int* is_free);

/* Tells the launcher that the job goes on. As soon as one rank of a job has said so, nothing else
 * counts as progress for `dlaunch --stall-timeout`: the job is ended where no rank says it again in
 * time. So call it where work is done, once a step, say, and not on a thread that only waits.
 *
 * *heard becomes 0 where nobody listens: without a launcher, or where it was not asked for a limit.
 * Takes a few microseconds and never waits. From any thread; it reads the environment (getenv).
 * In C: `heard` may be null. */
DL_API dl_status dl_report_progress(int* heard);

/* Asks the launcher not to end the job before so long from now: to save what was computed takes
 * longer than until the deadline (`dlaunch --deadline`). All nodes put it off, as far as
 * `--deadline-latest` allows, never beyond the end that the scheduler has told. What was granted
 * before stays. To be called before the deadline, on one rank or on all.
 *
 * *heard becomes 0 where nobody listens, or the launcher has not read what it was told before; else
 * *heard becomes 1, which does not say that there is so much time: the launcher says where there is
 * less. Never waits. From any thread; it reads the environment (getenv).
 * In C: `heard` may be null. A negative time is DL_MISUSE. */
DL_API dl_status dl_extend_deadline(int64_t time_ms, int* heard);

#ifdef __cplusplus
}
#endif
