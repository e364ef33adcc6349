# The least compilers, and where they are on systems whose own one is older (Ubuntu 22.04, RHEL 9,
# openSUSE Leap 15): beside it, under their number. CXX, -DCMAKE_CXX_COMPILER and a toolchain file go
# before. Included before project().
set(dlaunch_least_gcc 12)
set(dlaunch_least_clang 14)

if(NOT CMAKE_CXX_COMPILER AND NOT CMAKE_TOOLCHAIN_FILE AND "$ENV{CXX}" STREQUAL "")
  find_program(dlaunch_own_compiler NAMES c++ g++ NO_CACHE)
  set(dlaunch_own_version 0)
  if(dlaunch_own_compiler)
    execute_process(COMMAND ${dlaunch_own_compiler} -dumpversion
      OUTPUT_VARIABLE dlaunch_own_version OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(dlaunch_own_version VERSION_LESS dlaunch_least_gcc)
    foreach(number IN ITEMS 14 13 12 15 16)
      find_program(dlaunch_cxx_${number} NAMES g++-${number} NO_CACHE)
      find_program(dlaunch_cc_${number} NAMES gcc-${number} NO_CACHE)
      if(NOT dlaunch_cxx_${number})  # RHEL's are called g++, each in a root of its own.
        find_program(dlaunch_cxx_${number} NAMES g++ PATHS /opt/rh/gcc-toolset-${number}/root/usr/bin
          NO_DEFAULT_PATH NO_CACHE)
        find_program(dlaunch_cc_${number} NAMES gcc PATHS /opt/rh/gcc-toolset-${number}/root/usr/bin
          NO_DEFAULT_PATH NO_CACHE)
      endif()
      if(NOT CMAKE_CXX_COMPILER AND dlaunch_cxx_${number} AND dlaunch_cc_${number})
        set(CMAKE_CXX_COMPILER ${dlaunch_cxx_${number}} CACHE FILEPATH "The C++ compiler")
        set(CMAKE_C_COMPILER ${dlaunch_cc_${number}} CACHE FILEPATH "The C compiler")
      endif()
    endforeach()
  endif()
endif()

# After project().
function(dlaunch_check_compiler)
  if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS dlaunch_least_gcc) OR
     (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS dlaunch_least_clang))
    message(FATAL_ERROR
      "dlaunch needs GCC ${dlaunch_least_gcc} or Clang ${dlaunch_least_clang} at the least; ${CMAKE_CXX_COMPILER} is "
      "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}. packaging/install-packages build installs one where the "
      "system has it; in an empty build directory, CC=gcc-12 CXX=g++-12 cmake ... names another.")
  endif()
endfunction()
