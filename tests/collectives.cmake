# A reference that rounds as the product does.
set_source_files_properties(unit/collectives/fold_test.cpp PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
dlaunch_test(collectives_test
  unit/collectives/algorithms_test.cpp
  unit/collectives/arguments_test.cpp
  unit/collectives/by_rank_test.cpp
  unit/collectives/channel_test.cpp
  unit/collectives/connections_test.cpp
  unit/collectives/disagreement_test.cpp
  unit/collectives/disagreement_words_test.cpp
  unit/collectives/failure_test.cpp
  unit/collectives/recovery_test.cpp
  unit/collectives/fold_test.cpp
  unit/collectives/golden_test.cpp
  unit/collectives/grid_test.cpp
  unit/collectives/group_test.cpp
  unit/collectives/inbox_test.cpp
  unit/collectives/layout_test.cpp
  unit/collectives/local_ranks_test.cpp
  unit/collectives/message_test.cpp
  unit/collectives/news_test.cpp
  unit/collectives/nodes_test.cpp
  unit/collectives/proof_test.cpp
  unit/collectives/ring_test.cpp
  unit/collectives/shortage_test.cpp
  unit/collectives/started_end_test.cpp
  unit/collectives/started_test.cpp
  unit/collectives/table_test.cpp
  unit/collectives/threads_test.cpp
  unit/collectives/topology_test.cpp
  unit/collectives/wait_chain_test.cpp
  unit/collectives/tree_test.cpp
  LIBS dlaunch_collectives dlaunch_world)
# The same ranks once more, as those of one node, which share memory; what connections prove is not
# among them.
add_test(NAME collectives_shared_test COMMAND collectives_test --source-file-exclude=*proof_test*)
set_tests_properties(collectives_shared_test PROPERTIES
  TIMEOUT ${test_timeout} SKIP_RETURN_CODE 77 ENVIRONMENT DLAUNCH_TEST_SHARED=1)
# And as those of several nodes, some of which share memory: what makes calls.
foreach(nodes halves alternating uneven)
  add_test(NAME collectives_${nodes}_test COMMAND collectives_test
    --source-file=*disagreement*_test*,*failure_test*,*golden_test*,*grid_test*,*group_test*,*started*_test*,*table_test*,*threads_test*)
  set_tests_properties(collectives_${nodes}_test PROPERTIES
    TIMEOUT ${test_timeout} SKIP_RETURN_CODE 77 ENVIRONMENT DLAUNCH_TEST_NODES=${nodes})
endforeach()
dlaunch_test(spawn_rooted_test unit/collectives/spawn_rooted_test.cpp
  LIBS dlaunch_collectives dlaunch_world)
# A large world; it counts what is allocated.
dlaunch_test(large_world_test unit/collectives/large_world_test.cpp LIBS dlaunch_collectives dlaunch_world)
# What trains: gradients, and ranks with different numbers of inputs.
dlaunch_test(training_test
  unit/collectives/training/join_golden_test.cpp
  unit/collectives/training/join_test.cpp
  unit/collectives/training/reducer_errors_test.cpp
  unit/collectives/training/reducer_test.cpp
  LIBS dlaunch_collectives dlaunch_world)
add_test(NAME training_shared_test COMMAND training_test)
set_tests_properties(training_shared_test PROPERTIES
  TIMEOUT ${test_timeout} SKIP_RETURN_CODE 77 ENVIRONMENT DLAUNCH_TEST_SHARED=1)
foreach(nodes halves alternating uneven)
  add_test(NAME training_${nodes}_test COMMAND training_test)
  set_tests_properties(training_${nodes}_test PROPERTIES
    TIMEOUT ${test_timeout} SKIP_RETURN_CODE 77 ENVIRONMENT DLAUNCH_TEST_NODES=${nodes})
endforeach()
add_subdirectory(compile_fail)
add_subdirectory(c)

# Ranks that are struck in the midst of a call.
add_executable(struck process/struck.cpp process/struck_calls.cpp)
target_link_libraries(struck PRIVATE dlaunch_settings dlaunch_collectives dlaunch_world)
set_target_properties(struck PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
dlaunch_test(struck_test process/struck_test.cpp LIBS dlaunch_process_test dlaunch_launcher)
add_dependencies(struck_test struck dlaunch_program)

# Ranks that leave at once.
add_executable(leave_rank process/leave_rank.cpp process/struck_calls.cpp)
target_link_libraries(leave_rank PRIVATE dlaunch_settings dlaunch_collectives dlaunch_world)
add_executable(leave_rank_c process/leave_rank_c.c)
target_link_libraries(leave_rank_c PRIVATE dlaunch_settings dlaunch)
set_target_properties(leave_rank leave_rank_c PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
dlaunch_test(leave_test process/leave_test.cpp LIBS dlaunch_process_test dlaunch_launcher)
add_dependencies(leave_test leave_rank leave_rank_c dlaunch_program)

# What DLAUNCH_TABLE names.
dlaunch_fuzz(table_fuzz fuzz/table_fuzz.cpp CORPUS table LIBS dlaunch_collectives
  COVERED ../collectives/algorithms/table_text.cpp)

# The grid, with ranks that are processes.
add_executable(grid_rank process/grid_rank.cpp)
target_link_libraries(grid_rank PRIVATE dlaunch_settings dlaunch_collectives dlaunch_world)
set_target_properties(grid_rank PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
dlaunch_test(grid_process_test process/grid_test.cpp LIBS dlaunch_process_test dlaunch_launcher)
add_dependencies(grid_process_test grid_rank dlaunch_program)

# Ranks whose forked children end before them.
add_executable(forking_rank process/forking_rank.cpp)
target_link_libraries(forking_rank PRIVATE dlaunch_settings dlaunch_collectives dlaunch_world)
set_target_properties(forking_rank PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
dlaunch_test(forking_test process/forking_test.cpp LIBS dlaunch_process_test dlaunch_launcher)
add_dependencies(forking_test forking_rank dlaunch_program)
