dlaunch_test(world_test
  unit/world/info_test.cpp
  unit/world/local_store_test.cpp
  unit/world/meeting_file_test.cpp
  unit/world/port_test.cpp
  unit/world/process_info_test.cpp
  unit/world/rank_zero_first_test.cpp
  unit/world/roster_test.cpp
  unit/world/url_test.cpp
  LIBS dlaunch_world)
