# What the launcher decides before and after anything runs.
dlaunch_test(launcher_plan_test
  unit/launcher/binding_test.cpp
  unit/launcher/environment_test.cpp
  unit/launcher/error_file_test.cpp
  unit/launcher/help_test.cpp
  unit/launcher/machine_test.cpp
  unit/launcher/node_list_test.cpp
  unit/launcher/options_test.cpp
  unit/launcher/option_values_test.cpp
  unit/launcher/plan_test.cpp
  unit/launcher/result_test.cpp
  unit/launcher/scheduler_options_test.cpp
  unit/launcher/scheduler_test.cpp
  unit/launcher/stuck_watch_test.cpp
  unit/launcher/summary_test.cpp
  LIBS dlaunch_launcher nlohmann_json::nlohmann_json)
# Stands for NVIDIA's management library.
add_library(nvml_double SHARED nccl_double/nvml.cpp)
target_link_libraries(nvml_double PRIVATE dlaunch_settings)
set_target_properties(nvml_double PROPERTIES CXX_VISIBILITY_PRESET default
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_dependencies(launcher_plan_test nvml_double)
target_compile_definitions(launcher_plan_test PRIVATE DLAUNCH_NVML_DOUBLE="$<TARGET_FILE:nvml_double>")
dlaunch_test(command_line_test process/command_line_test.cpp
  LIBS dlaunch_process_test dlaunch_launcher nlohmann_json::nlohmann_json)
add_dependencies(command_line_test dlaunch_program)
dlaunch_fuzz(launcher_text_fuzz fuzz/launcher_text_fuzz.cpp CORPUS launcher_text LIBS dlaunch_launcher)

# A host of two NUMA nodes, by files that are mounted over this one's.
add_test(NAME numa_binding_test COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/process/numa_binding_test ${PROJECT_BINARY_DIR})
set_tests_properties(numa_binding_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${test_timeout})
