# What the rendezvous decides.
add_library(dlaunch_rounds_test STATIC support/rounds_story.cpp)
target_include_directories(dlaunch_rounds_test PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(dlaunch_rounds_test PUBLIC dlaunch_rendezvous doctest::doctest)
dlaunch_test(rounds_test
  unit/rendezvous/rounds_test.cpp
  unit/rendezvous/rounds_scale_test.cpp
  LIBS dlaunch_rounds_test)
dlaunch_test(rounds_simulation_test
  simulation/rounds_simulation_test.cpp
  simulation/rounds_actors.cpp
  simulation/rounds_world.cpp
  LIBS dlaunch_rounds_test)
