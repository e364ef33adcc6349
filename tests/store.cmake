dlaunch_test(store_core_test unit/store/key_values_test.cpp unit/store/wire_test.cpp unit/store/transcript_test.cpp unit/store/history_test.cpp
  LIBS dlaunch_store)
dlaunch_test(store_server_test unit/store/server_test.cpp unit/store/spaces_test.cpp LIBS dlaunch_store)
dlaunch_test(store_client_test unit/store/client_test.cpp unit/store/reconnect_test.cpp
  LIBS dlaunch_store)
dlaunch_fuzz(native_fuzz fuzz/native_fuzz.cpp CORPUS native LIBS dlaunch_store
  COVERED store/aggregates.cpp store/key_values.cpp store/key_values_waits.cpp store/leases.cpp
    store/native.cpp store/native_spaces.cpp store/replies.cpp store/waits.cpp store/wire.cpp)
dlaunch_test(uplink_test unit/store/uplink_test.cpp LIBS dlaunch_store)
# A crowd is heavy: by `ctest -L faults`, or left out by -LE faults.
dlaunch_test(store_crowd_test process/store_crowd_test.cpp LIBS dlaunch_store)
set_tests_properties(store_crowd_test PROPERTIES LABELS faults TIMEOUT 120)
