#pragma once

#include "tests/support/short_memory.hpp"

#include <cstddef>
#include <cstdlib>

#include <openssl/crypto.h>

namespace dlaunch::test {

/// Whether OpenSSL's allocations fail like others in a program that has this header and
/// short_memory.cpp: it takes such functions before its first allocation only.
inline const bool fails_for_openssl =
    CRYPTO_set_mem_functions(
        [](std::size_t bytes, const char*, int) {
          return allocation_fails(bytes) ? nullptr : std::malloc(bytes);
        },
        [](void* place, std::size_t bytes, const char*, int) {
          return allocation_fails(bytes) ? nullptr : std::realloc(place, bytes);
        },
        [](void* place, const char*, int) { std::free(place); }) == 1;

}  // namespace dlaunch::test
