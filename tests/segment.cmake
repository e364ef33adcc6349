# The memory that the ranks of a node share.
dlaunch_test(segment_test
  unit/segment/doorbell_test.cpp
  unit/segment/processors_test.cpp
  unit/segment/segment_test.cpp
  LIBS dlaunch_segment)
