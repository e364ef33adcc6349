dlaunch_test(collectives_test
  unit/collectives/golden_test.cpp
  unit/collectives/grid_test.cpp
  LIBS dlaunch_collectives dlaunch_world)
