# The front for PyTorch's store protocol.
dlaunch_test(c10d_decoder_test unit/store/c10d_decoder_test.cpp LIBS dlaunch_store)
dlaunch_test(c10d_session_test unit/store/c10d_session_test.cpp support/c10d_transcript.cpp
  LIBS dlaunch_store)
dlaunch_fuzz(c10d_fuzz fuzz/c10d_fuzz.cpp CORPUS c10d LIBS dlaunch_store)
