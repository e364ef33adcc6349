dlaunch_test(world_test
  unit/world/children_test.cpp
  unit/world/info_test.cpp
  unit/world/join_agent_test.cpp
  unit/world/local_store_test.cpp
  unit/world/meeting_file_test.cpp
  unit/world/neighbours_test.cpp
  unit/world/port_test.cpp
  unit/world/process_info_test.cpp
  unit/world/rank_zero_first_test.cpp
  unit/world/roster_test.cpp
  unit/world/url_test.cpp
  LIBS dlaunch_world)

# Ranks as processes that a test starts by hand.
add_executable(by_hand_rank process/by_hand_rank.cpp)
target_link_libraries(by_hand_rank PRIVATE dlaunch_world)
set_target_properties(by_hand_rank PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
dlaunch_test(by_hand_test process/by_hand_test.cpp process/by_hand_wait_test.cpp
  process/by_hand_process.cpp LIBS dlaunch_world)
add_dependencies(by_hand_test by_hand_rank)
dlaunch_test(spawn_test unit/world/spawn_test.cpp LIBS dlaunch_world)
dlaunch_test(examples_test process/by_hand_examples_test.cpp process/by_hand_process.cpp
  LIBS dlaunch_world)
add_dependencies(examples_test example_barrier example_ping_pong example_ranks)
dlaunch_test(examples_launched_test process/examples_launched_test.cpp process/by_hand_process.cpp
  LIBS dlaunch_world)
add_dependencies(examples_launched_test example_all_reduce example_barrier example_c_all_reduce
  example_collectives example_fabric example_overlap example_ranks example_shrink dlaunch_program)
