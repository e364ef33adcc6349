# Nodes on a network of namespaces that is cut, lossy or silent; skipped where none can be made.
# One after the other: each is many processes, and time counts in them.
add_library(dlaunch_network_test STATIC
  process/network.cpp process/network_job.cpp process/network_main.cpp support/skipped.cpp)
target_link_libraries(dlaunch_network_test PUBLIC dlaunch_process_test dlaunch_launcher)
foreach(area names node_kill partition freeze shaped)
  set(test network_${area}_test)
  add_executable(${test} process/${test}.cpp)
  target_link_libraries(${test} PRIVATE dlaunch_network_test)
  set_target_properties(${test} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_definitions(${test} PRIVATE DLAUNCH_BINARY_DIR="${PROJECT_BINARY_DIR}")
  add_dependencies(${test} victim by_hand_rank dlaunch_program example_all_reduce)
  add_test(NAME ${test} COMMAND ${test})
  set_tests_properties(${test} PROPERTIES
    LABELS faults TIMEOUT 300 SKIP_RETURN_CODE 77 RESOURCE_LOCK network)
  # libfaketime is preloaded before ASan's runtime; and a launcher that is killed at any moment may
  # be so while LeakSanitizer's process looks at it, which then hangs.
  if(DLAUNCH_SANITIZE MATCHES address)
    set_tests_properties(${test} PROPERTIES ENVIRONMENT
      ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0)
  endif()
endforeach()

add_executable(meshes process/meshes.cpp)
target_link_libraries(meshes PRIVATE dlaunch)
set_target_properties(meshes PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_dependencies(network_shaped_test meshes dlaunch_bench_program)
add_dependencies(network_partition_test stuck_rank)

# A dlaunchd that is away for a while, under jobs that run.
add_executable(steady process/steady.cpp)
target_link_libraries(steady PRIVATE dlaunch_settings dlaunch)
set_target_properties(steady PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
dlaunch_test(daemon_restart_test process/daemon_restart_test.cpp
  LIBS dlaunch_process_test dlaunch_launcher)
add_dependencies(daemon_restart_test steady victim dlaunch_program dlaunchd_program)
set_tests_properties(daemon_restart_test PROPERTIES LABELS faults TIMEOUT 300 ENVIRONMENT
  "DLAUNCH_TEST_TORCH1_PYTHON=${DLAUNCH_TEST_TORCH1_PYTHON};DLAUNCH_TEST_TORCH2_PYTHON=${DLAUNCH_TEST_TORCH2_PYTHON}")

# What docs/operations.md and the design promise of faults, against the clock, with room.
add_test(NAME promises_test COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bench/promises/promises.py ${PROJECT_BINARY_DIR})
set_tests_properties(promises_test PROPERTIES LABELS faults TIMEOUT 300 RUN_SERIAL ON)
