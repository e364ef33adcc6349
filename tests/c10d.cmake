# The front for PyTorch's store protocol.
dlaunch_test(c10d_decoder_test unit/store/c10d_decoder_test.cpp LIBS dlaunch_store)
dlaunch_test(c10d_session_test unit/store/c10d_session_test.cpp support/c10d_transcript.cpp
  LIBS dlaunch_store)
dlaunch_fuzz(c10d_fuzz fuzz/c10d_fuzz.cpp CORPUS c10d LIBS dlaunch_store
  COVERED store/c10d_barriers.cpp store/c10d_decoder.cpp store/c10d_session.cpp
    store/key_values.cpp store/key_values_waits.cpp store/waits.cpp)
dlaunch_test(c10d_server_test unit/store/c10d_server_test.cpp LIBS dlaunch_store)
