#pragma once

#include <dlaunch/dlaunch.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The calls of hot_path_rank through the C API: whether they succeeded. */
int c_begin(void);
void c_end(void);
/* Parks messages, as park_some does. */
int c_park_some(int peer);
int c_messages(int peer);
int c_windows(int peer);
int c_exchanges(int peer);
int c_started(void);

#ifdef __cplusplus
}
#endif
