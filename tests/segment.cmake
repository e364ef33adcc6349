# The memory that the ranks of a node share.
dlaunch_test(segment_test
  unit/segment/processors_test.cpp
  LIBS dlaunch_segment)
