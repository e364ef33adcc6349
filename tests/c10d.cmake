# The front for PyTorch's store protocol.
dlaunch_test(c10d_decoder_test unit/store/c10d_decoder_test.cpp LIBS dlaunch_c10d)
