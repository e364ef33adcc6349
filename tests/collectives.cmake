dlaunch_test(collectives_test
  unit/collectives/failure_test.cpp
  unit/collectives/golden_test.cpp
  unit/collectives/grid_test.cpp
  unit/collectives/group_test.cpp
  unit/collectives/inbox_test.cpp
  unit/collectives/message_test.cpp
  unit/collectives/proof_test.cpp
  unit/collectives/topology_test.cpp
  unit/collectives/tree_test.cpp
  LIBS dlaunch_collectives dlaunch_world)
add_subdirectory(compile_fail)
