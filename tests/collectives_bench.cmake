# `dlaunch bench`: what it decides and checks, and the whole of it.
dlaunch_test(collectives_bench_test
  unit/collectives/bench/calibrate_test.cpp
  unit/collectives/bench/options_test.cpp
  unit/collectives/bench/pattern_test.cpp
  unit/collectives/bench/sizes_test.cpp
  LIBS dlaunch_bench)
dlaunch_test(bench_test process/bench_device_test.cpp process/bench_test.cpp
  LIBS dlaunch_process_test dlaunch_launcher nlohmann_json::nlohmann_json)
add_dependencies(bench_test dlaunch_program dlaunch_bench_program nccl_double)
target_compile_definitions(bench_test PRIVATE
  DLAUNCH_CUDA_DOUBLE="$<TARGET_FILE:cuda_double>" DLAUNCH_NCCL_DOUBLE="$<TARGET_FILE:nccl_double>")
