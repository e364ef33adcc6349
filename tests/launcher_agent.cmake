dlaunch_test(supervisor_test unit/launcher/supervisor_test.cpp unit/launcher/end_report_test.cpp
  LIBS dlaunch_agent)
dlaunch_test(output_test unit/launcher/output_lines_test.cpp unit/launcher/line_filter_test.cpp
  unit/launcher/traceback_lines_test.cpp
  LIBS dlaunch_agent)

# Real launcher, real kills.
add_executable(victim process/victim.cpp)
target_link_libraries(victim PRIVATE dlaunch_settings)
set_target_properties(victim PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_library(dlaunch_process_test STATIC process/job.cpp process/terminal.cpp)
target_link_libraries(dlaunch_process_test PUBLIC dlaunch_settings doctest::doctest dlaunch_base util)
target_compile_definitions(dlaunch_process_test PRIVATE
  DLAUNCH_BINARY_DIR="${PROJECT_BINARY_DIR}")
foreach(area daemon_nodes exit kill nodes output_process stopped_nodes terminal uneven_inputs)
  dlaunch_test(${area}_test process/${area}_test.cpp LIBS dlaunch_process_test dlaunch_launcher)
  add_dependencies(${area}_test victim dlaunch_program)
endforeach()

dlaunch_test(job_host_test unit/rendezvous/job_host_test.cpp LIBS dlaunch_rendezvous)
dlaunch_test(relay_test unit/rendezvous/relay_test.cpp unit/rendezvous/relay_history_test.cpp
  LIBS dlaunch_rendezvous)
add_dependencies(nodes_test example_all_reduce example_shrink)
add_dependencies(daemon_nodes_test example_all_reduce dlaunchd_program)
add_dependencies(stopped_nodes_test dlaunchd_program)
target_link_libraries(uneven_inputs_test PRIVATE nlohmann_json::nlohmann_json)
add_dependencies(uneven_inputs_test example_uneven_inputs)

# Real ranks that do not go on.
add_executable(stuck_rank process/stuck_rank.cpp)
target_link_libraries(stuck_rank PRIVATE dlaunch)
set_target_properties(stuck_rank PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_executable(cause_rank process/cause_rank.cpp)
target_link_libraries(cause_rank PRIVATE dlaunch)
set_target_properties(cause_rank PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
dlaunch_test(cause_test process/cause_test.cpp LIBS dlaunch_process_test dlaunch_agent)
add_dependencies(cause_test cause_rank dlaunch_program dlaunchd_program)
foreach(area stuck stuck_nodes lost_nodes)
  dlaunch_test(${area}_test process/${area}_test.cpp
    LIBS dlaunch_process_test dlaunch_agent nlohmann_json::nlohmann_json)
  add_dependencies(${area}_test stuck_rank victim dlaunch_program)
endforeach()
add_dependencies(lost_nodes_test steady)

# Every way in which one rank may end while the others go on.
add_executable(ending_rank process/ending_rank.cpp)
target_link_libraries(ending_rank PRIVATE dlaunch)
set_target_properties(ending_rank PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
dlaunch_test(endings_test process/endings_test.cpp LIBS dlaunch_process_test dlaunch_launcher)
add_dependencies(endings_test ending_rank dlaunch_program dlaunchd_program)

# Ranks that name different roots.
add_executable(rooted_rank process/rooted_rank.cpp)
target_link_libraries(rooted_rank PRIVATE dlaunch)
set_target_properties(rooted_rank PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
dlaunch_test(rooted_test process/rooted_test.cpp LIBS dlaunch_process_test dlaunch_agent)
add_dependencies(rooted_test rooted_rank dlaunch_program)
