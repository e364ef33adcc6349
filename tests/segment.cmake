# The memory that the ranks of a node share.
dlaunch_test(segment_test
  unit/segment/call_ledger_test.cpp
  unit/segment/calls_made_test.cpp
  unit/segment/doorbell_test.cpp
  unit/segment/flight_test.cpp
  unit/segment/processors_test.cpp
  unit/segment/segment_test.cpp
  LIBS dlaunch_segment)
dlaunch_test(shared_memory_test process/shared_memory_test.cpp LIBS dlaunch_process_test dlaunch_launcher)
add_dependencies(shared_memory_test by_hand_rank dlaunch_program)
