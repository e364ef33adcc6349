# The launcher under real job schedulers, on three hosts made of namespaces: ctest -L slurm. Skipped
# where a scheduler is missing or this is not root.
foreach(case slurm open_mpi hydra mpi_in_slurm indexed_job)
  add_test(NAME schedulers_${case}
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/process/schedulers_test
      $<TARGET_FILE:dlaunch_program> ${PROJECT_BINARY_DIR}/bin/examples ${case})
  set_tests_properties(schedulers_${case} PROPERTIES
    LABELS slurm TIMEOUT 240 SKIP_RETURN_CODE 77)
endforeach()
