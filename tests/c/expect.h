/* Checks for the tests in C: one that fails ends the rank, and says where. */
#pragma once

#include <dlaunch/dlaunch.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      fprintf(stderr, "%s:%d: %s does not hold; last message: %s\n", __FILE__, __LINE__, \
              #condition, dl_last_message(NULL));                                        \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)

#define EXPECT_OK(call)                                                            \
  do {                                                                             \
    const dl_status status_ = (call);                                              \
    if (status_ != DL_OK) {                                                        \
      fprintf(stderr, "%s:%d: %s\n  failed (%s): %s\n", __FILE__, __LINE__, #call, \
              dl_status_text(status_), dl_last_message(NULL));                     \
      exit(1);                                                                     \
    }                                                                              \
  } while (0)

/* The call fails so, and this thread's last message has that text in it. */
#define EXPECT_FAILS(expected, text, call)                                                     \
  do {                                                                                         \
    const dl_status status_ = (call);                                                          \
    if (status_ != (expected) || strstr(dl_last_message(NULL), (text)) == NULL) {              \
      fprintf(stderr, "%s:%d: %s\n  was to fail with %s: ...%s...\n  but: %s: %s\n", __FILE__, \
              __LINE__, #call, dl_status_text(expected), (text), dl_status_text(status_),      \
              dl_last_message(NULL));                                                          \
      exit(1);                                                                                 \
    }                                                                                          \
  } while (0)

static inline int is_text(const dl_bytes* bytes, const char* text) {
  return bytes->data != NULL && bytes->size == strlen(text) &&
         memcmp(bytes->data, text, bytes->size) == 0;
}
