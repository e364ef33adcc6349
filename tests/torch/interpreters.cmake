# The interpreters whose PyTorch is tested.
set(DLAUNCH_TEST_TORCH1_PYTHON /usr/bin/python3 CACHE FILEPATH
  "An interpreter with the torch of the distribution (python3-torch: 1.13 in Debian 12)")
set(torch2_python ${PROJECT_BINARY_DIR}/torch2/bin/python)
if(DEFINED ENV{DLAUNCH_TEST_TORCH2_PYTHON})
  set(torch2_python $ENV{DLAUNCH_TEST_TORCH2_PYTHON})
endif()
set(DLAUNCH_TEST_TORCH2_PYTHON ${torch2_python} CACHE FILEPATH
  "An interpreter with torch 2.13 (tests/torch/install_torch2 FOLDER makes one)")
