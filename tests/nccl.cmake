# CUDA buffers, on test doubles of the driver and of NCCL: no GPU is needed, and nothing is shown about one.
add_library(cuda_double SHARED nccl_double/cuda.cpp nccl_double/kernels.cpp)
add_library(nccl_double SHARED nccl_double/comm.cpp nccl_double/meeting.cpp nccl_double/nccl.cpp)
foreach(double cuda_double nccl_double)
  target_link_libraries(${double} PRIVATE dlaunch_settings)
  target_include_directories(${double} PRIVATE ${PROJECT_SOURCE_DIR}/collectives/include
    ${PROJECT_SOURCE_DIR}/runtime/include)
  set_target_properties(${double} PROPERTIES CXX_VISIBILITY_PRESET default
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endforeach()
target_link_libraries(nccl_double PRIVATE cuda_double)

dlaunch_test(nccl_test unit/nccl/bench_test.cpp unit/nccl/collectives_test.cpp unit/nccl/ending_test.cpp
  unit/nccl/failure_test.cpp unit/nccl/recovery_test.cpp
  unit/nccl/gpu_command_test.cpp unit/nccl/gpu_scenarios_test.cpp unit/nccl/overlap_test.cpp
  unit/nccl/stream_test.cpp unit/nccl/training_test.cpp
  gpu/command.cpp gpu/operations.cpp gpu/rank.cpp gpu/scenarios.cpp
  LIBS dlaunch_bench dlaunch_collectives dlaunch_world cuda_double nccl_double)
dlaunch_test(nccl_absent_test unit/nccl/absent_test.cpp LIBS dlaunch_collectives dlaunch_world)
foreach(test nccl_test nccl_absent_test)
  add_dependencies(${test} dlaunch_nccl nccl_double)
  set_target_properties(${test} PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
  target_compile_definitions(${test} PRIVATE
    DLAUNCH_CUDA_DOUBLE="$<TARGET_FILE:cuda_double>" DLAUNCH_NCCL_DOUBLE="$<TARGET_FILE:nccl_double>")
endforeach()
# The same ranks once more as those of one node, which share memory, with an NCCL as before 2.23.
add_test(NAME nccl_shared_test COMMAND nccl_test)
set_tests_properties(nccl_shared_test PROPERTIES TIMEOUT ${test_timeout} SKIP_RETURN_CODE 77
  ENVIRONMENT "DLAUNCH_TEST_SHARED=1;DLAUNCH_DOUBLE_NCCL_AT_ONCE=1")

# The example, by itself: the double's ranks find each other within one process.
set(doubles "DLAUNCH_CUDA_LIBRARY=$<TARGET_FILE:cuda_double>" "DLAUNCH_NCCL_LIBRARY=$<TARGET_FILE:nccl_double>")
add_test(NAME gradient_cuda_test COMMAND dlaunch_program --standalone --nproc-per-node 1
  $<TARGET_FILE:example_gradient_cuda> 1 5)
add_test(NAME gradient_cuda_absent_test COMMAND sh -c "\"$0\"; test $? = 69" $<TARGET_FILE:example_gradient_cuda>)
set_tests_properties(gradient_cuda_test PROPERTIES TIMEOUT ${test_timeout} ENVIRONMENT "${doubles}"
  PASS_REGULAR_EXPRESSION "1 ranks, 1 MiB of gradients in [0-9]+ buckets: .*, 0 of them wrong")
set_tests_properties(gradient_cuda_absent_test PROPERTIES TIMEOUT ${test_timeout}
  ENVIRONMENT "DLAUNCH_CUDA_LIBRARY=/nowhere/libcuda.so.1")

# On a GPU: `ctest -L gpu` on a host that has one and NCCL; elsewhere it says that it was skipped.
add_executable(gpu_test gpu/command.cpp gpu/gpu_test.cpp gpu/operations.cpp gpu/rank.cpp gpu/scenarios.cpp)
target_link_libraries(gpu_test PRIVATE dlaunch_settings dlaunch ${CMAKE_DL_LIBS})
target_include_directories(gpu_test PRIVATE ${PROJECT_SOURCE_DIR})
set_target_properties(gpu_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_dependencies(gpu_test dlaunch_nccl dlaunch_program dlaunch_bench_program bench_device_call example_gradient_cuda)
add_test(NAME gpu_test COMMAND gpu_test)
set_tests_properties(gpu_test PROPERTIES TIMEOUT 1800 LABELS gpu SKIP_RETURN_CODE 77)
# The folder that is carried to such a host.
add_test(NAME gpu_pack_test COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/gpu/pack_test ${PROJECT_SOURCE_DIR}
  ${PROJECT_BINARY_DIR})
set_tests_properties(gpu_pack_test PROPERTIES TIMEOUT ${test_timeout})

# The host's part of a call, beside NCCL's own.
add_executable(bench_device_call bench/device_call.cpp)
target_link_libraries(bench_device_call PRIVATE dlaunch_settings dlaunch_collectives dlaunch_world cuda_double
  ${CMAKE_DL_LIBS})
target_compile_definitions(bench_device_call PRIVATE
  DLAUNCH_CUDA_DOUBLE="$<TARGET_FILE:cuda_double>" DLAUNCH_NCCL_DOUBLE="$<TARGET_FILE:nccl_double>")
set_target_properties(bench_device_call PROPERTIES OUTPUT_NAME device_call
  RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench
  BUILD_RPATH "$ORIGIN/../lib")
add_dependencies(bench_device_call dlaunch_nccl nccl_double)
