# cmake -DCMAKE_TOOLCHAIN_FILE=packaging/cross/aarch64.cmake: for 64-bit Arm, on Debian with
# g++-aarch64-linux-gnu and libraries of arm64 beside its own (packaging/cross/check-aarch64).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
# Programs are of this machine, headers and libraries of the other; headers without code are of both.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(OPENSSL_CRYPTO_LIBRARY /usr/lib/aarch64-linux-gnu/libcrypto.so CACHE FILEPATH "")
set(OPENSSL_SSL_LIBRARY /usr/lib/aarch64-linux-gnu/libssl.so CACHE FILEPATH "")
file(GLOB boost_headers /usr/lib/*/cmake/Boost-[0-9]*)
set(Boost_DIR ${boost_headers} CACHE PATH "")
set(fmt_DIR /usr/lib/aarch64-linux-gnu/cmake/fmt CACHE PATH "")
# Tests run in an emulation; libraries of arm64 lie where a loader of arm64 looks.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
