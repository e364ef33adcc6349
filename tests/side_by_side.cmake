# What may run beside what under `ctest -j`: as many tests as one likes, but of those that share a
# lock only one at a time, and those with several processors as if they were several tests. Most
# wait more than they work.

function(dlaunch_lock lock)  # dlaunch_lock(LOCK tests...)
  foreach(test ${ARGN})
    if(TEST ${test})
      set_property(TEST ${test} APPEND PROPERTY RESOURCE_LOCK ${lock})
    endif()
  endforeach()
endfunction()

# Ranks as threads, more of them than there are cores: they need both, and some have a second for an
# answer.
foreach(suite collectives training)
  foreach(layout test shared_test halves_test alternating_test uneven_test)
    set_property(TEST ${suite}_${layout} PROPERTY PROCESSORS 2)
  endforeach()
endforeach()
set_property(TEST grid_process_test PROPERTY PROCESSORS 2)

# Time counts in these: a bandwidth, what a process computes while it waits, who is called stuck.
foreach(test network_shaped_test store_crowd_test stuck_test stuck_nodes_test bench_test)
  set_property(TEST ${test} PROPERTY RUN_SERIAL ON)
endforeach()

# Many processes each. The network tests have this lock already.
dlaunch_lock(network daemon_restart_test dlaunchd_booted_test schedulers_slurm schedulers_open_mpi
  schedulers_hydra schedulers_mpi_in_slurm schedulers_indexed_job)
# Launchers that are killed, stopped and looked at from outside.
dlaunch_lock(processes cause_test command_line_test daemon_nodes_test dlaunchd_test endings_test
  exit_test forking_test kill_test leave_test lost_nodes_test nodes_test output_process_test
  rooted_test shared_memory_test stopped_nodes_test struck_test terminal_test uneven_inputs_test)

# The longest first, so that none of them is left over at the end.
foreach(test network_freeze_test network_partition_test network_node_kill_test network_names_test
    daemon_restart_test struck_test kill_test endings_test leave_test)
  set_property(TEST ${test} PROPERTY COST 100)
endforeach()
