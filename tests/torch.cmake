# Unmodified PyTorch scripts under the launcher: ctest -L torch. Skipped where an interpreter or its
# torch is missing. One case at a time, since each starts several processes that import torch.
set(DLAUNCH_TEST_TORCH1_PYTHON /usr/bin/python3 CACHE FILEPATH
  "An interpreter with the torch of the distribution (python3-torch: 1.13 in Debian 12)")
set(torch2_python ${PROJECT_BINARY_DIR}/torch2/bin/python)
if(DEFINED ENV{DLAUNCH_TEST_TORCH2_PYTHON})
  set(torch2_python $ENV{DLAUNCH_TEST_TORCH2_PYTHON})
endif()
set(DLAUNCH_TEST_TORCH2_PYTHON ${torch2_python} CACHE FILEPATH
  "An interpreter with torch 2.13 (tests/torch/install_torch2 FOLDER makes one)")

foreach(version 1 2)
  foreach(case store_operations gloo_group example ddp two_alone probe_and_spawn restart
      restart_same_port two_jobs nodes_ddp nodes_group nodes_restart nodes_elastic
      early_exit stopped stragglers)
    add_test(NAME torch${version}_${case}
      COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/torch/run
        ${DLAUNCH_TEST_TORCH${version}_PYTHON} $<TARGET_FILE:dlaunch_program> ${case})
    set_tests_properties(torch${version}_${case} PROPERTIES
      LABELS torch TIMEOUT 240 SKIP_RETURN_CODE 77 RESOURCE_LOCK torch)
  endforeach()
endforeach()
